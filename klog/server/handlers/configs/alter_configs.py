"""AlterConfigs and IncrementalAlterConfigs: configs of topics, groups, this broker and all by default.

Rules: Kafka's ConfigAdminManager (what is checked first) and ZkAdminManager (what is written); KIP-133,
KIP-226, KIP-339, KIP-412. A note in the tree tells every broker about the change.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple

from klog.client.admin import ResourceType
from klog.config.broker import KEYS_BY_NAME as BROKER_KEYS
from klog.config.broker import BrokerConfig
from klog.config.broker_topics import check_topic_overrides
from klog.config.dynamic import applicable, check_dynamic_configs, decoded, encoded
from klog.config.group import KEYS_BY_NAME as GROUP_KEYS
from klog.config.group import check_group_overrides, may_have_group_configs
from klog.config.keys import ConfigError, ConfigKey, Type, text_of
from klog.config.topic import KEYS_BY_NAME as TOPIC_KEYS
from klog.formats.errors import KlogError, UsageError
from klog.formats.names import is_legal_topic
from klog.metadata.cache import MetadataCache
from klog.metadata.configs import change_config, read_config
from klog.metadata.paths import DEFAULT_ENTITY
from klog.metadata.store import MetadataStore
from klog.metadata.topics import read_topics, validate_topic_name
from klog.metadata.znodes import sanitize
from klog.protocol.apis import ApiKey
from klog.protocol.entity_fields import Entity
from klog.protocol.error_codes import ErrorCode
from klog.server.handlers.answers import entity_of, send_answer
from klog.server.handlers.configs.describe_configs import check_broker_id
from klog.server.handlers.configs.loggers import Loggers
from klog.server.handlers.refusals import RefusedError, error_fields, refusal_of
from klog.server.network.request import Request

# Makes the new configs of a resource from the present ones.
Change = Callable[[Mapping[str, str]], dict[str, str]]


@dataclass(frozen=True, slots=True)
class AlterConfigsHandler:
    """Answers requests of both kinds. `check` raises `UsageError` for configs that would stop the broker."""

    broker_id: int
    store: MetadataStore
    cache: MetadataCache
    config: Callable[[], BrokerConfig]
    check: Callable[[BrokerConfig], None]
    loggers: Loggers

    def handle(self, request: Request) -> None:
        """Check and write the changes, resource by resource."""
        wanted = entity_of(request)
        incremental = request.api_key == ApiKey.INCREMENTAL_ALTER_CONFIGS
        times = Counter((each.resource_type, each.resource_name) for each in wanted.resources)
        responses = []
        for resource in wanted.resources:
            error: RefusedError | None = None
            try:
                if times[resource.resource_type, resource.resource_name] > 1:
                    raise RefusedError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
                self._alter(resource, incremental=incremental, only_check=wanted.validate_only)
            except KlogError as refused:
                error = refusal_of(refused)
            responses.append(
                {
                    **error_fields(error),
                    "resource_type": resource.resource_type,
                    "resource_name": resource.resource_name,
                }
            )
        send_answer(request, responses=responses)

    def _alter(self, resource: Entity, *, incremental: bool, only_check: bool) -> None:
        """Raises `KlogError`."""
        _check_keys(resource, incremental=incremental)
        name = resource.resource_name
        match resource.resource_type:
            case ResourceType.TOPIC:
                change = _change(resource, incremental=incremental, keys=TOPIC_KEYS)
                self._alter_topic(name, change, only_check=only_check)
            case ResourceType.GROUP if may_have_group_configs(self.config()):
                change = _change(resource, incremental=incremental, keys=GROUP_KEYS)
                self._alter_group(name, change, only_check=only_check)
            case ResourceType.BROKER:
                change = _change(resource, incremental=incremental, keys=BROKER_KEYS)
                self._alter_broker(name, change, only_check=only_check)
            case ResourceType.BROKER_LOGGER if incremental:
                self._alter_loggers(name, resource, only_check=only_check)
            case ResourceType.CLIENT_METRICS | ResourceType.GROUP as kind:
                raise RefusedError(
                    ErrorCode.INVALID_REQUEST,
                    "AlterConfigs is only supported for topics and brokers, but resource type is"
                    f" {ResourceType(kind).name}",
                )
            case unknown:
                raise RefusedError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {unknown}")

    def _alter_topic(self, topic: str, change: Change, *, only_check: bool) -> None:
        if not topic:
            raise RefusedError(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
        path = f"topics/{sanitize(topic)}"
        # An illegal topic name must not become part of a path in the tree.
        configs = change(read_config(self.store, path) if is_legal_topic(topic) else {})
        if topic not in self.cache.snapshot.topics:
            raise RefusedError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{topic}' does not exist.")
        validate_topic_name(topic)
        if topic not in read_topics(self.store, [topic]):
            raise RefusedError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic '{topic}' does not exist.")
        try:
            check_topic_overrides(self.config(), configs)
        except ConfigError as error:
            resource = f"ConfigResource(type=TOPIC, name='{topic}')"
            raise RefusedError(
                ErrorCode.INVALID_CONFIG, f"Invalid config value for resource {resource}: {error}"
            ) from error
        if not only_check:
            change_config(self.store, path, configs)

    def _alter_group(self, group_id: str, change: Change, *, only_check: bool) -> None:
        if not group_id:
            raise RefusedError(ErrorCode.INVALID_REQUEST, "Default group resources are not allowed.")
        path = f"groups/{sanitize(group_id)}"
        configs = change(read_config(self.store, path))
        try:
            check_group_overrides(self.config(), configs)
        except UsageError as error:
            raise RefusedError(ErrorCode.INVALID_CONFIG, str(error)) from error
        if not only_check:
            change_config(self.store, path, configs)

    def _alter_broker(self, name: str, change: Change, *, only_check: bool) -> None:
        if name:
            check_broker_id(name, self.broker_id)
        path = f"brokers/{self.broker_id if name else DEFAULT_ENTITY}"
        stored, old = read_config(self.store, path), self.config()
        texts, unreadable = decoded(stored, old)
        present, _ = applicable(texts, per_broker=bool(name))
        # Secrets that this broker does not know stay as they are.
        secrets = {each: stored[each] for each in unreadable}
        configs = change({**present, **secrets})
        readable = {each: text for each, text in configs.items() if secrets.get(each) != text}
        try:
            check_dynamic_configs(old, readable, per_broker=bool(name))
            self.check(old.changed(per_broker=readable) if name else old.changed(cluster=readable))
        except UsageError as error:
            # A bad value is an invalid request here, and an invalid config for a topic (KAFKA-13609).
            raise RefusedError(ErrorCode.INVALID_REQUEST, str(error)) from error
        if not only_check:
            change_config(self.store, path, {**configs, **encoded(readable, old, per_broker=bool(name))})

    def _alter_loggers(self, name: str, resource: Entity, *, only_check: bool) -> None:
        check_broker_id(name, self.broker_id)
        operations = _operations(resource)
        for each in operations:
            if each.type not in (OperationType.SET, OperationType.DELETE):
                raise RefusedError(
                    ErrorCode.INVALID_REQUEST,
                    f"{each.type.name} is not allowed for the level of a logger",
                )
            self.loggers.check(each.name, _level(each))
        for each in [] if only_check else operations:
            self.loggers.set_level(each.name, _level(each))


def _level(each: Operation) -> str | None:
    return each.value if each.type is OperationType.SET else None


def _check_keys(resource: Entity, *, incremental: bool) -> None:
    names = [each.name for each in resource.configs]
    if len(set(names)) < len(names):
        raise RefusedError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    nulls = [
        each.name
        for each in resource.configs
        if each.value is None and not (incremental and each.config_operation == OperationType.DELETE)
    ]
    if nulls:
        raise RefusedError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {', '.join(nulls)}")


def _operations(resource: Entity) -> list[Operation]:
    return [operation(each.name, each.config_operation, each.value) for each in resource.configs]


def _change(resource: Entity, *, incremental: bool, keys: Mapping[str, ConfigKey]) -> Change:
    if incremental:
        return lambda present: applied(_operations(resource), present, keys)
    replacement = {each.name: each.value for each in resource.configs}
    return lambda _present: dict(replacement)


# -- Operations on one resource's configs (KIP-339): SET, DELETE, APPEND, SUBTRACT ---------------------------

_SEPARATOR: Final = ","


class OperationType(IntEnum):
    """As in the request."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class Operation(NamedTuple):
    """One change; `value` is None only where one is deleted."""

    name: str
    type: OperationType
    value: str | None


def operation(name: str, number: int, value: str | None) -> Operation:
    """Raises `RefusedError` for a number that is no operation's."""
    if number not in list(OperationType):
        # Kafka fails here with an unexpected error.
        raise RefusedError(ErrorCode.UNKNOWN_SERVER_ERROR)
    return Operation(name, OperationType(number), value)


def applied(
    operations: Iterable[Operation], present: Mapping[str, str], keys: Mapping[str, ConfigKey]
) -> dict[str, str]:
    """The configs after the operations. Raises `RefusedError`."""
    configs = dict(present)
    for each in operations:
        match each.type:
            case OperationType.SET:
                configs[each.name] = each.value or ""
            case OperationType.DELETE:
                configs.pop(each.name, None)
            case OperationType.APPEND:
                members = _members(each, configs, keys)
                members += [one for one in _members_of(each.value) if one not in members]
                configs[each.name] = _SEPARATOR.join(members)
            case OperationType.SUBTRACT:
                members = _members(each, configs, keys)
                for one in _members_of(each.value):
                    if one in members:
                        members.remove(one)
                configs[each.name] = _SEPARATOR.join(members)
    return configs


def _members(each: Operation, configs: Mapping[str, str], keys: Mapping[str, ConfigKey]) -> list[str]:
    """What the list holds now, be it by default."""
    key = keys.get(each.name)
    if key is None:
        # Kafka fails here because of the unknown name, and its clients see that error.
        raise RefusedError(ErrorCode.UNKNOWN_SERVER_ERROR)
    if key.type is not Type.LIST:
        raise RefusedError(
            ErrorCode.INVALID_CONFIG,
            f"Config value {each.type.name.lower()} is not allowed for config key: {each.name}",
        )
    present = configs.get(each.name, text_of(key.default))
    return _members_of(present) if present else []


def _members_of(text: str | None) -> list[str]:
    """As Java splits: empty members at the end go, and no text at all is one that is empty."""
    members = (text or "").split(_SEPARATOR)
    while len(members) > 1 and not members[-1]:
        members.pop()
    return [] if members == [""] and text else members
