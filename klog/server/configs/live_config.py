"""The configs in force, the broker's, each topic's and each group's; replaced when something changes.

Readers hold no lock. `handlers.config_changes` reads the changes from the metadata store.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping

from klog.config.broker import BrokerConfig
from klog.config.broker_topics import topic_config_on
from klog.config.group import parse_group_overrides
from klog.config.keys import ConfigError
from klog.config.topic import KEYS_BY_NAME, TopicConfig
from klog.formats.errors import UsageError


class LiveConfig:
    """The broker's configs and the overrides of topics and groups. Safe for threads."""

    def __init__(self, broker: BrokerConfig, topics: Mapping[str, Mapping[str, str]]) -> None:
        self._broker = broker
        self._overrides = {topic: dict(texts) for topic, texts in topics.items()}
        self._typed: dict[str, TopicConfig] = {}
        self._groups: dict[str, Mapping[str, int]] = {}
        self._changing = threading.Lock()

    def broker(self) -> BrokerConfig:
        """The broker's configs, dynamic ones included."""
        return self._broker

    def overrides(self, topic: str) -> Mapping[str, str]:
        """The configs that a topic overrides, as text."""
        return self._overrides.get(topic, {})

    def topic(self, topic: str) -> TopicConfig:
        """The configs of a topic's logs."""
        found = self._typed.get(topic)
        if found is None:
            found = self._read(self._overrides.get(topic, {}))
            with self._changing:
                self._typed[topic] = found
        return found

    def _read(self, overrides: Mapping[str, str]) -> TopicConfig:
        # Other names are those of a newer Kafka.
        known = {name: text for name, text in overrides.items() if name in KEYS_BY_NAME}
        return topic_config_on(self._broker, known)

    def set_topic(self, topic: str, overrides: Mapping[str, str]) -> None:
        """Set a topic's overrides (empty: it has none, or is deleted).

        Raises `UsageError` if one has an invalid value; then nothing has changed.
        """
        try:
            self._read(overrides)
        except ConfigError as error:
            raise UsageError(f"The configs of topic {topic} cannot be used: {error.what}") from error
        with self._changing:
            if overrides:
                self._overrides[topic] = dict(overrides)
            else:
                self._overrides.pop(topic, None)
            self._typed.pop(topic, None)

    def group(self, group_id: str) -> Mapping[str, int]:
        """The configs that a group overrides, in ms."""
        return self._groups.get(group_id, {})

    def set_group(self, group_id: str, overrides: Mapping[str, str]) -> None:
        """Set a group's overrides (empty: it has none).

        Raises `UsageError` if one is unknown or has an invalid value; then nothing has changed.
        """
        values = parse_group_overrides(overrides)
        with self._changing:
            if values:
                self._groups[group_id] = values
            else:
                self._groups.pop(group_id, None)

    def set_broker(self, config: BrokerConfig) -> None:
        """Set the broker's configs; the topics' defaults follow them."""
        with self._changing:
            self._broker = config
            self._typed = {}
