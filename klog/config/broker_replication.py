"""Broker configs of replication and leadership.

Names, types, defaults and limits of Kafka 3.9, in alphabetical order.
"""

from __future__ import annotations

from typing import Final

from klog.config.keys import ConfigKey, Dynamic, Type, at_least

KEYS: Final = (
    ConfigKey("alter.log.dirs.replication.quota.window.num", Type.INT, 11, at_least(1)),
    ConfigKey("alter.log.dirs.replication.quota.window.size.seconds", Type.INT, 1, at_least(1)),
    ConfigKey("auto.leader.rebalance.enable", Type.BOOLEAN, True),
    ConfigKey("leader.imbalance.check.interval.seconds", Type.LONG, 300, at_least(1)),
    ConfigKey("leader.imbalance.per.broker.percentage", Type.INT, 10),
    ConfigKey("num.replica.alter.log.dirs.threads", Type.INT, None),
    ConfigKey("num.replica.fetchers", Type.INT, 1, dynamic=Dynamic.CLUSTER),
    ConfigKey("replica.fetch.backoff.ms", Type.INT, 1000, at_least(0)),
    ConfigKey("replica.fetch.max.bytes", Type.INT, 1_048_576, at_least(0)),
    ConfigKey("replica.fetch.min.bytes", Type.INT, 1),
    ConfigKey("replica.fetch.response.max.bytes", Type.INT, 10_485_760, at_least(0)),
    ConfigKey("replica.fetch.wait.max.ms", Type.INT, 500),
    ConfigKey("replica.high.watermark.checkpoint.interval.ms", Type.LONG, 5000),
    ConfigKey("replica.lag.time.max.ms", Type.LONG, 30_000),
    ConfigKey("replica.selector.class", Type.STRING, None),
    ConfigKey("replica.socket.receive.buffer.bytes", Type.INT, 65_536),
    ConfigKey("replica.socket.timeout.ms", Type.INT, 30_000),
    ConfigKey("replication.quota.window.num", Type.INT, 11, at_least(1)),
    ConfigKey("replication.quota.window.size.seconds", Type.INT, 1, at_least(1)),
    ConfigKey("unclean.leader.election.enable", Type.BOOLEAN, False, dynamic=Dynamic.CLUSTER),
)
