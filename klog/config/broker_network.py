"""Broker configs of listeners, connections, requests and client quotas.

Names, types, defaults and limits of Kafka 3.9, in alphabetical order.
"""

from __future__ import annotations

from typing import Final

from klog.config.keys import INT32_MAX, ConfigKey, Dynamic, Type, at_least

KEYS: Final = (
    ConfigKey("advertised.listeners", Type.STRING, None, dynamic=Dynamic.PER_BROKER),
    ConfigKey("background.threads", Type.INT, 10, at_least(1), dynamic=Dynamic.CLUSTER),
    ConfigKey("connections.max.idle.ms", Type.LONG, 600_000),
    ConfigKey("control.plane.listener.name", Type.STRING, None),
    ConfigKey("controller.quota.window.num", Type.INT, 11, at_least(1)),
    ConfigKey("controller.quota.window.size.seconds", Type.INT, 1, at_least(1)),
    ConfigKey("fetch.max.bytes", Type.INT, 57_671_680, at_least(1024)),
    ConfigKey("fetch.purgatory.purge.interval.requests", Type.INT, 1000),
    ConfigKey("inter.broker.listener.name", Type.STRING, None),
    ConfigKey(
        "listener.security.protocol.map",
        Type.STRING,
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        dynamic=Dynamic.PER_BROKER,
    ),
    ConfigKey("listeners", Type.STRING, "PLAINTEXT://:9092", dynamic=Dynamic.PER_BROKER),
    ConfigKey("max.connection.creation.rate", Type.INT, INT32_MAX, at_least(0), dynamic=Dynamic.CLUSTER),
    ConfigKey("max.connections", Type.INT, INT32_MAX, at_least(0), dynamic=Dynamic.CLUSTER),
    ConfigKey("max.connections.per.ip", Type.INT, INT32_MAX, at_least(0), dynamic=Dynamic.CLUSTER),
    ConfigKey("max.connections.per.ip.overrides", Type.STRING, "", dynamic=Dynamic.CLUSTER),
    ConfigKey("max.incremental.fetch.session.cache.slots", Type.INT, 1000, at_least(0)),
    ConfigKey("max.request.partition.size.limit", Type.INT, 2000, at_least(1)),
    ConfigKey("num.io.threads", Type.INT, 8, at_least(1), dynamic=Dynamic.CLUSTER),
    ConfigKey("num.network.threads", Type.INT, 3, at_least(1), dynamic=Dynamic.CLUSTER),
    ConfigKey("producer.purgatory.purge.interval.requests", Type.INT, 1000),
    ConfigKey("queued.max.request.bytes", Type.LONG, -1),
    ConfigKey("queued.max.requests", Type.INT, 500, at_least(1)),
    ConfigKey("quota.window.num", Type.INT, 11, at_least(1)),
    ConfigKey("quota.window.size.seconds", Type.INT, 1, at_least(1)),
    ConfigKey("request.timeout.ms", Type.INT, 30_000),
    ConfigKey("socket.connection.setup.timeout.max.ms", Type.LONG, 30_000),
    ConfigKey("socket.connection.setup.timeout.ms", Type.LONG, 10_000),
    ConfigKey("socket.listen.backlog.size", Type.INT, 50, at_least(1)),
    ConfigKey("socket.receive.buffer.bytes", Type.INT, 102_400),
    ConfigKey("socket.request.max.bytes", Type.INT, 104_857_600, at_least(1)),
    ConfigKey("socket.send.buffer.bytes", Type.INT, 102_400),
)
