"""Reads and writes the messages of which a transaction consists, by hand because every transaction has them.

Rules: AddPartitionsToTxn (requests of versions 0 to 3, which clients send), EndTxn and WriteTxnMarkers of
Kafka's message schemas. A reader takes and refuses the same bytes as the reader of entities; a property test
holds both equal. All readers raise MalformedMessageError.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from klog.formats.names import TopicPartition
from klog.protocol.primitives import (
    INT32,
    INT64,
    Buffer,
    end_of,
    read_items,
    read_name,
    read_tags,
    write_bytes_size,
    write_string,
)

ADD_PARTITIONS_FLEXIBLE_FROM: Final = 3
END_TXN_FLEXIBLE_FROM: Final = 3  # AddOffsetsToTxn, too
MARKERS_FLEXIBLE_FROM: Final = 1

_PRODUCER: Final = struct.Struct(">qh")
_PRODUCER_RESULT: Final = struct.Struct(">qh?")
_INDEX_ERROR: Final = struct.Struct(">ih")
_THROTTLE_ERROR: Final = struct.Struct(">ih")
_NO_THROTTLE: Final = INT32.pack(0)
_NO_TAGS: Final = b"\0"


class AddPartitions(NamedTuple):
    """An AddPartitionsToTxn request of a client; each partition occurs once, in the order of the request."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: Collection[TopicPartition]


class EndTxn(NamedTuple):
    """An EndTxn request."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    committed: bool


class TxnMarker(NamedTuple):
    """What a WriteTxnMarkers request says of one transaction; each partition occurs once."""

    producer_id: int
    producer_epoch: int
    committed: bool
    partitions: Collection[TopicPartition]
    coordinator_epoch: int


# -- requests of producers -----------------------------------------------------------------------------------


def read_add_partitions(version: int, body: Buffer) -> AddPartitions:
    """An AddPartitionsToTxn request of a version below 4."""
    flexible = version >= ADD_PARTITIONS_FLEXIBLE_FROM
    body = bytes(body)
    transactional_id, position = read_name(body, 0, flexible)
    end = end_of(body, position, _PRODUCER.size)
    producer_id, epoch = _PRODUCER.unpack_from(body, position)
    partitions, position = _read_partitions(body, end, flexible)
    if flexible:
        read_tags(body, position)
    return AddPartitions(transactional_id, producer_id, epoch, partitions)


def read_end_txn(version: int, body: Buffer) -> EndTxn:
    """An EndTxn request."""
    flexible = version >= END_TXN_FLEXIBLE_FROM
    body = bytes(body)
    transactional_id, position = read_name(body, 0, flexible)
    end = end_of(body, position, _PRODUCER_RESULT.size)
    producer_id, epoch, committed = _PRODUCER_RESULT.unpack_from(body, position)
    if flexible:
        read_tags(body, end)
    return EndTxn(transactional_id, producer_id, epoch, committed)


def _read_partitions(body: bytes, position: int, flexible: bool) -> tuple[Collection[TopicPartition], int]:
    """Topics with the numbers of partitions, as a dictionary's keys; and the position after them."""
    topics, position = read_items(body, position, flexible)
    found: dict[TopicPartition, None] = {}
    for _ in range(topics):
        name, position = read_name(body, position, flexible)
        count, position = read_items(body, position, flexible)
        end = end_of(body, position, count * INT32.size)
        for number in struct.unpack_from(f">{count}i", body, position):
            found[TopicPartition(name, number)] = None
        position = read_tags(body, end)[1] if flexible else end
    return found.keys(), position


# -- answers to producers ------------------------------------------------------------------------------------


def write_error(version: int, error: int) -> bytes:
    """The answer to EndTxn and AddOffsetsToTxn, unthrottled."""
    return _THROTTLE_ERROR.pack(0, error) + (_NO_TAGS if version >= END_TXN_FLEXIBLE_FROM else b"")


def write_added_partitions(version: int, errors: Mapping[TopicPartition, int]) -> bytes:
    """The answer to an AddPartitionsToTxn request of a version below 4, unthrottled: topics in the order of
    their first partition.
    """
    flexible = version >= ADD_PARTITIONS_FLEXIBLE_FROM
    parts = [_NO_THROTTLE]
    _write_errors(parts, errors, flexible)
    if flexible:
        parts.append(_NO_TAGS)
    return b"".join(parts)


def _write_errors(parts: list[bytes], errors: Mapping[TopicPartition, int], flexible: bool) -> None:
    end = _NO_TAGS if flexible else b""
    by_topic: dict[str, list[bytes]] = {}
    for (topic, number), error in errors.items():
        by_topic.setdefault(topic, []).append(_INDEX_ERROR.pack(number, error) + end)
    parts.append(write_bytes_size(len(by_topic), flexible))
    for topic, results in by_topic.items():
        parts += (write_string(topic, flexible), write_bytes_size(len(results), flexible))
        parts += results
        parts.append(end)


# -- markers -------------------------------------------------------------------------------------------------


def read_markers(version: int, body: Buffer) -> list[TxnMarker]:
    """A WriteTxnMarkers request."""
    flexible = version >= MARKERS_FLEXIBLE_FROM
    body = bytes(body)
    count, position = read_items(body, 0, flexible)
    markers: list[TxnMarker] = []
    for _ in range(count):
        end = end_of(body, position, _PRODUCER_RESULT.size)
        producer_id, epoch, committed = _PRODUCER_RESULT.unpack_from(body, position)
        partitions, position = _read_partitions(body, end, flexible)
        end = end_of(body, position, INT32.size)
        coordinator_epoch: int = INT32.unpack_from(body, position)[0]
        position = read_tags(body, end)[1] if flexible else end
        markers.append(TxnMarker(producer_id, epoch, committed, partitions, coordinator_epoch))
    if flexible:
        read_tags(body, position)
    return markers


def write_markers(version: int, markers: Collection[TxnMarker]) -> bytes:
    """A WriteTxnMarkers request; topics and partitions are sorted."""
    flexible = version >= MARKERS_FLEXIBLE_FROM
    end = _NO_TAGS if flexible else b""
    parts = [write_bytes_size(len(markers), flexible)]
    for marker in markers:
        parts.append(_PRODUCER_RESULT.pack(marker.producer_id, marker.producer_epoch, marker.committed))
        by_topic: dict[str, list[int]] = {}
        for topic, number in sorted(marker.partitions):
            by_topic.setdefault(topic, []).append(number)
        parts.append(write_bytes_size(len(by_topic), flexible))
        for topic, numbers in by_topic.items():
            parts += (write_string(topic, flexible), write_bytes_size(len(numbers), flexible))
            parts += (struct.pack(f">{len(numbers)}i", *numbers), end)
        parts += (INT32.pack(marker.coordinator_epoch), end)
    parts.append(end)
    return b"".join(parts)


MarkerErrorCodes = dict[int, dict[TopicPartition, int]]
"""The error codes of a WriteTxnMarkers answer, by producer id and partition."""


def read_written_markers(version: int, body: Buffer) -> MarkerErrorCodes:
    """The answer to a WriteTxnMarkers request. If something occurs twice, the last one counts."""
    flexible = version >= MARKERS_FLEXIBLE_FROM
    body = bytes(body)
    producers, position = read_items(body, 0, flexible)
    errors: MarkerErrorCodes = {}
    for _ in range(producers):
        end = end_of(body, position, INT64.size)
        producer_id: int = INT64.unpack_from(body, position)[0]
        position = _read_errors(body, end, flexible, errors.setdefault(producer_id, {}))
        if flexible:
            position = read_tags(body, position)[1]
    if flexible:
        read_tags(body, position)
    return errors


def _read_errors(body: bytes, position: int, flexible: bool, errors: dict[TopicPartition, int]) -> int:
    topics, position = read_items(body, position, flexible)
    for _ in range(topics):
        name, position = read_name(body, position, flexible)
        partitions, position = read_items(body, position, flexible)
        for _ in range(partitions):
            end = end_of(body, position, _INDEX_ERROR.size)
            number, error = _INDEX_ERROR.unpack_from(body, position)
            position = read_tags(body, end)[1] if flexible else end
            errors[TopicPartition(name, number)] = error
        if flexible:
            position = read_tags(body, position)[1]
    return position


def write_written_markers(version: int, errors: Mapping[int, Mapping[TopicPartition, int]]) -> bytes:
    """The answer to a WriteTxnMarkers request: the errors by producer id and partition."""
    flexible = version >= MARKERS_FLEXIBLE_FROM
    end = _NO_TAGS if flexible else b""
    parts = [write_bytes_size(len(errors), flexible)]
    for producer_id, of_producer in errors.items():
        parts.append(INT64.pack(producer_id))
        _write_errors(parts, of_producer, flexible)
        parts.append(end)
    parts.append(end)
    return b"".join(parts)
