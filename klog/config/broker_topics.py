"""The topic configs on a broker: a topic's overrides over the broker's defaults.

Rules: Kafka's `KafkaConfig.extractLogConfigMap` and `LogConfig.validate`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from klog.config.broker import BrokerConfig
from klog.config.keys import ConfigError, Value
from klog.config.topic import TopicConfig, check_topic_values, defaults, parse_overrides, topic_config
from klog.formats.constants import INT64_MAX
from klog.formats.errors import UsageError

_FORMAT: Final = "message.format.version"
_ONLY_IN_KRAFT: Final = ("remote.log.copy.disable", "remote.log.delete.on.disable")
_DIFFERENCE: Final = "message.timestamp.difference.max.ms"
_BEFORE_AND_AFTER: Final = ("message.timestamp.before.max.ms", "message.timestamp.after.max.ms")


def topic_defaults(config: BrokerConfig) -> dict[str, Value]:
    """The values of all topic configs for a topic without overrides on this broker."""
    values = defaults(config.__getitem__)
    # Since inter.broker.protocol.version 3.0 the configured format version is ignored.
    values[_FORMAT] = "3.0-IV1"
    for name in _BEFORE_AND_AFTER:
        # The older config has an effect only if the newer one is not set (KIP-937).
        if values[name] == INT64_MAX:
            values[name] = values[_DIFFERENCE]
    return values


def topic_values(config: BrokerConfig, overrides: Mapping[str, str]) -> dict[str, Value]:
    """The values of all topic configs for a topic with these overrides.

    Raises `ConfigError` (bad value), `UsageError` (unknown name).
    """
    return topic_defaults(config) | parse_overrides(overrides)


def topic_config_on(config: BrokerConfig, overrides: Mapping[str, str]) -> TopicConfig:
    """The typed configs for the logs of a topic on this broker. Raises the errors of `topic_values`."""
    values = topic_values(config, overrides)
    for name in _BEFORE_AND_AFTER:
        if values[name] == INT64_MAX:
            values[name] = values[_DIFFERENCE]
    return topic_config(values)


def check_topic_overrides(config: BrokerConfig, overrides: Mapping[str, str]) -> None:
    """Checks whether a topic of a ZooKeeper cluster may have these configs.

    Raises `ConfigError`, `UsageError`.
    """
    values = topic_values(config, overrides)
    check_topic_values(values)
    for name in _ONLY_IN_KRAFT:
        if values[name] is True:
            raise UsageError(f"{name} cannot be set in a cluster that keeps its metadata in ZooKeeper's tree")
    if values["remote.storage.enable"] is True:
        raise ConfigError("remote.storage.enable", "true", "tiered storage is not enabled on the broker")
