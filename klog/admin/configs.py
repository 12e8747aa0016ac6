"""Describes and changes the configs of topics, of brokers, and of all brokers of a cluster.

Rules: KIP-133 (describe), KIP-226 (dynamic broker configs; the empty broker name is the cluster-wide
default), KIP-339 (set, delete, append or subtract a single config).
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from klog.admin.topics import find_topics
from klog.client import admin
from klog.client.admin import Resource, ResourceType
from klog.client.cluster import Cluster
from klog.client.errors import UnknownTopicError
from klog.protocol.entity_fields import Entity

_SOURCES: Final = (
    "UNKNOWN",
    "DYNAMIC_TOPIC_CONFIG",
    "DYNAMIC_BROKER_CONFIG",
    "DYNAMIC_DEFAULT_BROKER_CONFIG",
    "STATIC_BROKER_CONFIG",
    "DEFAULT_CONFIG",
    "DYNAMIC_BROKER_LOGGER_CONFIG",
    "DYNAMIC_CLIENT_METRICS_CONFIG",
    "DYNAMIC_GROUP_CONFIG",
)
"""Kafka's names of the sources of a value, by their numbers on the wire."""


class EntityType(StrEnum):
    """The kinds of entities that have configs, by the names of `kafka-configs`."""

    TOPICS = "topics"
    BROKERS = "brokers"
    BROKER_LOGGERS = "broker-loggers"


class ConfigEntity(NamedTuple):
    """A topic, a broker, the loggers of a broker, or the default of all brokers: (BROKERS, "")."""

    type: EntityType
    name: str

    def __str__(self) -> str:
        if self.type is EntityType.TOPICS:
            return f"topic {self.name}"
        if self.type is EntityType.BROKER_LOGGERS:
            return f"loggers of broker {self.name}"
        return f"broker {self.name}" if self.name else "all brokers"


class Synonym(NamedTuple):
    """Another source of the value; the first of several takes precedence."""

    name: str
    value: str | None
    source: str


class ConfigEntry(NamedTuple):
    """A config with its current value, which is None if the config is sensitive.

    `documentation` is the broker's text about it, None if it was not asked for or the broker has none.
    """

    name: str
    value: str | None
    source: str
    is_sensitive: bool
    is_read_only: bool
    synonyms: tuple[Synonym, ...]
    documentation: str | None = None

    def is_set(self, entity_type: EntityType) -> bool:
        """Whether it was set for this topic, this broker or all brokers. Levels of loggers always are."""
        if entity_type is EntityType.BROKER_LOGGERS:
            return True
        if entity_type is EntityType.TOPICS:
            return self.source == "DYNAMIC_TOPIC_CONFIG"
        return self.source in ("DYNAMIC_BROKER_CONFIG", "DYNAMIC_DEFAULT_BROKER_CONFIG")


class Operation(StrEnum):
    """Kafka's ways to change a config, in the order of their numbers; APPEND and SUBTRACT change lists."""

    SET = "SET"
    DELETE = "DELETE"
    APPEND = "APPEND"
    SUBTRACT = "SUBTRACT"


class Change(NamedTuple):
    """A change of one config; `value` is None for DELETE."""

    name: str
    operation: Operation
    value: str | None = None


def _resource(cluster: Cluster, entity: ConfigEntity) -> Resource:
    """The entity on the wire. Raises UnknownTopicError if there is no such topic or broker."""
    if entity.type is EntityType.TOPICS:
        find_topics(cluster, [entity.name])
        return Resource(ResourceType.TOPIC, entity.name)
    brokers = [str(broker_id) for broker_id in admin.broker_ids(cluster)]
    if entity.name and entity.name not in brokers:
        raise UnknownTopicError(
            f"there is no broker {entity.name}", cure=f"the cluster has {', '.join(brokers)}"
        )
    loggers = entity.type is EntityType.BROKER_LOGGERS
    return Resource(ResourceType.BROKER_LOGGER if loggers else ResourceType.BROKER, entity.name)


def entities(cluster: Cluster, entity_type: EntityType) -> list[ConfigEntity]:
    """All entities of a type: topics, or brokers and their default. Raises ClientError, ChannelError."""
    if entity_type is EntityType.TOPICS:
        return [ConfigEntity(entity_type, topic.name) for topic in find_topics(cluster)]
    found = [ConfigEntity(entity_type, str(broker_id)) for broker_id in admin.broker_ids(cluster)]
    return [*found, ConfigEntity(entity_type, "")] if entity_type is EntityType.BROKERS else found


def describe(cluster: Cluster, entity: ConfigEntity, *, documentation: bool = False) -> list[ConfigEntry]:
    """All configs of an entity, sorted by name. Raises ClientError, ChannelError."""
    resource = _resource(cluster, entity)
    ((_, configs),) = admin.describe_configs(cluster, [resource], documentation=documentation)
    return [_entry(config) for config in sorted(configs, key=lambda config: str(config.name))]


def _entry(config: Entity) -> ConfigEntry:
    return ConfigEntry(
        config.name,
        config.value,
        _source(config.config_source),
        config.is_sensitive,
        config.read_only,
        tuple(Synonym(each.name, each.value, _source(each.source)) for each in config.synonyms),
        getattr(config, "documentation", None),  # since version 3
    )


def _source(number: int) -> str:
    return _SOURCES[number] if 0 <= number < len(_SOURCES) else _SOURCES[0]


def alter(
    cluster: Cluster, entity: ConfigEntity, changes: Sequence[Change], *, validate_only: bool = False
) -> None:
    """Make all changes or none. Raises ClientError with the broker's message, ChannelError."""
    wanted = [(change.name, list(Operation).index(change.operation), change.value) for change in changes]
    admin.alter_configs(cluster, _resource(cluster, entity), wanted, validate_only=validate_only)
