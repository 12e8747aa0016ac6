"""Reads and writes the records of consumer groups in `__consumer_offsets`.

The definitions in `formats.consumer_offsets` say what the fields mean. Tests hold both equal.

Rules: Kafka's schemas ConsumerGroup*Key and ConsumerGroup*Value (types 3 to 8 and 16). Keys are not flexible,
values are. Type 4 is of Kafka 4.0 and older; it is not needed, and removed with the group.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import IntEnum
from functools import lru_cache
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias

from klog.coordinator.groups.consumer.flexible import (
    Reader,
    array,
    compact_bytes,
    compact_string,
    partitions,
    tagged,
)
from klog.coordinator.groups.consumer.values import (
    ClassicMember,
    CurrentAssignment,
    MemberState,
    MemberSubscription,
    Partitions,
    ResolvedRegex,
)
from klog.coordinator.groups.records import GroupMetadata, group_value
from klog.coordinator.runtime.record_fields import write_string
from klog.formats.errors import FormatError
from klog.formats.packed import INT8, INT16, INT32, INT64

_VERSION: Final = INT16.pack(0)
_ONLY_TAG: Final = 0
_NO_TAGS: Final = b"\0"
_ABSENT: Final = b"\0"
_PRESENT: Final = b"\1"


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


_WITH_NAME: Final = frozenset({RecordKind.MEMBER, RecordKind.TARGET, RecordKind.CURRENT, RecordKind.REGEX})
_KINDS: Final = MappingProxyType({int(kind): kind for kind in RecordKind if kind is not RecordKind.CLASSIC})


class GroupEpoch(NamedTuple):
    """The group's epoch, with the hash of the topics that it was set for (0: none, or written before 4.1)."""

    epoch: int = 0
    metadata_hash: int = 0


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
    key = INT16.pack(kind) + write_string(group_id)
    return key + write_string(name) if kind in _WITH_NAME else key


def read_key(key: bytes) -> ConsumerKey | None:
    """The meaning of a record's key; None for a type that consumer groups do not have.

    Raises `FormatError`.
    """
    reader = Reader(key)
    kind = _KINDS.get(reader.number(INT16))
    if kind is None:
        return None
    group_id = reader.classic_string()
    return ConsumerKey(group_id, kind, reader.classic_string() if kind in _WITH_NAME else "")


# -- writing -------------------------------------------------------------------------------------------------


def write_value(value: Value) -> bytes:
    """The value of a record that is none of type 4."""
    if isinstance(value, GroupMetadata):
        return group_value(value)
    if isinstance(value, GroupEpoch):
        tags = tagged(_ONLY_TAG, INT64.pack(value.metadata_hash)) if value.metadata_hash else _NO_TAGS
        return _VERSION + INT32.pack(value.epoch) + tags
    if isinstance(value, int):
        return _VERSION + INT32.pack(value) + _NO_TAGS
    if isinstance(value, MemberSubscription):
        return _write_member(value)
    if isinstance(value, CurrentAssignment):
        head = INT32.pack(value.epoch) + INT32.pack(value.previous_epoch) + INT8.pack(value.state)
        return _VERSION + head + partitions(value.assigned) + partitions(value.revoking) + _NO_TAGS
    if isinstance(value, ResolvedRegex):
        times = INT64.pack(value.metadata_version) + INT64.pack(value.timestamp_ms)
        return _VERSION + array(map(compact_string, value.topics)) + times + _NO_TAGS
    if isinstance(value, bytes):
        return value
    return _VERSION + partitions(value) + _NO_TAGS


@lru_cache(maxsize=1024)
def _write_member(member: MemberSubscription) -> bytes:
    return b"".join(
        (
            _VERSION,
            compact_string(member.instance_id),
            compact_string(member.rack_id),
            compact_string(member.client_id),
            compact_string(member.client_host),
            array(map(compact_string, member.topics)),
            compact_string(member.regex),
            INT32.pack(member.rebalance_timeout_ms),
            compact_string(member.assignor),
            tagged(_ONLY_TAG, _write_classic(member.classic)),
        )
    )


def _write_classic(classic: ClassicMember | None) -> bytes:
    if classic is None:
        # Kafka writes the field even if it is null: its default is another value.
        return _ABSENT
    protocols = (
        compact_string(name) + compact_bytes(metadata) + _NO_TAGS for name, metadata in classic.protocols
    )
    return _PRESENT + INT32.pack(classic.session_timeout_ms) + array(protocols) + _NO_TAGS


# -- reading -------------------------------------------------------------------------------------------------


def read_value(key: ConsumerKey, value: bytes) -> Value:
    """The value of a record; that of type 4 as it stands. Raises `FormatError`."""
    if key.kind is RecordKind.PARTITION_METADATA:
        return value
    reader = Reader(value)
    version = reader.number(INT16)
    if version != 0:
        raise FormatError(f"version {version} of a record of type {int(key.kind)} is not known")
    return _READERS[key.kind](reader, key.name)


def _read_epoch(reader: Reader, _: str) -> GroupEpoch:
    epoch = reader.number(INT32)
    hashed = reader.tags().get(_ONLY_TAG)
    return GroupEpoch(epoch, 0 if hashed is None else Reader(hashed).number(INT64))


def _read_member(reader: Reader, member_id: str) -> MemberSubscription:
    instance_id, rack_id = reader.nullable_string(), reader.nullable_string()
    client_id, client_host = reader.string(), reader.string()
    topics = tuple(reader.items(Reader.string))
    regex = reader.nullable_string()
    rebalance_timeout_ms = reader.number(INT32)
    assignor = reader.nullable_string()
    classic = reader.tags().get(_ONLY_TAG)
    return MemberSubscription(
        member_id,
        instance_id,
        rack_id,
        client_id,
        client_host,
        topics,
        regex,
        rebalance_timeout_ms,
        assignor,
        None if classic is None else _read_classic(Reader(classic)),
    )


def _read_classic(reader: Reader) -> ClassicMember | None:
    if reader.take(1) != _PRESENT:
        return None
    session_timeout_ms = reader.number(INT32)
    return ClassicMember(session_timeout_ms, tuple(reader.items(_read_protocol)))


def _read_protocol(reader: Reader) -> tuple[str, bytes]:
    protocol = reader.string(), reader.compact_bytes()
    reader.tags()
    return protocol


def _read_assignment_epoch(reader: Reader, _: str) -> int:
    return reader.number(INT32)


def _read_target(reader: Reader, _: str) -> Partitions:
    return reader.partitions()


def _read_current(reader: Reader, _: str) -> CurrentAssignment:
    epoch, previous_epoch, number = reader.number(INT32), reader.number(INT32), reader.number(INT8)
    try:
        state = MemberState(number)
    except ValueError:
        state = MemberState.UNKNOWN
    return CurrentAssignment(epoch, previous_epoch, state, reader.partitions(), reader.partitions())


def _read_regex(reader: Reader, _: str) -> ResolvedRegex:
    return ResolvedRegex(tuple(reader.items(Reader.string)), reader.number(INT64), reader.number(INT64))


_READERS: Final[Mapping[RecordKind, Callable[[Reader, str], Value]]] = MappingProxyType(
    {
        RecordKind.EPOCH: _read_epoch,
        RecordKind.MEMBER: _read_member,
        RecordKind.ASSIGNMENT_EPOCH: _read_assignment_epoch,
        RecordKind.TARGET: _read_target,
        RecordKind.CURRENT: _read_current,
        RecordKind.REGEX: _read_regex,
    }
)
