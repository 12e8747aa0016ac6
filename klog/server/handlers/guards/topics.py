"""Guards of requests about topics and their partitions.

Rules: Kafka's `KafkaApis`. A client without the right gets the same answer whether a topic exists or not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from klog.formats.names import encode_uuid
from klog.metadata.cache import MetadataCache
from klog.protocol.acls import AclOperation, AclResourceType
from klog.protocol.apis import ApiKey
from klog.protocol.entity_fields import Entity, Value
from klog.protocol.error_codes import ErrorCode
from klog.server.handlers.access import Access
from klog.server.handlers.answers import Struct
from klog.server.handlers.guards.verdicts import (
    Guard,
    Part,
    Verdict,
    adding,
    part_of_topics,
    split,
    with_list,
)
from klog.server.handlers.topics.topic_metadata import not_shown
from klog.server.network.request import Request

_TOPIC: Final = AclResourceType.TOPIC
_REFUSED: Final = ErrorCode.TOPIC_AUTHORIZATION_FAILED
_METADATA_TOPIC: Final = "__cluster_metadata"
_UNKNOWN: Final = -1


# -- partitions ----------------------------------------------------------------------------------------------


def _list_offsets(access: Access, request: Request, wanted: Entity) -> Verdict:
    nothing: Struct = {
        "old_style_offsets": (),
        "timestamp": _UNKNOWN,
        "offset": _UNKNOWN,
        "leader_epoch": _UNKNOWN,
    }
    return part_of_topics(access, request, wanted, AclOperation.DESCRIBE, **nothing)


def _delete_records(access: Access, request: Request, wanted: Entity) -> Verdict:
    return part_of_topics(access, request, wanted, AclOperation.DELETE, low_watermark=_UNKNOWN)


def _epoch_ends(access: Access, request: Request, wanted: Entity) -> Verdict:
    if access.allows_on_cluster(request, AclOperation.CLUSTER_ACTION, logs_denial=False):
        return None
    nothing = {"leader_epoch": _UNKNOWN, "end_offset": _UNKNOWN}
    describe = AclOperation.DESCRIBE
    return part_of_topics(access, request, wanted, describe, lambda topic: str(topic.topic), **nothing)


def _describe_producers(access: Access, request: Request, wanted: Entity) -> Verdict:
    nothing: Struct = {"error_message": "Topic authorization failed.", "active_producers": ()}
    return part_of_topics(access, request, wanted, AclOperation.READ, **nothing)


def _describe_topic_partitions(cache: MetadataCache) -> Guard:
    def guard(access: Access, request: Request, wanted: Entity) -> Verdict:
        # Nobody is refused a topic that was not asked for by its name.
        is_named = bool(wanted.topics)
        names = [each.name for each in wanted.topics] if is_named else list(cache.snapshot.topics)
        shown = access.allowed(request, AclOperation.DESCRIBE, _TOPIC, names, logs_denial=is_named)
        refused = [not_shown(name, _REFUSED) for name in dict.fromkeys(names) if name not in shown]

        def amend(values: Mapping[str, Value]) -> Mapping[str, Value]:
            topics = [
                {**each, "topic_authorized_operations": access.operations(request, _TOPIC, each["name"])}
                for each in values["topics"]
                if each["name"] in shown
            ]
            return {**values, "topics": [*topics, *refused] if is_named else topics}

        if not is_named:
            return Part(wanted, amend)
        return Part(
            with_list(wanted, "topics", (each for each in wanted.topics if each.name in shown)), amend
        )

    return guard


# -- administration ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TopicGuards:
    """Guards of requests that only the controller takes. Others answer that they are not, whoever asks."""

    cache: MetadataCache
    is_controller: Callable[[], bool]
    may_delete: Callable[[], bool]

    def create(self, access: Access, request: Request, wanted: Entity) -> Verdict:
        """CreateTopics."""
        if not self.is_controller():
            return None
        times = Counter(topic.name for topic in wanted.topics)
        # What is wrong whoever asks is left to the handler.
        checked = [name for name in times if name != _METADATA_TOPIC]
        if access.allows_on_cluster(request, AclOperation.CREATE, logs_denial=False):
            allowed = set(checked)
        else:
            allowed = access.allowed(request, AclOperation.CREATE, _TOPIC, checked)
        described = access.allowed(request, AclOperation.DESCRIBE_CONFIGS, _TOPIC, checked, logs_denial=False)
        passed = {name for name in times if name not in checked or name in allowed or times[name] > 1}
        refused = [
            _not_created(name, may_describe=name in described) for name in checked if name not in passed
        ]
        if not refused and len(described) == len(checked):
            return None

        def amend(values: Mapping[str, Value]) -> Mapping[str, Value]:
            made = [
                each if each["name"] in described or each["error_code"] else {**each, **_NOT_SHOWN}
                for each in values["topics"]
            ]
            return {**values, "topics": [*made, *refused]}

        return Part(
            with_list(wanted, "topics", (each for each in wanted.topics if each.name in passed)), amend
        )

    def grow(self, access: Access, request: Request, wanted: Entity) -> Verdict:
        """CreatePartitions."""
        if not self.is_controller():
            return None
        times = Counter(topic.name for topic in wanted.topics)
        # What is wrong whoever asks is left to the handler.
        single = [name for name, count in times.items() if count == 1]
        refused = set(single) - access.allowed(request, AclOperation.ALTER, _TOPIC, single)
        if not refused:
            return None
        message = "The topic authorization is failed."
        results = [{"name": name, "error_code": _REFUSED, "error_message": message} for name in refused]
        passed = (topic for topic in wanted.topics if topic.name not in refused)
        return Part(with_list(wanted, "topics", passed), adding("results", results))

    def delete(self, access: Access, request: Request, wanted: Entity) -> Verdict:
        """DeleteTopics: by names before version 6, by names or ids since."""
        if not self.is_controller() or not self.may_delete():
            return None
        if hasattr(wanted, "topic_names"):
            names = split(access, request, AclOperation.DELETE, wanted.topic_names, str)
            refused = [_not_deleted(name, None) for name in names.refused]
            if not refused:
                return None
            return Part(with_list(wanted, "topic_names", names.allowed), adding("responses", refused))
        if any(topic.name is not None and topic.topic_id is not None for topic in wanted.topics):
            return None  # the handler refuses it
        return self._delete_by_ids(access, request, wanted)

    def _delete_by_ids(self, access: Access, request: Request, wanted: Entity) -> Verdict:
        named = [(topic, self._name(topic)) for topic in wanted.topics]
        names = [name for _, name in named if name is not None]
        described = access.allowed(request, AclOperation.DESCRIBE, _TOPIC, names)
        deleted = access.allowed(request, AclOperation.DELETE, _TOPIC, names)
        passed, refused = [], []
        for topic, name in named:
            if name is None:
                passed.append(topic)
            elif topic.topic_id is not None and name not in described:
                # The id is no secret, the name is.
                refused.append(_not_deleted(None, topic.topic_id))
            elif name not in deleted:
                refused.append(_not_deleted(name, topic.topic_id))
            else:
                passed.append(topic)
        if not refused:
            return None
        return Part(with_list(wanted, "topics", passed), adding("responses", refused))

    def _name(self, topic: Entity) -> str | None:
        if topic.topic_id is None:
            return None if topic.name is None else str(topic.name)
        return self.cache.snapshot.topic_names.get(encode_uuid(topic.topic_id.bytes))


# What is not said of a new topic to those who may not see its configs.
_NOT_SHOWN: Final[Struct] = {
    "topic_config_error_code": _REFUSED,
    "num_partitions": _UNKNOWN,
    "replication_factor": _UNKNOWN,
    "configs": (),
}


def _not_created(name: str, *, may_describe: bool) -> Struct:
    config_error = ErrorCode.NONE if may_describe else _REFUSED
    return {
        **_NOT_SHOWN,
        "name": name,
        "topic_id": None,
        "error_code": _REFUSED,
        "error_message": "Authorization failed.",
        "topic_config_error_code": config_error,
    }


def _not_deleted(name: str | None, topic_id: UUID | None) -> Struct:
    return {"name": name, "topic_id": topic_id, "error_code": _REFUSED, "error_message": None}


def topic_guards(
    cache: MetadataCache, is_controller: Callable[[], bool], may_delete: Callable[[], bool]
) -> Mapping[int, Guard]:
    """By API key. `may_delete` is `delete.topic.enable`."""
    administration = TopicGuards(cache, is_controller, may_delete)
    return {
        ApiKey.LIST_OFFSETS: _list_offsets,
        ApiKey.DELETE_RECORDS: _delete_records,
        ApiKey.OFFSET_FOR_LEADER_EPOCH: _epoch_ends,
        ApiKey.DESCRIBE_PRODUCERS: _describe_producers,
        ApiKey.DESCRIBE_TOPIC_PARTITIONS: _describe_topic_partitions(cache),
        ApiKey.CREATE_TOPICS: administration.create,
        ApiKey.DELETE_TOPICS: administration.delete,
        ApiKey.CREATE_PARTITIONS: administration.grow,
    }
