"""Broker configs of the log: directories, segments, retention, cleaning, flushing.

Names, types, defaults and limits of Kafka 3.9, in alphabetical order.
"""

from __future__ import annotations

from typing import Final

from klog.config.keys import (
    DOUBLE_MAX,
    INT64_MAX,
    ConfigKey,
    Dynamic,
    Type,
    all_of,
    at_least,
    between,
    gzip_level,
    kafka_version,
    one_of,
)

KEYS: Final = (
    ConfigKey("compression.gzip.level", Type.INT, -1, gzip_level, dynamic=Dynamic.CLUSTER),
    ConfigKey("compression.lz4.level", Type.INT, 9, between(1, 17), dynamic=Dynamic.CLUSTER),
    ConfigKey(
        "compression.type",
        Type.STRING,
        "producer",
        one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        dynamic=Dynamic.CLUSTER,
    ),
    ConfigKey("compression.zstd.level", Type.INT, 3, between(-131072, 22), dynamic=Dynamic.CLUSTER),
    ConfigKey("delete.records.purgatory.purge.interval.requests", Type.INT, 1),
    ConfigKey("log.cleaner.backoff.ms", Type.LONG, 15_000, at_least(0), dynamic=Dynamic.CLUSTER),
    ConfigKey("log.cleaner.dedupe.buffer.size", Type.LONG, 134_217_728, dynamic=Dynamic.CLUSTER),
    ConfigKey("log.cleaner.delete.retention.ms", Type.LONG, 86_400_000, at_least(0), dynamic=Dynamic.CLUSTER),
    ConfigKey("log.cleaner.enable", Type.BOOLEAN, True),
    ConfigKey("log.cleaner.io.buffer.load.factor", Type.DOUBLE, 0.9, dynamic=Dynamic.CLUSTER),
    ConfigKey("log.cleaner.io.buffer.size", Type.INT, 524_288, at_least(0), dynamic=Dynamic.CLUSTER),
    ConfigKey("log.cleaner.io.max.bytes.per.second", Type.DOUBLE, DOUBLE_MAX, dynamic=Dynamic.CLUSTER),
    ConfigKey(
        "log.cleaner.max.compaction.lag.ms", Type.LONG, INT64_MAX, at_least(1), dynamic=Dynamic.CLUSTER
    ),
    ConfigKey("log.cleaner.min.cleanable.ratio", Type.DOUBLE, 0.5, between(0, 1), dynamic=Dynamic.CLUSTER),
    ConfigKey("log.cleaner.min.compaction.lag.ms", Type.LONG, 0, at_least(0), dynamic=Dynamic.CLUSTER),
    ConfigKey("log.cleaner.threads", Type.INT, 1, at_least(0), dynamic=Dynamic.CLUSTER),
    ConfigKey(
        "log.cleanup.policy", Type.LIST, ("delete",), all_of("compact", "delete"), dynamic=Dynamic.CLUSTER
    ),
    ConfigKey("log.dir", Type.STRING, "/tmp/kafka-logs"),  # noqa: S108 (Kafka's default)
    ConfigKey("log.dirs", Type.STRING, None),
    ConfigKey("log.flush.interval.messages", Type.LONG, INT64_MAX, at_least(1), dynamic=Dynamic.CLUSTER),
    ConfigKey("log.flush.interval.ms", Type.LONG, None, dynamic=Dynamic.CLUSTER),
    ConfigKey("log.flush.offset.checkpoint.interval.ms", Type.INT, 60_000, at_least(0)),
    ConfigKey("log.flush.scheduler.interval.ms", Type.LONG, INT64_MAX),
    ConfigKey("log.flush.start.offset.checkpoint.interval.ms", Type.INT, 60_000, at_least(0)),
    ConfigKey("log.index.interval.bytes", Type.INT, 4096, at_least(0), dynamic=Dynamic.CLUSTER),
    ConfigKey("log.index.size.max.bytes", Type.INT, 10_485_760, at_least(4), dynamic=Dynamic.CLUSTER),
    ConfigKey("log.initial.task.delay.ms", Type.LONG, 30_000, at_least(0), internal=True),
    ConfigKey("log.message.downconversion.enable", Type.BOOLEAN, True, dynamic=Dynamic.CLUSTER),
    ConfigKey("log.message.format.version", Type.STRING, "3.0-IV1", kafka_version),
    ConfigKey(
        "log.message.timestamp.after.max.ms", Type.LONG, INT64_MAX, at_least(0), dynamic=Dynamic.CLUSTER
    ),
    ConfigKey(
        "log.message.timestamp.before.max.ms", Type.LONG, INT64_MAX, at_least(0), dynamic=Dynamic.CLUSTER
    ),
    ConfigKey(
        "log.message.timestamp.difference.max.ms", Type.LONG, INT64_MAX, at_least(0), dynamic=Dynamic.CLUSTER
    ),
    ConfigKey(
        "log.message.timestamp.type",
        Type.STRING,
        "CreateTime",
        one_of("CreateTime", "LogAppendTime"),
        dynamic=Dynamic.CLUSTER,
    ),
    ConfigKey("log.preallocate", Type.BOOLEAN, False, dynamic=Dynamic.CLUSTER),
    ConfigKey("log.retention.bytes", Type.LONG, -1, dynamic=Dynamic.CLUSTER),
    ConfigKey("log.retention.check.interval.ms", Type.LONG, 300_000, at_least(1)),
    ConfigKey("log.retention.hours", Type.INT, 168),
    ConfigKey("log.retention.minutes", Type.INT, None),
    ConfigKey("log.retention.ms", Type.LONG, None, dynamic=Dynamic.CLUSTER),
    ConfigKey("log.roll.hours", Type.INT, 168, at_least(1)),
    ConfigKey("log.roll.jitter.hours", Type.INT, 0, at_least(0)),
    ConfigKey("log.roll.jitter.ms", Type.LONG, None, dynamic=Dynamic.CLUSTER),
    ConfigKey("log.roll.ms", Type.LONG, None, dynamic=Dynamic.CLUSTER),
    ConfigKey("log.segment.bytes", Type.INT, 1_073_741_824, at_least(14), dynamic=Dynamic.CLUSTER),
    ConfigKey("log.segment.delete.delay.ms", Type.LONG, 60_000, at_least(0), dynamic=Dynamic.CLUSTER),
    ConfigKey("message.max.bytes", Type.INT, 1_048_588, at_least(0), dynamic=Dynamic.CLUSTER),
    ConfigKey("min.insync.replicas", Type.INT, 1, at_least(1), dynamic=Dynamic.CLUSTER),
    ConfigKey("num.recovery.threads.per.data.dir", Type.INT, 1, at_least(1), dynamic=Dynamic.CLUSTER),
)
