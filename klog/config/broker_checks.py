"""Checks the configs of one broker together, beyond the limits of each.

Rules: Kafka 3.9's `KafkaConfig.validateValues` and `GroupCoordinatorConfig`. Listeners are checked where they
are read. KRaft's configs have no effect here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from klog.config.broker import BrokerConfig
from klog.config.broker_protection import require_enforced, unenforced
from klog.config.kafka_versions import is_before, magic_of, release_of
from klog.config.keys import ConfigError

_MS_PER_MINUTE: Final = 60_000
_BUFFER_OF_ONE_CLEANER_BYTES: Final = 1024 * 1024
_CODECS: Final = range(5)
_GENERATED: Final = -1
# In each pair, the first must not be below the second.
_NOT_BELOW: Final = (
    *(
        (f"{group}.{larger}{time}", f"{group}.{smaller}{time}")
        for group in ("group.consumer", "group.share")
        for time in ("heartbeat.interval.ms", "session.timeout.ms")
        for larger, smaller in (("max.", "min."), ("", "min."), ("max.", ""))
    ),
    ("group.share.record.lock.duration.ms", "group.share.min.record.lock.duration.ms"),
    ("group.share.max.record.lock.duration.ms", "group.share.record.lock.duration.ms"),
    ("replica.socket.timeout.ms", "replica.fetch.wait.max.ms"),
    ("replica.lag.time.max.ms", "replica.fetch.wait.max.ms"),
)
_RACK_AWARE: Final = (
    "org.apache.kafka.common.replica.RackAwareReplicaSelector",
    "RackAwareReplicaSelector",
)
_PROTOCOL: Final = "inter.broker.protocol.version"
_REQUESTS_OF: Final = "3.4"
# Configs that a user relies on and klog does not support, with what happens instead.
_WITHOUT_EFFECT: Final = {
    "control.plane.listener.name": "the controller's requests come to the listener between brokers",
    "process.roles": "there is no KRaft here; klog adopt takes the metadata of a KRaft node over",
    "remote.log.storage.system.enable": "all segments stay in log.dirs",
}


def check_together(config: BrokerConfig) -> None:
    """Checks whether a broker can have these configs. Raises `ConfigError`."""
    for check in _CHECKS:
        check(config)


def without_effect(config: BrokerConfig) -> dict[str, str]:
    """The configs that were set and have no effect although a user may
    rely on them, each with what happens instead.
    """
    found = unenforced(config)
    found |= {name: what for name, what in _WITHOUT_EFFECT.items() if config.explicit(name)}
    protocol = config.text(_PROTOCOL) or ""
    if is_before(protocol, _REQUESTS_OF):
        found[_PROTOCOL] = f"topics get ids, and requests between brokers are those of {_REQUESTS_OF}"
    return found


def broker_id(config: BrokerConfig) -> int:
    """`broker.id` or its synonym `node.id`; -1 if it is to be generated. Raises `ConfigError`."""
    name = "broker.id"
    found, node = config.number(name), config.explicit("node.id")
    if config.explicit(name) is None and isinstance(node, int):
        name, found = "node.id", node
    elif node is not None and node != found:
        raise ConfigError("node.id", str(node), f"it must be the same as broker.id, which is {found}")
    if not config.flag("broker.id.generation.enable"):
        if found < 0:
            raise ConfigError(name, str(found), "broker.id must be set, since ids are not generated")
    elif not _GENERATED <= found <= config.number("reserved.broker.max.id"):
        largest = config.number("reserved.broker.max.id")
        raise ConfigError(name, str(found), f"it must be -1 to {largest} (reserved.broker.max.id)")
    return found


def _first_set(config: BrokerConfig, units: Sequence[tuple[str, int]]) -> tuple[str, int]:
    """The effective one of configs that mean the same in other units, and its value in ms."""
    for name, unit_ms in units:
        if config[name] is not None:
            return name, config.number(name) * unit_ms
    raise ConfigError(units[-1][0], "None", "it must be set")


def _log_times(config: BrokerConfig) -> None:
    retention = (
        ("log.retention.ms", 1),
        ("log.retention.minutes", _MS_PER_MINUTE),
        ("log.retention.hours", 60 * _MS_PER_MINUTE),
    )
    name, value_ms = _first_set(config, retention)
    if value_ms == 0:
        raise ConfigError(name, "0", "it must be unlimited (-1), or at least 1")
    name, value_ms = _first_set(config, (("log.roll.ms", 1), ("log.roll.hours", 60 * _MS_PER_MINUTE)))
    if value_ms < 1:
        raise ConfigError(name, str(config[name]), "it must be at least 1")
    jitter = ("log.roll.jitter.ms", 1), ("log.roll.jitter.hours", 60 * _MS_PER_MINUTE)
    name, value_ms = _first_set(config, jitter)
    if value_ms < 0:
        raise ConfigError(name, str(config[name]), "it must be at least 0")


def _cleaner(config: BrokerConfig) -> None:
    threads = config.number("log.cleaner.threads")
    if threads == 0:
        raise ConfigError("log.cleaner.threads", "0", "it must be at least 1")
    size_bytes = config.number("log.cleaner.dedupe.buffer.size")
    if size_bytes // threads <= _BUFFER_OF_ONE_CLEANER_BYTES:
        raise ConfigError(
            "log.cleaner.dedupe.buffer.size",
            str(size_bytes),
            "it must be above 1 MiB for each cleaner thread",
        )


def _intervals(config: BrokerConfig) -> None:
    for larger, smaller in _NOT_BELOW:
        if config.number(larger) < config.number(smaller):
            raise ConfigError(
                larger,
                str(config.number(larger)),
                f"it may not be below {smaller}, which is {config.number(smaller)}",
            )


def _idle_connections(config: BrokerConfig) -> None:
    name, delay = "connections.max.idle.ms", "connection.failed.authentication.delay.ms"
    found, delay_ms = config.number(name), config.number(delay)
    if 0 <= found <= delay_ms:
        raise ConfigError(name, str(found), f"it must be above {delay}, which is {delay_ms}, or negative")


def _formats(config: BrokerConfig) -> None:
    name, protocol = "log.message.format.version", _PROTOCOL
    found, limit = (release_of(config.text(each) or "") for each in (name, protocol))
    if found is not None and limit is not None and magic_of(found) > magic_of(limit):
        raise ConfigError(name, found, f"{protocol} {limit} has an older record format")


def _offsets_topic(config: BrokerConfig) -> None:
    name, copies = "offsets.commit.required.acks", config.number("offsets.topic.replication.factor")
    acks = config.number(name)
    if not -1 <= acks <= copies:
        raise ConfigError(name, str(acks), f"it must be -1 to {copies} (offsets.topic.replication.factor)")
    name = "offsets.topic.compression.codec"
    codec = config.number(name)
    if codec not in _CODECS:
        raise ConfigError(name, str(codec), "Unknown compression type id")


def _replica_selector(config: BrokerConfig) -> None:
    name = "replica.selector.class"
    found = config.text(name)
    if found and found not in _RACK_AWARE:
        raise ConfigError(
            name,
            found,
            "Java classes cannot choose replicas here",
            cure=f"remove it, or name {_RACK_AWARE[0]}, which klog has of its own",
        )


_CHECKS: Final[Sequence[Callable[[BrokerConfig], object]]] = (
    broker_id,
    _log_times,
    _cleaner,
    _intervals,
    _idle_connections,
    _formats,
    _offsets_topic,
    _replica_selector,
    require_enforced,
)
