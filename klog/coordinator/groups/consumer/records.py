"""The records of consumer groups in `__consumer_offsets`, as plain values.

`formats.consumer_offsets` defines their fields, `formats.record_fields` reads and writes them.

Rules: Kafka's schemas ConsumerGroup*Key and ConsumerGroup*Value (types 3 to 8 and 16). Type 4 is of Kafka 4.0
and older; it is not needed, and removed with the group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeAlias

from klog.coordinator.groups.consumer.values import (
    ClassicMember,
    CurrentAssignment,
    MemberState,
    MemberSubscription,
    Partitions,
    ResolvedRegex,
    by_topic,
)
from klog.coordinator.groups.records import GroupMetadata, group_value
from klog.formats.record_fields import RecordFields, version_of

_VERSION: Final = 0


class RecordKind(IntEnum):
    """The types of the records of a consumer group, and that of a classic group, which it may have been."""

    CLASSIC = 2
    EPOCH = 3
    PARTITION_METADATA = 4
    MEMBER = 5
    ASSIGNMENT_EPOCH = 6
    TARGET = 7
    CURRENT = 8
    REGEX = 16


_KINDS: Final = {int(kind): kind for kind in RecordKind if kind is not RecordKind.CLASSIC}
_KEY: Final = RecordFields("GroupKey")

_NAMES: Final = {
    RecordKind.MEMBER: "memberId",
    RecordKind.TARGET: "memberId",
    RecordKind.CURRENT: "memberId",
    RecordKind.REGEX: "regularExpression",
}


class GroupEpoch(NamedTuple):
    """The group's epoch, with the hash of the topics that it was set for (0: none, or written before 4.1)."""

    epoch: int = 0
    metadata_hash: int = 0


Fields: TypeAlias = dict[str, Any]
Value: TypeAlias = (
    GroupMetadata
    | GroupEpoch
    | MemberSubscription
    | int
    | Partitions
    | CurrentAssignment
    | ResolvedRegex
    | bytes
)


class ConsumerRecord(NamedTuple):
    """A record of one group. `name` is a member's id or a regular expression; no value is a tombstone."""

    kind: RecordKind
    name: str = ""
    value: Value | None = None


class ConsumerKey(NamedTuple):
    """The key of a record."""

    group_id: str
    kind: RecordKind
    name: str = ""


# -- keys ----------------------------------------------------------------------------------------------------


def write_key(group_id: str, kind: RecordKind, name: str = "") -> bytes:
    """The key of a record. Raises `FormatError` if a name is too long."""
    names = {"memberId": name, "regularExpression": name}
    return _KEY.write(kind, {"group": group_id, "groupId": group_id, **names})


def read_key(key: bytes) -> ConsumerKey | None:
    """The meaning of a record's key; None for a type that consumer groups do not have.

    Raises `FormatError`.
    """
    kind = _KINDS.get(version_of(key))
    if kind is None:
        return None
    fields = _KEY.read(key)
    return ConsumerKey(fields["groupId"], kind, fields[_NAMES[kind]] if kind in _NAMES else "")


# -- values: each kind has its fields, and what they mean ----------------------------------------------------


def write_value(value: Value) -> bytes:
    """The value of a record that is none of type 4."""
    if isinstance(value, GroupMetadata):
        return group_value(value)
    if isinstance(value, bytes):
        return value
    if isinstance(value, MemberSubscription):
        return _write_member(value)
    kind, fields = _fields(value)
    return _VALUES[kind].write(_VERSION, fields)


def _fields(
    value: GroupEpoch | int | Partitions | CurrentAssignment | ResolvedRegex,
) -> tuple[RecordKind, Fields]:
    if isinstance(value, GroupEpoch):
        hashed = {"metadataHash": value.metadata_hash} if value.metadata_hash else {}
        return RecordKind.EPOCH, {"epoch": value.epoch, **hashed}
    if isinstance(value, int):
        return RecordKind.ASSIGNMENT_EPOCH, {"assignmentEpoch": value}
    if isinstance(value, CurrentAssignment):
        return RecordKind.CURRENT, {
            "memberEpoch": value.epoch,
            "previousMemberEpoch": value.previous_epoch,
            "state": value.state,
            "assignedPartitions": _topics(value.assigned),
            "partitionsPendingRevocation": _topics(value.revoking),
        }
    if isinstance(value, ResolvedRegex):
        return RecordKind.REGEX, {
            "topics": value.topics,
            "metadataVersion": value.metadata_version,
            "timestamp": value.timestamp_ms,
        }
    return RecordKind.TARGET, {"topicPartitions": _topics(value)}


@lru_cache(maxsize=1024)
def _write_member(member: MemberSubscription) -> bytes:
    classic = None
    if member.classic is not None:
        protocols = [{"name": name, "metadata": metadata} for name, metadata in member.classic.protocols]
        classic = {"sessionTimeoutMs": member.classic.session_timeout_ms, "supportedProtocols": protocols}
    fields = {
        "instanceId": member.instance_id,
        "rackId": member.rack_id,
        "clientId": member.client_id,
        "clientHost": member.client_host,
        "subscribedTopicNames": member.topics,
        "subscribedTopicRegex": member.regex,
        "rebalanceTimeoutMs": member.rebalance_timeout_ms,
        "serverAssignor": member.assignor,
        # Kafka writes the field even if it is null: its default is another value.
        "classicMemberMetadata": classic,
    }
    return _VALUES[RecordKind.MEMBER].write(_VERSION, fields)


def _topics(assigned: Partitions) -> list[Fields]:
    return [{"topicId": topic_id, "partitions": numbers} for topic_id, numbers in by_topic(assigned).items()]


def read_value(key: ConsumerKey, value: bytes) -> Value:
    """The value of a record; that of type 4 as it stands. Raises `FormatError`."""
    if key.kind is RecordKind.PARTITION_METADATA:
        return value
    return _READERS[key.kind](_VALUES[key.kind].read(value), key.name)


def _read_member(fields: Fields, member_id: str) -> MemberSubscription:
    found = fields.get("classicMemberMetadata")
    classic = None
    if found is not None:
        protocols = tuple((each["name"], each["metadata"]) for each in found["supportedProtocols"])
        classic = ClassicMember(found["sessionTimeoutMs"], protocols)
    return MemberSubscription(
        member_id,
        fields["instanceId"],
        fields["rackId"],
        fields["clientId"],
        fields["clientHost"],
        tuple(fields["subscribedTopicNames"]),
        fields["subscribedTopicRegex"],
        fields["rebalanceTimeoutMs"],
        fields["serverAssignor"],
        classic,
    )


def _read_current(fields: Fields, _: str) -> CurrentAssignment:
    try:
        state = MemberState(fields["state"])
    except ValueError:
        state = MemberState.UNKNOWN
    return CurrentAssignment(
        fields["memberEpoch"],
        fields["previousMemberEpoch"],
        state,
        _partitions(fields["assignedPartitions"]),
        _partitions(fields["partitionsPendingRevocation"]),
    )


def _partitions(topics: Iterable[Fields]) -> Partitions:
    return frozenset((topic["topicId"], number) for topic in topics for number in topic["partitions"])


_VALUES: Final = {
    RecordKind.EPOCH: RecordFields("ConsumerGroupMetadataValue"),
    RecordKind.MEMBER: RecordFields("ConsumerGroupMemberMetadataValue"),
    RecordKind.ASSIGNMENT_EPOCH: RecordFields("ConsumerGroupTargetAssignmentMetadataValue"),
    RecordKind.TARGET: RecordFields("ConsumerGroupTargetAssignmentMemberValue"),
    RecordKind.CURRENT: RecordFields("ConsumerGroupCurrentMemberAssignmentValue"),
    RecordKind.REGEX: RecordFields("ConsumerGroupRegularExpressionValue"),
}
_READERS: Final[Mapping[RecordKind, Callable[[Fields, str], Value]]] = {
    RecordKind.EPOCH: lambda fields, _: GroupEpoch(fields["epoch"], fields.get("metadataHash", 0)),
    RecordKind.MEMBER: _read_member,
    RecordKind.ASSIGNMENT_EPOCH: lambda fields, _: int(fields["assignmentEpoch"]),
    RecordKind.TARGET: lambda fields, _: _partitions(fields["topicPartitions"]),
    RecordKind.CURRENT: _read_current,
    RecordKind.REGEX: lambda fields, _: ResolvedRegex(
        tuple(fields["topics"]), fields["metadataVersion"], fields["timestamp"]
    ),
}
