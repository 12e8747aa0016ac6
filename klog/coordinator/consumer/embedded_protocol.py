"""Reads subscriptions and writes assignments of the classic protocol, for members that still use it.

Rules: Kafka's ConsumerProtocolSubscription and ConsumerProtocolAssignment, versions 0 to 3. A later version
has the fields of the earlier ones first. Some clients state a version whose fields they leave out: those
count as absent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from klog.coordinator.consumer.flexible import Reader
from klog.formats.errors import FormatError
from klog.formats.packed import INT16, INT32

_OWNED_FROM: Final = 1
_GENERATION_FROM: Final = 2
_RACK_FROM: Final = 3
_LAST_VERSION: Final = 3
_NULL_BYTES: Final = INT32.pack(-1)

NamedPartition = tuple[str, int]


class Subscription(NamedTuple):
    """What a member of the classic protocol subscribes to, and the partitions that it says it has."""

    version: int
    topics: tuple[str, ...]
    owned: frozenset[NamedPartition] = frozenset()
    rack_id: str | None = None


def read_subscription(metadata: bytes) -> Subscription:
    """A member's metadata. Raises `FormatError` if it has no topics."""
    reader = Reader(metadata)
    version = reader.number(INT16)
    if version < 0:
        raise FormatError(f"a subscription has version {version}")
    topics = tuple(reader.classic_string() for _ in range(_count(reader)))
    owned: frozenset[NamedPartition] = frozenset()
    rack_id = None
    try:
        _skip_bytes(reader)
        if version >= _OWNED_FROM:
            owned = _partitions(reader)
        if version >= _GENERATION_FROM:
            reader.number(INT32)
        if version >= _RACK_FROM:
            rack_id = _nullable_string(reader)
    except FormatError:
        pass  # the fields of a later version that a client left out
    return Subscription(version, topics, owned, rack_id)


def read_assignment(assignment: bytes) -> frozenset[NamedPartition]:
    """The partitions that a leader assigned to a member; empty bytes are none. Raises `FormatError`."""
    if not assignment:
        return frozenset()
    reader = Reader(assignment)
    reader.number(INT16)
    return _partitions(reader)


def write_assignment(version: int, assigned: Mapping[str, Sequence[int]]) -> bytes:
    """An assignment as a leader would make it, in the version of the member's subscription."""
    parts = [INT16.pack(min(version, _LAST_VERSION)), INT32.pack(len(assigned))]
    for topic, numbers in sorted(assigned.items()):
        name = topic.encode()
        parts += (INT16.pack(len(name)), name, INT32.pack(len(numbers)), *map(INT32.pack, numbers))
    return b"".join((*parts, _NULL_BYTES))


def _count(reader: Reader) -> int:
    """The number of items of an array; each takes two bytes or more."""
    count = reader.number(INT32)
    if not 0 <= count <= len(reader.data):
        raise FormatError(f"an array has {count} items", position_bytes=reader.position)
    return count


def _partitions(reader: Reader) -> frozenset[NamedPartition]:
    found: set[NamedPartition] = set()
    for _ in range(_count(reader)):
        topic = reader.classic_string()
        found.update((topic, reader.number(INT32)) for _ in range(_count(reader)))
    return frozenset(found)


def _skip_bytes(reader: Reader) -> None:
    size = reader.number(INT32)
    if size > 0:
        reader.take(size)


def _nullable_string(reader: Reader) -> str | None:
    size = reader.number(INT16)
    return None if size < 0 else reader.take(size).decode("utf-8", "replace")
