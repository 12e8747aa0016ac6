"""Broker configs of the log: directories, segments, retention, cleaning, flushing.

Names, types, defaults and limits of Kafka 3.9, in alphabetical order.
"""

from __future__ import annotations

from typing import Final

from klog.config.key_table import config_keys

KEYS: Final = config_keys("""
compression.gzip.level | int -1 | gzip level | cluster-wide
compression.lz4.level | int 9 | 1 to 17 | cluster-wide
compression.type | string producer | one of uncompressed, zstd, lz4, snappy, gzip, producer | cluster-wide
compression.zstd.level | int 3 | -131072 to 22 | cluster-wide
delete.records.purgatory.purge.interval.requests | int 1
  After how many finished DeleteRecords requests those that still occupy memory are removed.
log.cleaner.backoff.ms | long 15000 | at least 0 | cluster-wide
  How long the cleaner sleeps if there is nothing to clean, in ms.
log.cleaner.dedupe.buffer.size | long 134217728 | cluster-wide
  The memory for the maps of keys of all cleaner threads together, in bytes. A larger map lets one pass
  cover more of a log.
log.cleaner.delete.retention.ms | long 86400000 | at least 0 | cluster-wide
log.cleaner.enable | boolean true
  Whether the broker compacts logs. It must be true for topics with cleanup.policy=compact,
  __consumer_offsets included.
log.cleaner.io.buffer.load.factor | double 0.9 | cluster-wide
  How full the map of keys may become, 0 to 1. Higher values clean more of a log at a time, with more
  collisions of keys.
log.cleaner.io.buffer.size | int 524288 | at least 0 | cluster-wide
  The memory for reading and writing of all cleaner threads together, in bytes.
log.cleaner.io.max.bytes.per.second | double 1.7976931348623157E308 | cluster-wide
  How many bytes a second all cleaner threads together may read and write.
log.cleaner.max.compaction.lag.ms | long 9223372036854775807 | at least 1 | cluster-wide
log.cleaner.min.cleanable.ratio | double 0.5 | 0 to 1 | cluster-wide
log.cleaner.min.compaction.lag.ms | long 0 | at least 0 | cluster-wide
log.cleaner.threads | int 1 | at least 0 | cluster-wide
  The number of cleaner threads.
log.cleanup.policy | list delete | all of compact, delete | cluster-wide
log.dir | string /tmp/kafka-logs
  The directory of the logs, if log.dirs is not set.
log.dirs | string
  The directories of the logs, with commas between them. Without a value it is log.dir.
log.flush.interval.messages | long 9223372036854775807 | at least 1 | cluster-wide
log.flush.interval.ms | long | cluster-wide
log.flush.offset.checkpoint.interval.ms | int 60000 | at least 0
  How often the file recovery-point-offset-checkpoint is written, in ms. After a crash, logs are checked
  from these offsets on.
log.flush.scheduler.interval.ms | long 9223372036854775807
  How often the broker looks for logs that are due to be forced to disk, in ms.
log.flush.start.offset.checkpoint.interval.ms | int 60000 | at least 0
  How often the file log-start-offset-checkpoint is written, in ms. Deleted records stay deleted after a
  crash as far as it says.
log.index.interval.bytes | int 4096 | at least 0 | cluster-wide
log.index.size.max.bytes | int 10485760 | at least 4 | cluster-wide
log.initial.task.delay.ms | long 30000 | at least 0 | internal
  How long after the start retention, flushing and checkpoints begin, in ms.
log.message.downconversion.enable | boolean true | cluster-wide
log.message.format.version | string 3.0-IV1 | Kafka version
log.message.timestamp.after.max.ms | long 9223372036854775807 | at least 0 | cluster-wide
log.message.timestamp.before.max.ms | long 9223372036854775807 | at least 0 | cluster-wide
log.message.timestamp.difference.max.ms | long 9223372036854775807 | at least 0 | cluster-wide
log.message.timestamp.type | string CreateTime | one of CreateTime, LogAppendTime | cluster-wide
log.preallocate | boolean false | cluster-wide
log.retention.bytes | long -1 | cluster-wide
log.retention.check.interval.ms | long 300000 | at least 1
  How often the broker looks for segments to delete, in ms.
log.retention.hours | int 168
log.retention.minutes | int
log.retention.ms | long | cluster-wide
log.roll.hours | int 168 | at least 1
log.roll.jitter.hours | int 0 | at least 0
log.roll.jitter.ms | long | cluster-wide
log.roll.ms | long | cluster-wide
log.segment.bytes | int 1073741824 | at least 14 | cluster-wide
log.segment.delete.delay.ms | long 60000 | at least 0 | cluster-wide
message.max.bytes | int 1048588 | at least 0 | cluster-wide
min.insync.replicas | int 1 | at least 1 | cluster-wide
num.recovery.threads.per.data.dir | int 1 | at least 1 | cluster-wide
  How many threads check the logs of each directory at the start after an unclean stop, and flush them at a
  stop.
""")
