"""Broker configs of identity, ZooKeeper, topics and the controller.

Names, types, defaults and limits of Kafka 3.9, in alphabetical order.
"""

from __future__ import annotations

from typing import Final

from klog.config.keys import ConfigKey, Type, at_least, kafka_version

KEYS: Final = (
    ConfigKey("alter.config.policy.class.name", Type.CLASS, None),
    ConfigKey("auto.create.topics.enable", Type.BOOLEAN, True),
    ConfigKey("broker.id", Type.INT, -1),
    ConfigKey("broker.id.generation.enable", Type.BOOLEAN, True),
    ConfigKey("broker.rack", Type.STRING, None),
    ConfigKey("controlled.shutdown.enable", Type.BOOLEAN, True),
    ConfigKey("controlled.shutdown.max.retries", Type.INT, 3),
    ConfigKey("controlled.shutdown.retry.backoff.ms", Type.LONG, 5000),
    ConfigKey("controller.socket.timeout.ms", Type.INT, 30_000),
    ConfigKey("create.topic.policy.class.name", Type.CLASS, None),
    ConfigKey("default.replication.factor", Type.INT, 1),
    ConfigKey("delete.topic.enable", Type.BOOLEAN, True),
    ConfigKey("inter.broker.protocol.version", Type.STRING, "3.9-IV0", kafka_version),
    ConfigKey("num.partitions", Type.INT, 1, at_least(1)),
    ConfigKey("reserved.broker.max.id", Type.INT, 1000, at_least(0)),
    ConfigKey("zookeeper.clientCnxnSocket", Type.STRING, None),
    ConfigKey("zookeeper.connect", Type.STRING, None),
    ConfigKey("zookeeper.connection.timeout.ms", Type.INT, None),
    ConfigKey("zookeeper.max.in.flight.requests", Type.INT, 10, at_least(1)),
    ConfigKey("zookeeper.session.timeout.ms", Type.INT, 18_000),
    ConfigKey("zookeeper.set.acl", Type.BOOLEAN, False),
)
