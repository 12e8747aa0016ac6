"""The records of classic groups and of committed offsets in `__consumer_offsets`, as plain values.

`formats.consumer_offsets` defines their fields, `formats.record_fields` reads and writes them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from klog.coordinator.groups.record_versions import NEWEST_VALUE_VERSION
from klog.coordinator.groups.values import NO_LEADER_EPOCH, NO_TIMESTAMP, CommittedOffset
from klog.formats.names import PartitionKey
from klog.formats.record_fields import RecordFields, version_of

_GROUP_TYPE: Final = 2
_COMMIT_TYPE: Final = 1
_COMMIT_TYPES: Final = (0, _COMMIT_TYPE)
_EXPIRING_VERSION: Final = 1

_KEY: Final = RecordFields("GroupKey")
_OFFSET: Final = RecordFields("OffsetCommitValue")
_GROUP: Final = RecordFields("GroupMetadataValue")


class MemberMetadata(NamedTuple):
    """A member in a group's record; `subscription` is its metadata for the group's protocol."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True)
class GroupMetadata:
    """A group's record. `state_timestamp_ms` is when it came to its state (-1: unknown)."""

    protocol_type: str
    generation_id: int
    protocol_name: str | None
    leader_id: str | None
    state_timestamp_ms: int = NO_TIMESTAMP
    members: tuple[MemberMetadata, ...] = ()


class RecordKey(NamedTuple):
    """The key of a record: a group's, or with `partition` that of an offset which the group has committed."""

    group_id: str
    partition: PartitionKey | None = None


# -- writing -------------------------------------------------------------------------------------------------


def group_key(group_id: str) -> bytes:
    """The key of a group's record. Raises `FormatError` if the id is too long."""
    return _KEY.write(_GROUP_TYPE, {"group": group_id})


def offset_key(group_id: str, partition: PartitionKey) -> bytes:
    """The key of a committed offset. Raises `FormatError` if a name is too long."""
    topic, number = partition
    return _KEY.writers[_COMMIT_TYPE](_COMMIT_TYPE, group=group_id, topic=topic, partition=number)


def offset_value(commit: CommittedOffset, version: int = NEWEST_VALUE_VERSION) -> bytes:
    """The value of a committed offset, in version 1, 2 or 3; in 1 if it expires at a time of its own.

    Raises `FormatError` if the metadata is too long.
    """
    offset, leader_epoch, metadata, commit_timestamp_ms, expire_timestamp_ms = commit
    if expire_timestamp_ms != NO_TIMESTAMP:
        version = _EXPIRING_VERSION
    return _OFFSET.writers[version](
        version,
        offset=offset,
        leaderEpoch=leader_epoch,
        metadata=metadata,
        commitTimestamp=commit_timestamp_ms,
        expireTimestamp=expire_timestamp_ms,
    )


def group_value(group: GroupMetadata, version: int = NEWEST_VALUE_VERSION) -> bytes:
    """The value of a group's record, in version 0 to 3. Raises `FormatError` if a string is too long."""
    members = [
        {
            "memberId": member.member_id,
            "groupInstanceId": member.instance_id,
            "clientId": member.client_id,
            "clientHost": member.client_host,
            "rebalanceTimeout": member.rebalance_timeout_ms,
            "sessionTimeout": member.session_timeout_ms,
            "subscription": member.subscription,
            "assignment": member.assignment,
        }
        for member in group.members
    ]
    fields = {
        "protocolType": group.protocol_type,
        "generation": group.generation_id,
        "protocol": group.protocol_name,
        "leader": group.leader_id,
        "currentStateTimestamp": group.state_timestamp_ms,
        "members": members,
    }
    return _GROUP.write(version, fields)


# -- reading -------------------------------------------------------------------------------------------------


def read_key(key: bytes) -> RecordKey | None:
    """The meaning of a record's key; None for a type that classic groups do not have.

    Raises `FormatError`.
    """
    kind = version_of(key)
    if kind in _COMMIT_TYPES:
        fields = _KEY.read(key)
        return RecordKey(fields["group"], (fields["topic"], fields["partition"]))
    return RecordKey(_KEY.read(key)["group"]) if kind == _GROUP_TYPE else None


def read_offset_value(value: bytes) -> CommittedOffset:
    """A committed offset, of any version. Raises `FormatError`."""
    fields = _OFFSET.read(value)
    return CommittedOffset(
        fields["offset"],
        fields.get("leaderEpoch", NO_LEADER_EPOCH),
        fields["metadata"],
        fields["commitTimestamp"],
        fields.get("expireTimestamp", NO_TIMESTAMP),
    )


def read_group_value(value: bytes) -> GroupMetadata:
    """A group's record, of any version. Raises `FormatError`."""
    fields = _GROUP.read(value)
    return GroupMetadata(
        fields["protocolType"],
        fields["generation"],
        fields["protocol"],
        fields["leader"],
        fields.get("currentStateTimestamp", NO_TIMESTAMP),
        tuple(map(_member, fields["members"])),
    )


def _member(fields: dict[str, Any]) -> MemberMetadata:
    session_timeout_ms = fields["sessionTimeout"]
    return MemberMetadata(
        fields["memberId"],
        fields.get("groupInstanceId"),
        fields["clientId"],
        fields["clientHost"],
        # The oldest version has no rebalance timeout: the session timeout serves for both.
        fields.get("rebalanceTimeout", session_timeout_ms),
        session_timeout_ms,
        fields["subscription"],
        fields["assignment"],
    )
