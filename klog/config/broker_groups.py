"""Broker configs of consumer groups, producers and transactions.

Names, types, defaults and limits of Kafka 3.9, in alphabetical order.
"""

from __future__ import annotations

from typing import Final

from klog.config.keys import INT32_MAX, ConfigKey, Dynamic, Type, all_of, at_least, one_of

KEYS: Final = (
    ConfigKey("client.quota.callback.class", Type.CLASS, None),
    ConfigKey(
        "group.consumer.assignors",
        Type.LIST,
        (
            "org.apache.kafka.coordinator.group.assignor.UniformAssignor",
            "org.apache.kafka.coordinator.group.assignor.RangeAssignor",
        ),
    ),
    ConfigKey("group.consumer.heartbeat.interval.ms", Type.INT, 5000, at_least(1)),
    ConfigKey("group.consumer.max.heartbeat.interval.ms", Type.INT, 15_000, at_least(1)),
    ConfigKey("group.consumer.max.session.timeout.ms", Type.INT, 60_000, at_least(1)),
    ConfigKey("group.consumer.max.size", Type.INT, INT32_MAX, at_least(1)),
    ConfigKey(
        "group.consumer.migration.policy",
        Type.STRING,
        "disabled",
        one_of("DISABLED", "DOWNGRADE", "UPGRADE", "BIDIRECTIONAL", ignore_case=True),
        internal=True,
    ),
    ConfigKey("group.consumer.min.heartbeat.interval.ms", Type.INT, 5000, at_least(1)),
    ConfigKey("group.consumer.min.session.timeout.ms", Type.INT, 45_000, at_least(1)),
    ConfigKey("group.consumer.session.timeout.ms", Type.INT, 45_000, at_least(1)),
    ConfigKey("group.coordinator.append.linger.ms", Type.INT, 10, at_least(0)),
    ConfigKey("group.coordinator.new.enable", Type.BOOLEAN, False, internal=True),
    ConfigKey(
        "group.coordinator.rebalance.protocols",
        Type.LIST,
        ("classic",),
        all_of("consumer", "classic", "share", "unknown"),
    ),
    ConfigKey("group.coordinator.threads", Type.INT, 1, at_least(1)),
    ConfigKey("group.initial.rebalance.delay.ms", Type.INT, 3000),
    ConfigKey("group.max.session.timeout.ms", Type.INT, 1_800_000),
    ConfigKey("group.max.size", Type.INT, INT32_MAX, at_least(1)),
    ConfigKey("group.min.session.timeout.ms", Type.INT, 6000),
    ConfigKey("offset.metadata.max.bytes", Type.INT, 4096),
    ConfigKey("offsets.commit.required.acks", Type.SHORT, -1),
    ConfigKey("offsets.commit.timeout.ms", Type.INT, 5000, at_least(1)),
    ConfigKey("offsets.load.buffer.size", Type.INT, 5_242_880, at_least(1)),
    ConfigKey("offsets.retention.check.interval.ms", Type.LONG, 600_000, at_least(1)),
    ConfigKey("offsets.retention.minutes", Type.INT, 10_080, at_least(1)),
    ConfigKey("offsets.topic.compression.codec", Type.INT, 0),
    ConfigKey("offsets.topic.num.partitions", Type.INT, 50, at_least(1)),
    ConfigKey("offsets.topic.replication.factor", Type.SHORT, 3, at_least(1)),
    ConfigKey("offsets.topic.segment.bytes", Type.INT, 104_857_600, at_least(1)),
    ConfigKey("producer.id.expiration.check.interval.ms", Type.INT, 600_000, at_least(1), internal=True),
    ConfigKey("producer.id.expiration.ms", Type.INT, 86_400_000, at_least(1), dynamic=Dynamic.CLUSTER),
    ConfigKey("transaction.abort.timed.out.transaction.cleanup.interval.ms", Type.INT, 10_000, at_least(1)),
    ConfigKey("transaction.max.timeout.ms", Type.INT, 900_000, at_least(1)),
    ConfigKey("transaction.partition.verification.enable", Type.BOOLEAN, True, dynamic=Dynamic.CLUSTER),
    ConfigKey("transaction.remove.expired.transaction.cleanup.interval.ms", Type.INT, 3_600_000, at_least(1)),
    ConfigKey("transaction.state.log.load.buffer.size", Type.INT, 5_242_880, at_least(1)),
    ConfigKey("transaction.state.log.min.isr", Type.INT, 2, at_least(1)),
    ConfigKey("transaction.state.log.num.partitions", Type.INT, 50, at_least(1)),
    ConfigKey("transaction.state.log.replication.factor", Type.SHORT, 3, at_least(1)),
    ConfigKey("transaction.state.log.segment.bytes", Type.INT, 104_857_600, at_least(1)),
    ConfigKey("transactional.id.expiration.ms", Type.INT, 604_800_000, at_least(1)),
)
