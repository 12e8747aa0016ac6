"""Describes and changes the configs of topics, brokers, groups and client metrics.

Rules: KIP-133 (describe), KIP-226 (dynamic broker configs; the empty broker name is the cluster-wide
default), KIP-714 (client metrics), KIP-848 (groups), KIP-339 (set, delete, append or
subtract a single config).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from types import MappingProxyType
from typing import Final, NamedTuple

from klog.admin.topics import find_topics
from klog.client import admin
from klog.client.admin import Resource, ResourceType
from klog.client.asking import broker_ids
from klog.client.cluster import Cluster
from klog.client.errors import UnknownTopicError
from klog.client.groups import list_groups
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
    GROUPS = "groups"
    CLIENT_METRICS = "client-metrics"


SOURCES_OF_ENTITIES: Final[Mapping[EntityType, str]] = MappingProxyType(
    {
        EntityType.TOPICS: "DYNAMIC_TOPIC_CONFIG",
        EntityType.BROKERS: "DYNAMIC_BROKER_CONFIG",
        EntityType.GROUPS: "DYNAMIC_GROUP_CONFIG",
        EntityType.CLIENT_METRICS: "DYNAMIC_CLIENT_METRICS_CONFIG",
    }
)
"""The source of what was set for one entity of a type."""
_NAMES_OF_ONE: Final[Mapping[EntityType, str]] = {
    EntityType.TOPICS: "topic",
    EntityType.BROKERS: "broker",
    EntityType.BROKER_LOGGERS: "loggers of broker",
    EntityType.GROUPS: "group",
    EntityType.CLIENT_METRICS: "client metrics",
}

_ON_ANY_BROKER: Final = {
    EntityType.GROUPS: ResourceType.GROUP,
    EntityType.CLIENT_METRICS: ResourceType.CLIENT_METRICS,
}


class ConfigEntity(NamedTuple):
    """What has configs; (BROKERS, "") is the default of all brokers."""

    type: EntityType
    name: str

    def __str__(self) -> str:
        if self.type is EntityType.BROKERS and not self.name:
            return "all brokers"
        return f"{_NAMES_OF_ONE[self.type]} {self.name}"


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
        """Whether it was set for this entity or for all brokers. Levels of loggers always are."""
        if entity_type is EntityType.BROKER_LOGGERS:
            return True
        if entity_type is EntityType.BROKERS and self.source == "DYNAMIC_DEFAULT_BROKER_CONFIG":
            return True
        return self.source == SOURCES_OF_ENTITIES[entity_type]


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
    if kind := _ON_ANY_BROKER.get(entity.type):
        return Resource(kind, entity.name)
    brokers = [str(broker_id) for broker_id in broker_ids(cluster)]
    if entity.name and entity.name not in brokers:
        raise UnknownTopicError(
            f"there is no broker {entity.name}", cure=f"the cluster has {', '.join(brokers)}"
        )
    loggers = entity.type is EntityType.BROKER_LOGGERS
    return Resource(ResourceType.BROKER_LOGGER if loggers else ResourceType.BROKER, entity.name)


def entities(cluster: Cluster, entity_type: EntityType) -> list[ConfigEntity]:
    """All entities of a type; groups are those that exist or have configs.

    Raises ClientError, ChannelError.
    """
    if kind := _ON_ANY_BROKER.get(entity_type):
        names = set(admin.list_config_resources(cluster, kind))
        if entity_type is EntityType.GROUPS:
            names |= {each.group_id for each in list_groups(cluster)}
        return [ConfigEntity(entity_type, name) for name in sorted(names)]
    if entity_type is EntityType.TOPICS:
        return [ConfigEntity(entity_type, topic.name) for topic in find_topics(cluster)]
    found = [ConfigEntity(entity_type, str(broker_id)) for broker_id in broker_ids(cluster)]
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
