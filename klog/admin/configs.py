"""Describes and changes the configs of topics, of brokers, and of all brokers of a cluster.

Rules: KIP-133 (describe), KIP-226 (dynamic broker configs; the empty broker name is the cluster-wide
default), KIP-339 (set, delete, append or subtract a single config).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import StrEnum
from typing import Any, Final, NamedTuple, TypeAlias

from klog.admin.kafka_python import AdminClient
from klog.admin.topics import find_topics
from klog.client.errors import ClientError, RefusedError, UnknownTopicError

_Answer: TypeAlias = Any
_RESULT: Final = re.compile(r"\[Error (\d+)\] \w+: (.*)", re.DOTALL)


class EntityType(StrEnum):
    """The kinds of entities that have configs, by the names of `kafka-configs`."""

    TOPICS = "topics"
    BROKERS = "brokers"


class ConfigEntity(NamedTuple):
    """A topic, a broker, or the default of all brokers: (BROKERS, "")."""

    type: EntityType
    name: str

    def __str__(self) -> str:
        if self.type is EntityType.TOPICS:
            return f"topic {self.name}"
        return f"broker {self.name}" if self.name else "all brokers"


class Synonym(NamedTuple):
    """Another source of the value; the first of several takes precedence."""

    name: str
    value: str | None
    source: str


class ConfigEntry(NamedTuple):
    """A config with its current value, which is None if the config is sensitive."""

    name: str
    value: str | None
    source: str
    is_sensitive: bool
    is_read_only: bool
    synonyms: tuple[Synonym, ...]

    def is_set(self, entity_type: EntityType) -> bool:
        """Whether it was set for this topic, this broker or all brokers."""
        if entity_type is EntityType.TOPICS:
            return self.source == "DYNAMIC_TOPIC_CONFIG"
        return self.source in ("DYNAMIC_BROKER_CONFIG", "DYNAMIC_DEFAULT_BROKER_CONFIG")


class Operation(StrEnum):
    """Kafka's ways to change a config; APPEND and SUBTRACT change lists."""

    SET = "SET"
    DELETE = "DELETE"
    APPEND = "APPEND"
    SUBTRACT = "SUBTRACT"


class Change(NamedTuple):
    """A change of one config; `value` is None for DELETE."""

    name: str
    operation: Operation
    value: str | None = None


class _AnyBroker(str):
    """The empty name of the cluster-wide default, which converts to the id of the broker to ask.

    kafka-python sends a request about a broker to the broker whose id it makes of the name.
    """

    __slots__ = ("_broker_id",)
    _broker_id: int

    def __new__(cls, broker_id: int) -> _AnyBroker:
        made = super().__new__(cls, "")
        made._broker_id = broker_id
        return made

    def __int__(self) -> int:
        return self._broker_id


def _resource(admin: AdminClient, entity: ConfigEntity, configs: object = None) -> _Answer:
    from kafka.admin import ConfigResource

    if entity.type is EntityType.TOPICS:
        find_topics(admin, [entity.name])  # kafka-python shows a missing topic as one without configs
        return ConfigResource("TOPIC", entity.name, configs)
    brokers = sorted(broker["broker_id"] for broker in admin.describe_cluster()["brokers"])
    if not entity.name:
        return ConfigResource("BROKER", _AnyBroker(brokers[0]), configs)
    if entity.name not in map(str, brokers):
        raise UnknownTopicError(
            f"there is no broker {entity.name}", cure=f"the cluster has {', '.join(map(str, brokers))}"
        )
    return ConfigResource("BROKER", entity.name, configs)


def describe(admin: AdminClient, entity: ConfigEntity) -> list[ConfigEntry]:
    """All configs of an entity, sorted by name. Raises ClientError."""
    answer = admin.describe_configs([_resource(admin, entity)], include_synonyms=True, config_filter="all")
    (resources,) = answer.values()
    (configs,) = resources.values()
    return [_entry(name, config) for name, config in sorted(configs.items())]


def _entry(name: str, config: _Answer) -> ConfigEntry:
    return ConfigEntry(
        name,
        config["value"],
        config["config_source"],
        bool(config["is_sensitive"]),
        bool(config["read_only"]),
        tuple(
            Synonym(synonym["name"], synonym["value"], synonym["source"])
            for synonym in config.get("synonyms") or ()
        ),
    )


def alter(
    admin: AdminClient, entity: ConfigEntity, changes: Sequence[Change], *, validate_only: bool = False
) -> None:
    """Make all changes or none. Raises ClientError with the broker's message."""
    wanted = {change.name: (change.operation.value, change.value) for change in changes}
    answer = admin.alter_configs(
        [_resource(admin, entity, wanted)], validate_only=validate_only, raise_on_unknown=False
    )
    (resources,) = answer.values()
    (result,) = resources.values()
    if result == "OK":
        return
    if match := _RESULT.fullmatch(result):
        raise RefusedError(f"configs of {entity}", int(match[1]), message=match[2])
    raise ClientError(f"configs of {entity}: {result}")
