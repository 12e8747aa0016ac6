"""The configs of single groups: of those that the broker's coordinator manages by KIP-848.

Rules: Kafka 4.1's `GroupConfig`. Its configs of share groups are unknown here, because klog has none.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, cast

from klog.config.broker import BrokerConfig
from klog.config.keys import ConfigError, ConfigKey, Type, at_least
from klog.formats.errors import UsageError

HEARTBEAT_INTERVAL: Final = "consumer.heartbeat.interval.ms"
SESSION_TIMEOUT: Final = "consumer.session.timeout.ms"

KEYS: Final = (
    ConfigKey(HEARTBEAT_INTERVAL, Type.INT, 5000, at_least(1)),
    ConfigKey(SESSION_TIMEOUT, Type.INT, 45_000, at_least(1)),
)
KEYS_BY_NAME: Final[Mapping[str, ConfigKey]] = MappingProxyType({key.name: key for key in KEYS})


def broker_default(name: str) -> str:
    """The broker config that a group has if it does not override this config."""
    return f"group.{name}"


def may_have_group_configs(config: BrokerConfig) -> bool:
    """Whether groups of this broker can have configs. Kafka's tree in ZooKeeper has no place for them."""
    return not config.text("zookeeper.connect")


def parse_group_overrides(overrides: Mapping[str, str]) -> dict[str, int]:
    """The values, in ms, that a group overrides. Raises `ConfigError` (bad value), `UsageError` (unknown)."""
    values: dict[str, int] = {}
    for name, text in overrides.items():
        key = KEYS_BY_NAME.get(name)
        if key is None:
            raise UsageError(f"Unknown group config name: {name}")
        value = key.parse(text)
        values[name] = cast("int", value)
    return values


def group_values(config: BrokerConfig, overrides: Mapping[str, str]) -> dict[str, int]:
    """The values of all configs of a group, in ms. Raises the errors of `parse_group_overrides`."""
    defaults = {key.name: config.number(broker_default(key.name)) for key in KEYS}
    return defaults | parse_group_overrides(overrides)


def check_group_overrides(config: BrokerConfig, overrides: Mapping[str, str]) -> None:
    """Checks whether a group may have these configs. Raises `ConfigError`, `UsageError`."""
    values = group_values(config, overrides)
    for name, value in values.items():
        least, most = (f"group.consumer.{limit}.{name.removeprefix('consumer.')}" for limit in ("min", "max"))
        if value < config.number(least):
            raise ConfigError(name, str(value), f"it must be at least {least} ({config.number(least)})")
        if value > config.number(most):
            raise ConfigError(name, str(value), f"it must be at most {most} ({config.number(most)})")
    if values[SESSION_TIMEOUT] <= values[HEARTBEAT_INTERVAL]:
        raise ConfigError(
            SESSION_TIMEOUT,
            str(values[SESSION_TIMEOUT]),
            f"it must be greater than {HEARTBEAT_INTERVAL} ({values[HEARTBEAT_INTERVAL]})",
        )
