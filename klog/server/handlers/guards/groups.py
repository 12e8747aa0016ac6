"""Guards of requests about groups and their offsets.

Rules: Kafka's `KafkaApis` and the error answers of its requests.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from klog.protocol.acls import AclOperation, AclResourceType
from klog.protocol.apis import ApiKey
from klog.protocol.entity_fields import Entity, Value
from klog.protocol.error_codes import ErrorCode
from klog.server.handlers.access import Access
from klog.server.handlers.answers import Struct, topic_errors
from klog.server.handlers.guards.verdicts import (
    Answer,
    Guard,
    Part,
    Verdict,
    adding,
    changing,
    part_of_topics,
    split,
    with_list,
)
from klog.server.handlers.topics.topic_metadata import OPERATIONS_NOT_ASKED_FOR
from klog.server.network.request import Request

_GROUP: Final = AclResourceType.GROUP
_REFUSED: Final = ErrorCode.GROUP_AUTHORIZATION_FAILED
_NULL_PROTOCOL_FROM: Final = 7
_SYNC_PROTOCOL_FROM: Final = 5
_SEVERAL_GROUPS_FROM: Final = 8
_SEVERAL_KEYS_FROM: Final = 4
_SHARE_FROM: Final = 6
_NO_OFFSET: Final[Struct] = {"committed_offset": -1, "committed_leader_epoch": -1, "metadata": ""}


def _may(operation: AclOperation, access: Access, request: Request, group_id: str) -> bool:
    return access.allows(request, operation, _GROUP, group_id)


_may_read: Final = partial(_may, AclOperation.READ)


# -- members -------------------------------------------------------------------------------------------------


def _member(access: Access, request: Request, wanted: Entity) -> Verdict:
    if _may_read(access, request, wanted.group_id):
        return None
    return Answer({"error_code": _REFUSED})


def _join(access: Access, request: Request, wanted: Entity) -> Verdict:
    if _may_read(access, request, wanted.group_id):
        return None
    return Answer(
        {
            "error_code": _REFUSED,
            "generation_id": -1,
            "protocol_name": None if request.api_version >= _NULL_PROTOCOL_FROM else "",
            "leader": "",
            "member_id": "",
        }
    )


def _sync(access: Access, request: Request, wanted: Entity) -> Verdict:
    if request.api_version >= _SYNC_PROTOCOL_FROM and None in (wanted.protocol_type, wanted.protocol_name):
        return None  # the handler refuses it, whoever asks
    return _member(access, request, wanted)


def _heartbeat(access: Access, request: Request, wanted: Entity) -> Verdict:
    """ConsumerGroupHeartbeat, as in Kafka 4: topics that are subscribed to by name must be visible."""
    topics = wanted.subscribed_topic_names or ()
    if not _may_read(access, request, wanted.group_id):
        error = _REFUSED
    elif split(access, request, AclOperation.DESCRIBE, topics, str).refused:
        error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    else:
        return None
    return Answer({"error_code": error, "member_id": None, "member_epoch": 0, "heartbeat_interval": 0})


# -- offsets -------------------------------------------------------------------------------------------------


def _commit(access: Access, request: Request, wanted: Entity) -> Verdict:
    if not _may_read(access, request, wanted.group_id):
        return Answer({"topics": topic_errors(wanted.topics, _REFUSED)})
    return part_of_topics(access, request, wanted, AclOperation.READ)


def _delete_offsets(access: Access, request: Request, wanted: Entity) -> Verdict:
    if not _may(AclOperation.DELETE, access, request, wanted.group_id):
        return Answer({"error_code": _REFUSED})
    topics = split(access, request, AclOperation.READ, wanted.topics)
    refused = topic_errors(topics.refused, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    if refused and not topics.allowed:
        return Answer({"topics": refused})  # the group is not looked at
    passed = with_list(wanted, "topics", topics.allowed)
    return Part(passed, adding("topics", refused, unless_failed=True)) if refused else None


def _fetch_offsets(access: Access, request: Request, wanted: Entity) -> Verdict:
    is_single = request.api_version < _SEVERAL_GROUPS_FROM
    asked = [wanted] if is_single else list(wanted.groups)
    allowed: list[Entity] = []
    amends: dict[str, Callable[[Struct], Struct]] = {}
    refused: list[Struct] = []
    for group in asked:
        if not _may(AclOperation.DESCRIBE, access, request, group.group_id):
            # Version 0 has the error in its partitions. Version 1 has no place for it: Kafka answers nothing.
            is_first = request.api_version == 0
            topics = topic_errors(group.topics, _REFUSED, **_NO_OFFSET) if is_first else []
            refused.append({"group_id": group.group_id, "error_code": _REFUSED, "topics": topics})
        elif group.topics is None:
            allowed.append(group)
            amends[group.group_id] = partial(_without_hidden, access, request)
        else:
            topics_split = split(access, request, AclOperation.DESCRIBE, group.topics)
            allowed.append(with_list(group, "topics", topics_split.allowed))
            amends[group.group_id] = partial(
                _with_refused,
                topic_errors(topics_split.refused, ErrorCode.TOPIC_AUTHORIZATION_FAILED, **_NO_OFFSET),
            )
    if is_single:
        if refused:
            return Answer(refused[0])
        return Part(allowed[0], amends[wanted.group_id])
    return Part(
        with_list(wanted, "groups", allowed),
        lambda values: {
            **values,
            "groups": [*(amends[each["group_id"]](each) for each in values["groups"]), *refused],
        },
    )


def _with_refused(refused: Sequence[Struct], group: Mapping[str, Value]) -> Struct:
    if group["error_code"]:
        return group
    return {**group, "topics": [*group["topics"], *refused]}


def _without_hidden(access: Access, request: Request, group: Mapping[str, Value]) -> Struct:
    topics = list(group["topics"])
    shown = access.allowed(
        request, AclOperation.DESCRIBE, AclResourceType.TOPIC, (topic["name"] for topic in topics)
    )
    return {**group, "topics": [topic for topic in topics if topic["name"] in shown]}


# -- coordinators --------------------------------------------------------------------------------------------

_KEY_TYPES: Final = {
    0: (AclOperation.DESCRIBE, _GROUP, _REFUSED, "Group authorization failed."),
    1: (
        AclOperation.DESCRIBE,
        AclResourceType.TRANSACTIONAL_ID,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        "Transactional Id authorization failed.",
    ),
}


def _coordinator(access: Access, request: Request, wanted: Entity) -> Verdict:
    known = _KEY_TYPES.get(getattr(wanted, "key_type", 0))
    if known is None:
        return _share_coordinator(access, request, wanted)
    operation, kind, error, message = known
    if request.api_version < _SEVERAL_KEYS_FROM:
        if access.allows(request, operation, kind, wanted.key):
            return None
        return Answer(_no_coordinator(error, message))
    keys = split(access, request, operation, wanted.coordinator_keys, str, kind)
    if not keys.refused:
        return None
    refused = [{"key": key, **_no_coordinator(error, "")} for key in keys.refused]
    return Part(with_list(wanted, "coordinator_keys", keys.allowed), adding("coordinators", refused))


def _share_coordinator(access: Access, request: Request, wanted: Entity) -> Verdict:
    if request.api_version < _SHARE_FROM or access.allows_on_cluster(request, AclOperation.CLUSTER_ACTION):
        return None
    error = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    return Answer(
        {"coordinators": [{"key": key, **_no_coordinator(error, "")} for key in wanted.coordinator_keys]}
    )


def _no_coordinator(error: ErrorCode, message: str) -> Struct:
    return {"error_code": error, "error_message": message, "node_id": -1, "host": "", "port": -1}


# -- administration ------------------------------------------------------------------------------------------


Shown = Callable[[Access, Request, Struct], Struct]


def _as_it_is(_access: Access, _request: Request, group: Struct) -> Struct:
    return group


def _without_hidden_members(access: Access, request: Request, group: Struct) -> Struct:
    """A group of Kafka 4's protocol, without its members if they have topics that the client may not see."""
    topics = {
        each["topic_name"]
        for member in group["members"]
        for assignment in (member["assignment"], member["target_assignment"])
        for each in assignment["topic_partitions"]
    }
    shown = access.allowed(request, AclOperation.DESCRIBE, AclResourceType.TOPIC, topics)
    if shown == topics:
        return group
    error, message = (
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        "The group has topics that the client may not describe.",
    )
    return {**group, "error_code": error, "error_message": message, "members": ()}


def _describe(field: str, nothing: Struct, show: Shown = _as_it_is) -> Guard:
    """A guard of groups that are described; `nothing` is what is said of one that may not be."""

    def guard(access: Access, request: Request, wanted: Entity) -> Verdict:
        asked = getattr(wanted, field)
        groups = split(access, request, AclOperation.DESCRIBE, asked, str, _GROUP)
        refused = [{**nothing, "group_id": each} for each in groups.refused]
        wants_operations = getattr(wanted, "include_authorized_operations", False)
        if not refused and not wants_operations and show is _as_it_is:
            return None

        def amend(values: Mapping[str, Value]) -> Mapping[str, Value]:
            shown = [show(access, request, each) for each in values["groups"]]
            if wants_operations:
                shown = [
                    {**each, "authorized_operations": access.operations(request, _GROUP, each["group_id"])}
                    if not each["error_code"]
                    else each
                    for each in shown
                ]
            return {**values, "groups": [*refused, *shown]}

        return Part(with_list(wanted, field, groups.allowed), amend)

    return guard


_UNDESCRIBED: Final[Struct] = {
    "error_code": _REFUSED,
    "group_state": "",
    "members": (),
    "authorized_operations": OPERATIONS_NOT_ASKED_FOR,
}


def _list(access: Access, request: Request, wanted: Entity) -> Verdict:
    if access.allows_on_cluster(request, AclOperation.DESCRIBE, logs_denial=False):
        return None

    def shown(group: Struct) -> Struct | None:
        may_see = access.allows(request, AclOperation.DESCRIBE, _GROUP, group["group_id"], logs_denial=False)
        return group if may_see else None

    return Part(wanted, changing("groups", shown))


def _delete(access: Access, request: Request, wanted: Entity) -> Verdict:
    groups = split(access, request, AclOperation.DELETE, wanted.groups_names, str, _GROUP)
    if not groups.refused:
        return None
    refused = [{"group_id": each, "error_code": _REFUSED} for each in dict.fromkeys(groups.refused)]
    return Part(dataclasses.replace(wanted, groups_names=tuple(groups.allowed)), adding("results", refused))


GUARDS: Final[Mapping[int, Guard]] = {
    ApiKey.OFFSET_COMMIT: _commit,
    ApiKey.OFFSET_FETCH: _fetch_offsets,
    ApiKey.OFFSET_DELETE: _delete_offsets,
    ApiKey.FIND_COORDINATOR: _coordinator,
    ApiKey.JOIN_GROUP: _join,
    ApiKey.SYNC_GROUP: _sync,
    ApiKey.HEARTBEAT: _member,
    ApiKey.LEAVE_GROUP: _member,
    ApiKey.DESCRIBE_GROUPS: _describe("groups", {**_UNDESCRIBED, "protocol_type": "", "protocol_data": ""}),
    ApiKey.LIST_GROUPS: _list,
    ApiKey.DELETE_GROUPS: _delete,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: _heartbeat,
    ApiKey.CONSUMER_GROUP_DESCRIBE: _describe(
        "group_ids",
        {
            **_UNDESCRIBED,
            "error_message": None,
            "group_epoch": 0,
            "assignment_epoch": 0,
            "assignor_name": "",
        },
        _without_hidden_members,
    ),
}
"""By API key."""
