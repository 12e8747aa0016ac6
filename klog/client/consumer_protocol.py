"""Reads and writes what members of a consumer group tell each other: subscriptions and assignments.

Rules: Kafka's ConsumerProtocolSubscription and ConsumerProtocolAssignment, versions 0 to 3. All versions
begin with the fields of version 0, and a reader skips what it does not know. Some clients write the version
of a later one without its fields (kafka-go), so a message may end after any field.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple

from klog.formats.errors import FormatError
from klog.formats.names import TopicPartition, partitions_by_topic
from klog.protocol.errors import MalformedMessageError
from klog.protocol.primitives import (
    INT16,
    INT32,
    read_bytes,
    read_count,
    read_int16,
    read_int32,
    read_items,
    read_name,
    read_string,
    write_bytes_size,
    write_string,
)

PROTOCOL_TYPE: Final = "consumer"
NO_GENERATION: Final = -1
_VERSION: Final = 2  # with owned partitions (1) and the generation that they are of (2, KIP-792)


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
            INT16.pack(_VERSION),
            write_bytes_size(len(subscription.topics), False),
            *(write_string(topic, False) for topic in subscription.topics),
            _bytes(subscription.user_data),
            _partitions(subscription.owned),
            INT32.pack(subscription.generation),
        )
    )


def encode_assignment(partitions: Iterable[TopicPartition], version: int = _VERSION) -> bytes:
    """The bytes of an assignment; all versions have the same fields."""
    return b"".join((INT16.pack(version), _partitions(partitions), _bytes(b"")))


def _bytes(data: bytes) -> bytes:
    return write_bytes_size(len(data), False) + data


def _partitions(partitions: Iterable[TopicPartition]) -> bytes:
    by_topic = partitions_by_topic(partitions)
    return write_bytes_size(len(by_topic), False) + b"".join(
        write_string(topic, False)
        + write_bytes_size(len(numbers), False)
        + b"".join(map(INT32.pack, numbers))
        for topic, numbers in by_topic.items()
    )


def decode_subscription(data: bytes) -> Subscription:
    """The subscription of a member. Raises FormatError."""
    with _refused():
        version, topics, at = _start(data)
        found = Subscription(topics)
        if at < len(data):
            user_data, at = read_bytes(data, at, False)
            found = found._replace(user_data=bytes(user_data or b""))
        if version >= 1 and at < len(data):
            owned, at = _read_partitions(data, at)
            found = found._replace(owned=owned)
        if version >= 2 and at < len(data):  # KIP-792
            generation, at = read_int32(data, at)
            found = found._replace(generation=generation)
        if version >= 3 and at < len(data):  # KIP-881
            found = found._replace(rack_id=read_string(data, at, False)[0])
        return found


def subscribed_topics(data: bytes) -> tuple[str, ...]:
    """The topics of a subscription, whatever follows them. Raises FormatError."""
    with _refused():
        version, topics, _ = _start(data)
        if version < 0:
            raise FormatError(f"a subscription of version {version}")
        return topics


def decode_assignment(data: bytes) -> tuple[TopicPartition, ...]:
    """The partitions of an assignment; a member that the leader left out has no bytes. Raises FormatError."""
    with _refused():
        return _read_partitions(data, read_int16(data, 0)[1])[0] if data else ()


@contextmanager
def _refused() -> Iterator[None]:
    try:
        yield
    except MalformedMessageError as error:
        raise FormatError(f"metadata of a group member ends too early: {error}") from error


def _start(data: bytes) -> tuple[int, tuple[str, ...], int]:
    """The version and the topics of a subscription, and where they end."""
    version, at = read_int16(data, 0)
    count, at = read_items(data, at, False)
    topics = []
    for _ in range(count):
        topic, at = read_name(data, at, False)
        topics.append(topic)
    return version, tuple(topics), at


def _read_partitions(data: bytes, at: int) -> tuple[tuple[TopicPartition, ...], int]:
    found: list[TopicPartition] = []
    topics, at = read_count(data, at, False)
    for _ in range(topics or 0):
        topic, at = read_name(data, at, False)
        count, at = read_count(data, at, False)
        for _ in range(count or 0):
            number, at = read_int32(data, at)
            found.append(TopicPartition(topic, number))
    return tuple(found), at


Assignment = Mapping[str, Sequence[TopicPartition]]
"""The partitions of each member, by its id."""
