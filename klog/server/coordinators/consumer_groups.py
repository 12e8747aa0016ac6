"""Consumer groups (KIP-848) inside a broker: their configs, and the topics that they see."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from klog.config.broker import BrokerConfig
from klog.config.group import HEARTBEAT_INTERVAL, SESSION_TIMEOUT
from klog.config.keys import ConfigError
from klog.coordinator.groups.consumer.assignors import ASSIGNORS
from klog.coordinator.groups.consumer.topics import Topics
from klog.coordinator.groups.consumer.values import ConsumerGroupSettings
from klog.metadata.cache import ClusterSnapshot
from klog.protocol.apis import ApiKey

PROTOCOLS: Final = "group.coordinator.rebalance.protocols"
POLICY: Final = "group.consumer.migration.policy"
_ASSIGNORS: Final = "group.consumer.assignors"
CLASSIC: Final = "classic"
CONSUMER: Final = "consumer"
# What is not announced if the broker does not accept the protocol.
APIS: Final = frozenset({ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.CONSUMER_GROUP_DESCRIBE})

_ASSIGNOR_CLASSES: Final = {
    "org.apache.kafka.coordinator.group.assignor.UniformAssignor": "uniform",
    "org.apache.kafka.coordinator.group.assignor.RangeAssignor": "range",
}
_UPGRADES: Final = ("upgrade", "bidirectional")
_DOWNGRADES: Final = ("downgrade", "bidirectional")


def accepts_consumer_protocol(config: BrokerConfig) -> bool:
    """Whether the broker accepts members of the consumer protocol.

    If nothing is configured, a broker with the embedded store does, as Kafka 4. One with ZooKeeper does not:
    the other brokers of its cluster may be Kafka 3.9, which could not go on with such groups. Raises
    `ConfigError` if the classic protocol is left out, as in Kafka.
    """
    protocols = config.explicit(PROTOCOLS)
    if isinstance(protocols, tuple):
        if CLASSIC not in protocols:
            raise ConfigError(PROTOCOLS, ",".join(map(str, protocols)), "it must have classic")
        return CONSUMER in protocols
    return not config.text("zookeeper.connect")


def consumer_group_settings(config: BrokerConfig) -> ConsumerGroupSettings:
    """The configs of consumer groups. By default groups change between the protocols if both are accepted."""
    policy = config.text(POLICY) if config.explicit(POLICY) is not None else None
    if policy is None:
        policy = "bidirectional" if accepts_consumer_protocol(config) else "disabled"
    return ConsumerGroupSettings(
        session_timeout_ms=config.number("group.consumer.session.timeout.ms"),
        heartbeat_interval_ms=config.number("group.consumer.heartbeat.interval.ms"),
        max_size=config.number("group.consumer.max.size"),
        assignors=_assignors(config),
        may_upgrade=policy.lower() in _UPGRADES,
        may_downgrade=policy.lower() in _DOWNGRADES,
    )


def settings_of_groups(
    config: BrokerConfig, overrides: Callable[[str], Mapping[str, int]]
) -> Callable[[str], ConsumerGroupSettings]:
    """Gives the settings of a group: the broker's, but for what the group overrides now."""
    of_broker = consumer_group_settings(config)

    def settings(group_id: str) -> ConsumerGroupSettings:
        own = overrides(group_id)
        if not own:
            return of_broker
        return replace(
            of_broker,
            session_timeout_ms=own.get(SESSION_TIMEOUT, of_broker.session_timeout_ms),
            heartbeat_interval_ms=own.get(HEARTBEAT_INTERVAL, of_broker.heartbeat_interval_ms),
        )

    return settings


def _assignors(config: BrokerConfig) -> tuple[str, ...]:
    """The names of the assignors: Kafka's classes, or the names that Kafka 4 takes instead."""
    given = config[_ASSIGNORS]
    listed = given if isinstance(given, tuple) else ()
    names = [_ASSIGNOR_CLASSES.get(str(name), str(name)) for name in listed]
    unknown = [name for name in names if name not in ASSIGNORS]
    if unknown or not names:
        raise ConfigError(_ASSIGNORS, config.text(_ASSIGNORS) or "", f"klog has {', '.join(ASSIGNORS)}")
    return tuple(dict.fromkeys(names))


class LatestTopics:
    """The topics of the cluster's latest snapshot: the same object until there is another snapshot."""

    def __init__(self, snapshot: Callable[[], ClusterSnapshot]) -> None:
        self._snapshot = snapshot
        self._latest = (ClusterSnapshot(), Topics(ClusterSnapshot()))

    def __call__(self) -> Topics:
        snapshot = self._snapshot()
        known, topics = self._latest
        if known is not snapshot:
            topics = Topics(snapshot)
            self._latest = snapshot, topics
        return topics
