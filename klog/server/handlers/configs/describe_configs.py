"""DescribeConfigs: configs of topics, groups, this broker, all brokers by default, and its loggers.

Rules: Kafka's ConfigHelper (handleDescribeConfigsRequest). A broker describes only itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from klog.client.admin import ResourceType
from klog.config.broker import BrokerConfig
from klog.config.group import may_have_group_configs
from klog.formats.errors import KlogError
from klog.metadata.cache import MetadataCache
from klog.metadata.configs import read_config
from klog.metadata.store import MetadataStore
from klog.metadata.topics import validate_topic_name
from klog.metadata.znodes import sanitize
from klog.protocol.entity_fields import Entity
from klog.protocol.error_codes import ErrorCode
from klog.server.handlers.answers import Struct, entity_of, send_answer
from klog.server.handlers.configs.config_entries import (
    UNKNOWN_TYPE,
    ConfigEntry,
    broker_entries,
    cluster_default_entries,
    group_entries,
    topic_entries,
)
from klog.server.handlers.refusals import RefusedError, refusal_of
from klog.server.network.request import Request

_LOGGER_SOURCE: Final = 6
_INTEGER: Final = re.compile(r"[+-]?\d{1,18}")


@dataclass(frozen=True, slots=True)
class DescribeConfigsHandler:
    """Answers DescribeConfigs requests. `loggers` are the broker's loggers with their levels."""

    broker_id: int
    store: MetadataStore
    cache: MetadataCache
    config: Callable[[], BrokerConfig]
    loggers: Callable[[], Mapping[str, str]] = dict

    def handle(self, request: Request) -> None:
        """Describe what is asked for."""
        wanted = entity_of(request)
        # One resource of an unknown type fails the whole request.
        unknown = {each.resource_type for each in wanted.resources} - set(ResourceType)
        results = []
        for resource in wanted.resources:
            try:
                if unknown:
                    raise RefusedError(ErrorCode.INVALID_REQUEST, f"Unexpected resource type {min(unknown)}")
                entries = self._entries(resource)
            except KlogError as error:
                results.append(_result(resource, refusal_of(error), ()))
                continue
            keys = resource.configuration_keys
            chosen = [each for each in entries if not keys or each.name in keys]
            results.append(_result(resource, None, [_config(each, wanted) for each in chosen]))
        send_answer(request, results=results)

    def _entries(self, resource: Entity) -> list[ConfigEntry]:
        """Raises `KlogError`."""
        name = resource.resource_name
        match resource.resource_type:
            case ResourceType.TOPIC:
                return self._topic(name)
            case ResourceType.BROKER if not name:
                return cluster_default_entries(self.config())
            case ResourceType.BROKER:
                check_broker_id(name, self.broker_id)
                return broker_entries(self.config())
            case ResourceType.BROKER_LOGGER:
                if not name:
                    raise RefusedError(ErrorCode.INVALID_REQUEST, "Broker id must not be empty")
                check_broker_id(name, self.broker_id)
                return [
                    ConfigEntry(each, level, _LOGGER_SOURCE, (), UNKNOWN_TYPE, False, False)
                    for each, level in self.loggers().items()
                ]
            case ResourceType.GROUP:
                return self._group(name)
        if not name:
            raise RefusedError(
                ErrorCode.INVALID_REQUEST, "Client metrics subscription name must not be empty"
            )
        # ZooKeeper's tree has no place for them.
        raise RefusedError(ErrorCode.INVALID_REQUEST, "Unsupported config type: CLIENT_METRICS")

    def _topic(self, name: str) -> list[ConfigEntry]:
        validate_topic_name(name)
        if name not in self.cache.snapshot.topics:
            raise RefusedError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return topic_entries(self.config(), read_config(self.store, f"topics/{sanitize(name)}"))

    def _group(self, name: str) -> list[ConfigEntry]:
        if not name:
            raise RefusedError(ErrorCode.INVALID_REQUEST, "Group name must not be empty")
        if not may_have_group_configs(self.config()):
            raise RefusedError(ErrorCode.INVALID_REQUEST, "Unsupported config type: GROUP")
        return group_entries(self.config(), read_config(self.store, f"groups/{sanitize(name)}"))


def check_broker_id(name: str, broker_id: int) -> None:
    """Raises `RefusedError` unless a resource's name is this broker's id."""
    if not _INTEGER.fullmatch(name):
        raise RefusedError(ErrorCode.INVALID_REQUEST, f"Broker id must be an integer, but it is: {name}")
    if int(name) != broker_id:
        raise RefusedError(
            ErrorCode.INVALID_REQUEST, f"Unexpected broker id, expected {broker_id}, but received {name}"
        )


def _result(resource: Entity, refused: RefusedError | None, configs: Sequence[Struct]) -> Struct:
    return {
        "error_code": ErrorCode.NONE if refused is None else refused.error,
        "error_message": "" if refused is None else refused.message or "",
        "resource_type": resource.resource_type,
        "resource_name": resource.resource_name,
        "configs": configs,
    }


def _config(entry: ConfigEntry, wanted: Entity) -> Struct:
    documented = getattr(wanted, "include_documentation", False)  # since version 3
    return {
        **entry._asdict(),
        "synonyms": [each._asdict() for each in entry.synonyms if wanted.include_synonyms],
        "documentation": entry.documentation if documented else None,
    }
