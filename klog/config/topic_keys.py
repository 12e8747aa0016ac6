"""Topic configs.

Names, types, defaults and limits of Kafka 3.9, in alphabetical order.
"""

from __future__ import annotations

from typing import Final

from klog.config.keys import (
    INT64_MAX,
    ConfigKey,
    Type,
    all_of,
    at_least,
    between,
    gzip_level,
    kafka_version,
    one_of,
    throttled_replicas,
)

KEYS: Final = (
    ConfigKey("cleanup.policy", Type.LIST, ("delete",), all_of("compact", "delete")),
    ConfigKey("compression.gzip.level", Type.INT, -1, gzip_level),
    ConfigKey("compression.lz4.level", Type.INT, 9, between(1, 17)),
    ConfigKey(
        "compression.type",
        Type.STRING,
        "producer",
        one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
    ),
    ConfigKey("compression.zstd.level", Type.INT, 3, between(-131072, 22)),
    ConfigKey("delete.retention.ms", Type.LONG, 86_400_000, at_least(0)),
    ConfigKey("file.delete.delay.ms", Type.LONG, 60_000, at_least(0)),
    ConfigKey("flush.messages", Type.LONG, INT64_MAX, at_least(1)),
    ConfigKey("flush.ms", Type.LONG, INT64_MAX, at_least(0)),
    ConfigKey("follower.replication.throttled.replicas", Type.LIST, (), throttled_replicas),
    ConfigKey("index.interval.bytes", Type.INT, 4096, at_least(0)),
    ConfigKey("leader.replication.throttled.replicas", Type.LIST, (), throttled_replicas),
    ConfigKey("local.retention.bytes", Type.LONG, -2, at_least(-2)),
    ConfigKey("local.retention.ms", Type.LONG, -2, at_least(-2)),
    ConfigKey("max.compaction.lag.ms", Type.LONG, INT64_MAX, at_least(1)),
    ConfigKey("max.message.bytes", Type.INT, 1_048_588, at_least(0)),
    ConfigKey("message.downconversion.enable", Type.BOOLEAN, True),
    ConfigKey("message.format.version", Type.STRING, "3.0-IV1", kafka_version),
    ConfigKey("message.timestamp.after.max.ms", Type.LONG, INT64_MAX, at_least(0)),
    ConfigKey("message.timestamp.before.max.ms", Type.LONG, INT64_MAX, at_least(0)),
    ConfigKey("message.timestamp.difference.max.ms", Type.LONG, INT64_MAX, at_least(0)),
    ConfigKey("message.timestamp.type", Type.STRING, "CreateTime", one_of("CreateTime", "LogAppendTime")),
    ConfigKey("min.cleanable.dirty.ratio", Type.DOUBLE, 0.5, between(0, 1)),
    ConfigKey("min.compaction.lag.ms", Type.LONG, 0, at_least(0)),
    ConfigKey("min.insync.replicas", Type.INT, 1, at_least(1)),
    ConfigKey("preallocate", Type.BOOLEAN, False),
    ConfigKey("remote.log.copy.disable", Type.BOOLEAN, False),
    ConfigKey("remote.log.delete.on.disable", Type.BOOLEAN, False),
    ConfigKey("remote.storage.enable", Type.BOOLEAN, False),
    ConfigKey("retention.bytes", Type.LONG, -1),
    ConfigKey("retention.ms", Type.LONG, 604_800_000, at_least(-1)),
    ConfigKey("segment.bytes", Type.INT, 1_073_741_824, at_least(14)),
    ConfigKey("segment.index.bytes", Type.INT, 10_485_760, at_least(4)),
    ConfigKey("segment.jitter.ms", Type.LONG, 0, at_least(0)),
    ConfigKey("segment.ms", Type.LONG, 604_800_000, at_least(1)),
    ConfigKey("unclean.leader.election.enable", Type.BOOLEAN, False),
)
