"""Reads and writes the records of `__consumer_offsets` fast.

The definitions in `formats.consumer_offsets` say what the fields mean.

Rules: Kafka's schemas OffsetCommitKey, OffsetCommitValue, GroupMetadataKey and GroupMetadataValue. Versions 0
to 3 of the values are read here, later ones through the definitions. Tests hold both equal.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from klog.coordinator.groups.record_versions import NEWEST_VALUE_VERSION
from klog.coordinator.groups.values import NO_LEADER_EPOCH, NO_TIMESTAMP, CommittedOffset
from klog.coordinator.runtime.record_fields import FieldReader, write_bytes, write_string
from klog.formats import fixed_fields
from klog.formats.names import PartitionKey
from klog.formats.packed import INT16, INT32, INT64

_GROUP_KEY_TYPE: Final = 2
_COMMIT_KEY_TYPE: Final = 1
_LAST_COMMIT_KEY_TYPE: Final = 1  # 0 and 1 are commits
_EXPIRING_VERSION: Final = 1
_LEADER_EPOCH_FROM: Final = 3
_REBALANCE_TIMEOUT_FROM: Final = 1
_STATE_TIME_FROM: Final = 2
_INSTANCE_ID_FROM: Final = 3
_FIRST_DEFINED_VERSION: Final = 4

_COMMIT_HEAD: Final = fixed_fields.run("OffsetCommitValue.3").through("leaderEpoch")
_OLD_COMMIT_HEAD: Final = fixed_fields.run("OffsetCommitValue.1").through("offset")
_TIMESTAMPS: Final = fixed_fields.run("OffsetCommitValue.1", "expireTimestamp").struct
_TIMEOUTS: Final = fixed_fields.run("GroupMetadataValue.3.members", "sessionTimeout").through(
    "sessionTimeout"
)


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
    return INT16.pack(_GROUP_KEY_TYPE) + write_string(group_id)


def offset_key(group_id: str, partition: PartitionKey) -> bytes:
    """The key of a committed offset. Raises `FormatError` if a name is too long."""
    topic, number = partition
    return INT16.pack(_COMMIT_KEY_TYPE) + write_string(group_id) + write_string(topic) + INT32.pack(number)


def offset_value(commit: CommittedOffset, version: int = NEWEST_VALUE_VERSION) -> bytes:
    """The value of a committed offset, in version 1, 2 or 3; in 1 if it expires at a time of its own.

    Raises `FormatError` if the metadata is too long.
    """
    metadata = write_string(commit.metadata)
    if version == _EXPIRING_VERSION or commit.expire_timestamp_ms != NO_TIMESTAMP:
        return (
            _OLD_COMMIT_HEAD.pack(_EXPIRING_VERSION, commit.offset)
            + metadata
            + _TIMESTAMPS.pack(commit.commit_timestamp_ms, commit.expire_timestamp_ms)
        )
    if version < _LEADER_EPOCH_FROM:
        head = _OLD_COMMIT_HEAD.pack(version, commit.offset)
    else:
        head = _COMMIT_HEAD.pack(version, commit.offset, commit.leader_epoch)
    return head + metadata + INT64.pack(commit.commit_timestamp_ms)


def group_value(group: GroupMetadata, version: int = NEWEST_VALUE_VERSION) -> bytes:
    """The value of a group's record, in version 0 to 3. Raises `FormatError` if a string is too long."""
    parts = [
        INT16.pack(version),
        write_string(group.protocol_type),
        INT32.pack(group.generation_id),
        write_string(group.protocol_name),
        write_string(group.leader_id),
        INT64.pack(group.state_timestamp_ms) if version >= _STATE_TIME_FROM else b"",
        INT32.pack(len(group.members)),
    ]
    for member in group.members:
        parts += (
            write_string(member.member_id),
            write_string(member.instance_id) if version >= _INSTANCE_ID_FROM else b"",
            write_string(member.client_id),
            write_string(member.client_host),
            _timeouts(member, version),
            write_bytes(member.subscription),
            write_bytes(member.assignment),
        )
    return b"".join(parts)


def _timeouts(member: MemberMetadata, version: int) -> bytes:
    if version < _REBALANCE_TIMEOUT_FROM:
        return INT32.pack(member.session_timeout_ms)
    return _TIMEOUTS.pack(member.rebalance_timeout_ms, member.session_timeout_ms)


# -- reading -------------------------------------------------------------------------------------------------


def read_key(key: bytes) -> RecordKey | None:
    """The meaning of a record's key; None for a type that classic groups do not have.

    Raises `FormatError`.
    """
    reader = FieldReader(key)
    kind = reader.number(INT16)
    if 0 <= kind <= _LAST_COMMIT_KEY_TYPE:
        group_id, topic = reader.classic_string(), reader.classic_string()
        return RecordKey(group_id, (topic, reader.number(INT32)))
    if kind == _GROUP_KEY_TYPE:
        return RecordKey(reader.classic_string())
    return None


def read_offset_value(value: bytes) -> CommittedOffset:
    """A committed offset, of any version. Raises `FormatError`."""
    reader = FieldReader(value)
    version = reader.number(INT16)
    if not 0 <= version < _FIRST_DEFINED_VERSION:
        return _defined_offset(value)
    offset = reader.number(INT64)
    leader_epoch = reader.number(INT32) if version >= _LEADER_EPOCH_FROM else NO_LEADER_EPOCH
    metadata = reader.classic_string()
    committed_ms = reader.number(INT64)
    expires_ms = reader.number(INT64) if version == _EXPIRING_VERSION else NO_TIMESTAMP
    return CommittedOffset(offset, leader_epoch, metadata, committed_ms, expires_ms)


def read_group_value(value: bytes) -> GroupMetadata:
    """A group's record, of any version. Raises `FormatError`."""
    reader = FieldReader(value)
    version = reader.number(INT16)
    if not 0 <= version < _FIRST_DEFINED_VERSION:
        return _defined_group(value)
    protocol_type = reader.classic_string()
    generation_id = reader.number(INT32)
    protocol_name, leader_id = reader.nullable_classic_string(), reader.nullable_classic_string()
    state_ms = reader.number(INT64) if version >= _STATE_TIME_FROM else NO_TIMESTAMP
    count = reader.number(INT32)
    members = tuple(_read_member(reader, version) for _ in range(count))
    return GroupMetadata(protocol_type, generation_id, protocol_name, leader_id, state_ms, members)


def _read_member(reader: FieldReader, version: int) -> MemberMetadata:
    member_id = reader.classic_string()
    instance_id = reader.nullable_classic_string() if version >= _INSTANCE_ID_FROM else None
    client_id, client_host = reader.classic_string(), reader.classic_string()
    first_timeout_ms = reader.number(INT32)
    # The oldest version has no rebalance timeout: the session timeout serves for both.
    session_timeout_ms = reader.number(INT32) if version >= _REBALANCE_TIMEOUT_FROM else first_timeout_ms
    return MemberMetadata(
        member_id,
        instance_id,
        client_id,
        client_host,
        first_timeout_ms,
        session_timeout_ms,
        reader.bytes(),
        reader.bytes(),
    )


def _defined_offset(value: bytes) -> CommittedOffset:
    from klog.formats import binary
    from klog.formats.consumer_offsets import OffsetCommitValue

    read = binary.parse_all(OffsetCommitValue, value, "OffsetCommitValue")
    return CommittedOffset(
        read["offset"], read["leaderEpoch"], read["metadata"], read["commitTimestamp"], NO_TIMESTAMP
    )


def _defined_group(value: bytes) -> GroupMetadata:
    from klog.formats import binary
    from klog.formats.consumer_offsets import GroupMetadataValue

    read = binary.parse_all(GroupMetadataValue, value, "GroupMetadataValue")
    members = tuple(
        MemberMetadata(
            member["memberId"],
            member["groupInstanceId"],
            member["clientId"],
            member["clientHost"],
            member["rebalanceTimeout"],
            member["sessionTimeout"],
            bytes(member["subscription"]),
            bytes(member["assignment"]),
        )
        for member in read["members"]
    )
    return GroupMetadata(
        read["protocolType"],
        read["generation"],
        read["protocol"],
        read["leader"],
        read["currentStateTimestamp"],
        members,
    )
