"""Topic configs.

Names, types, defaults and limits of Kafka 3.9, in alphabetical order.
"""

from __future__ import annotations

from typing import Final

from klog.config.key_table import config_keys

KEYS: Final = config_keys("""
cleanup.policy | list delete | all of compact, delete
  How old data goes: "delete" removes segments by age or size, "compact" keeps the last record of each key,
  "compact,delete" does both.
compression.gzip.level | int -1 | gzip level
  The gzip level, 1 (fast) to 9 (small) or -1 for gzip's default, if the broker compresses with gzip.
compression.lz4.level | int 9 | 1 to 17
  The lz4 level, 1 to 17, if the broker compresses with lz4.
compression.type | string producer | one of uncompressed, zstd, lz4, snappy, gzip, producer
  The codec of the topic's batches on disk. "producer" keeps the codec of the producer; "uncompressed",
  "gzip", "snappy", "lz4" and "zstd" make the broker compress batches anew.
compression.zstd.level | int 3 | -131072 to 22
  The zstd level, -131072 to 22, if the broker compresses with zstd.
delete.retention.ms | long 86400000 | at least 0
  How long a compacted log keeps tombstones (records with a null value) and transaction markers, in ms. A
  consumer that reads from the start must finish within this time to see them all.
file.delete.delay.ms | long 60000 | at least 0
  How long the files of a deleted segment stay on disk before they are removed, in ms.
flush.messages | long 9223372036854775807 | at least 1
  After how many records the log is forced to disk. Replication makes this seldom necessary.
flush.ms | long 9223372036854775807 | at least 0
  After how many ms the log is forced to disk. Replication makes this seldom necessary.
follower.replication.throttled.replicas | list "" | throttled replicas
  The replicas whose copying is throttled on the side of the follower: "partition:broker" pairs with commas,
  or * for all.
index.interval.bytes | int 4096 | at least 0
  After how many bytes of records the offset and time indexes get an entry. Smaller values make seeks more
  exact and indexes larger.
leader.replication.throttled.replicas | list "" | throttled replicas
  The replicas whose copying is throttled on the side of the leader: "partition:broker" pairs with commas,
  or * for all.
local.retention.bytes | long -2 | at least -2
  With tiered storage: how many bytes of each partition stay on the broker's disk after they were copied to
  remote storage. -2 means retention.bytes.
local.retention.ms | long -2 | at least -2
  With tiered storage: how long segments stay on the broker's disk after they were copied to remote storage,
  in ms. -2 means retention.ms.
max.compaction.lag.ms | long 9223372036854775807 | at least 1
  The longest time that a record of a compacted topic may stay uncompacted, in ms.
max.message.bytes | int 1048588 | at least 0
  The size of the largest batch of records that the broker accepts, after compression. Fetch sizes of
  consumers before 0.10.2 must be at least as large.
message.downconversion.enable | boolean true
  Whether the broker converts batches for consumers that only know older formats. If false, such consumers
  get UNSUPPORTED_VERSION.
message.format.version | string 3.0-IV1 | Kafka version
  The format in which batches were written before Kafka 3.0. Later brokers ignore it.
message.timestamp.after.max.ms | long 9223372036854775807 | at least 0
  By how many ms the timestamp of a record may be later than the broker's clock. Records beyond that are
  refused, if message.timestamp.type is CreateTime.
message.timestamp.before.max.ms | long 9223372036854775807 | at least 0
  By how many ms the timestamp of a record may be earlier than the broker's clock. Records beyond that are
  refused, if message.timestamp.type is CreateTime.
message.timestamp.difference.max.ms | long 9223372036854775807 | at least 0
  By how many ms the timestamp of a record may differ from the broker's clock in either direction.
  Deprecated: message.timestamp.before.max.ms and message.timestamp.after.max.ms replace it.
message.timestamp.type | string CreateTime | one of CreateTime, LogAppendTime
  Whether a record has the time of its producer (CreateTime) or that of the broker's append (LogAppendTime).
min.cleanable.dirty.ratio | double 0.5 | 0 to 1
  How large the part of a log that was not yet compacted must be, 0 to 1, before the cleaner compacts it.
  Lower values save disk space and cost more compactions.
min.compaction.lag.ms | long 0 | at least 0
  How long every record of a compacted topic stays uncompacted at least, in ms.
min.insync.replicas | int 1 | at least 1
  How many replicas must be in sync for a write with acks=all to succeed. Otherwise the producer gets
  NOT_ENOUGH_REPLICAS.
preallocate | boolean false
  Whether the file of a new segment gets its full size on disk at once.
remote.log.copy.disable | boolean false
  With tiered storage: whether copying to remote storage stops. What is there can still be read.
remote.log.delete.on.disable | boolean false
  Whether the topic's remote data is deleted when its tiered storage is disabled.
remote.storage.enable | boolean false
  Whether tiered storage is enabled for the topic.
retention.bytes | long -1
  How large a partition may become before its oldest segments are deleted, in bytes; -1 sets no limit. It
  applies to each partition, and only if cleanup.policy has "delete".
retention.ms | long 604800000 | at least -1
  How long records are kept before their segment is deleted, in ms; -1 keeps them for ever. It applies only
  if cleanup.policy has "delete".
segment.bytes | int 1073741824 | at least 14
  The size at which a segment file is closed and a new one begins. Retention and compaction work on closed
  segments.
segment.index.bytes | int 10485760 | at least 4
  The largest size of an index file. The file is allocated at this size and cut when its segment is closed.
segment.jitter.ms | long 0 | at least 0
  The longest random time by which a segment rolls earlier than segment.ms says, in ms, so that not all
  partitions roll at the same moment.
segment.ms | long 604800000 | at least 1
  The age at which a segment is closed though it is not full, in ms, so that retention and compaction can
  work on it.
unclean.leader.election.enable | boolean false
  Whether a replica that is not in sync may become leader if no other is alive. The partition is available
  again then, but records may be lost.
""")
