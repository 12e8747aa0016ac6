"""Reads and writes what members of a consumer group tell each other: subscriptions and assignments.

Rules: Kafka's ConsumerProtocolSubscription and ConsumerProtocolAssignment, versions 0 to 3. All versions
begin with the fields of version 0, and a reader skips what it does not know. Some clients write the version
of a later one without its fields (kafka-go), so a message may end after any field.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from klog.formats.errors import FormatError
from klog.formats.names import TopicPartition, partitions_by_topic

PROTOCOL_TYPE: Final = "consumer"
NO_GENERATION: Final = -1
_VERSION: Final = 2  # with owned partitions (1) and the generation that they are of (2, KIP-792)
_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")


class Subscription(NamedTuple):
    """What a member wants to read, and which partitions it held in which generation."""

    topics: tuple[str, ...]
    user_data: bytes = b""
    owned: tuple[TopicPartition, ...] = ()
    generation: int = NO_GENERATION
    rack_id: str | None = None


def encode_subscription(subscription: Subscription) -> bytes:
    """The bytes of a subscription."""
    return b"".join(
        (
            _INT16.pack(_VERSION),
            _INT32.pack(len(subscription.topics)),
            *map(_string, subscription.topics),
            _bytes(subscription.user_data),
            _partitions(subscription.owned),
            _INT32.pack(subscription.generation),
        )
    )


def encode_assignment(partitions: Iterable[TopicPartition], version: int = _VERSION) -> bytes:
    """The bytes of an assignment; all versions have the same fields."""
    return b"".join((_INT16.pack(version), _partitions(partitions), _bytes(b"")))


def _string(text: str) -> bytes:
    data = text.encode()
    return _INT16.pack(len(data)) + data


def _bytes(data: bytes) -> bytes:
    return _INT32.pack(len(data)) + data


def _partitions(partitions: Iterable[TopicPartition]) -> bytes:
    by_topic = partitions_by_topic(partitions)
    return _INT32.pack(len(by_topic)) + b"".join(
        _string(topic) + struct.pack(f">i{len(numbers)}i", len(numbers), *numbers)
        for topic, numbers in by_topic.items()
    )


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def has_more(self) -> bool:
        return self._position < len(self._data)

    def _take(self, size: int) -> bytes:
        taken = self._data[self._position : self._position + size]
        if size < 0 or len(taken) < size:
            raise FormatError("metadata of a group member ends too early")
        self._position += size
        return taken

    def int16(self) -> int:
        return int(_INT16.unpack(self._take(_INT16.size))[0])

    def int32(self) -> int:
        return int(_INT32.unpack(self._take(_INT32.size))[0])

    def count(self) -> int:
        count = self.int32()
        if count > len(self._data):
            raise FormatError(f"metadata of a group member has {count} elements")
        return count

    def string(self) -> str:
        return self._take(self.int16()).decode("utf-8", "replace")

    def nullable_string(self) -> str | None:
        size = self.int16()
        return None if size < 0 else self._take(size).decode("utf-8", "replace")

    def bytes(self) -> bytes:
        size = self.int32()
        return b"" if size < 0 else self._take(size)

    def partitions(self) -> tuple[TopicPartition, ...]:
        found: list[TopicPartition] = []
        for _ in range(self.count()):
            topic = self.string()
            found += [TopicPartition(topic, self.int32()) for _ in range(self.count())]
        return tuple(found)


def decode_subscription(data: bytes) -> Subscription:
    """The subscription of a member. Raises FormatError."""
    reader = _Reader(data)
    version = reader.int16()
    topics = tuple(reader.string() for _ in range(reader.count()))
    found = Subscription(topics)
    if reader.has_more():
        found = found._replace(user_data=reader.bytes())
    if version >= 1 and reader.has_more():
        found = found._replace(owned=reader.partitions())
    if version >= 2 and reader.has_more():  # KIP-792
        found = found._replace(generation=reader.int32())
    if version >= 3 and reader.has_more():  # KIP-881
        found = found._replace(rack_id=reader.nullable_string())
    return found


def decode_assignment(data: bytes) -> tuple[TopicPartition, ...]:
    """The partitions of an assignment; a member that the leader left out has no bytes. Raises FormatError."""
    if not data:
        return ()
    reader = _Reader(data)
    reader.int16()
    return reader.partitions()


Assignment = Mapping[str, Sequence[TopicPartition]]
"""The partitions of each member, by its id."""
