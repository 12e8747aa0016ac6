"""Reads and writes Produce requests, versions 0 to 11. Written by hand, because brokers read them most.

Rules: ProduceRequest of Kafka's message schemas. Records are views into the frame, so that offsets can be
set in place if the frame is writable; nothing is copied. Version 3 added the transactional id, 9 the
compact types. Versions 0 to 2 carry message sets of magic 0 and 1, which the log checks.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple, TypeAlias

from klog.protocol.errors import MalformedMessageError, UnencodableMessageError
from klog.protocol.primitives import (
    INT32,
    UVARINT_MAX_BYTES,
    read_bytes,
    read_items,
    read_name,
    read_string,
    read_tags,
    read_uvarint,
    text_of,
    write_bytes_size,
    write_string,
)

FLEXIBLE_FROM: Final = 9
_ACKS_TIMEOUT: Final = struct.Struct(">hi")

Records: TypeAlias = memoryview | None
PartitionRecords: TypeAlias = tuple[int, Records]


class ProduceRequest(NamedTuple):
    """The records to write: for each topic its name and (partition, records) pairs.

    `acks` is 0, 1 or -1 (all in-sync replicas); `records` is None if the producer sent null.
    """

    transactional_id: str | None
    acks: int
    timeout_ms: int
    topics: list[tuple[str, list[PartitionRecords]]]


def decode_produce_request(version: int, body: memoryview) -> ProduceRequest:
    """Raises MalformedMessageError."""
    try:
        if version >= FLEXIBLE_FROM:
            return _decode_usual(body) or _decode_flexible(body)
        return _decode_classic(version, body)
    except (struct.error, IndexError) as error:
        raise MalformedMessageError("the Produce request ends too early") from error


def _decode_classic(version: int, body: memoryview) -> ProduceRequest:
    transactional_id, position = read_string(body, 0, False) if version >= 3 else (None, 0)
    acks, timeout_ms = _ACKS_TIMEOUT.unpack_from(body, position)
    count, position = read_items(body, position + 6, False)
    topics = []
    for _ in range(count):
        name, position = read_name(body, position, False)
        partition_count, position = read_items(body, position, False)
        partitions: list[PartitionRecords] = []
        for _ in range(partition_count):
            index, size = _INDEX_SIZE.unpack_from(body, position)
            start = position + 8
            position = start + size
            if size > 0:
                records = body[start:position]
                if len(records) != size:
                    raise MalformedMessageError("records that end after the request", position_bytes=start)
                partitions.append((index, records))
            elif size < 0:
                position = start
                partitions.append((index, None))
            else:
                partitions.append((index, body[start:start]))
        topics.append((name, partitions))
    return ProduceRequest(transactional_id, acks, timeout_ms, topics)


_INDEX_SIZE: Final = struct.Struct(">ii")


def _decode_usual(body: memoryview) -> ProduceRequest | None:
    """The usual request, read without a call for each field: records for one partition, no transactional id,
    no tags. None for any other request.
    """
    # A copy of the bytes before the records: single bytes are slow to read through a view.
    head = bytes(body[:_USUAL_HEAD_MAX_BYTES])
    if len(head) < _USUAL_HEAD.size:
        return None
    no_id, acks, timeout_ms, topics, name_size = _USUAL_HEAD.unpack_from(head)
    name_end = _USUAL_HEAD.size + name_size - 1
    partition_end = name_end + _PARTITION_HEAD.size
    if no_id or topics != _ONE_ITEM or not 1 < name_size < 0x80 or partition_end >= len(head):
        return None
    partitions, index = _PARTITION_HEAD.unpack_from(head, name_end)
    if partitions != _ONE_ITEM:
        return None
    records_size, start = read_uvarint(head, partition_end)
    end = start + records_size - 1
    if not records_size or end + len(_NO_TAGS) != len(body) or bytes(body[end:]) != _NO_TAGS:
        return None
    name = text_of(head[_USUAL_HEAD.size : name_end])
    return ProduceRequest(None, acks, timeout_ms, [(name, [(index, body[start:end])])])


# The null transactional id, acks, timeout, the number of topics and the size of the name; then, after the
# name, the number of partitions and the index of the one. Numbers of items are one more than they are.
_USUAL_HEAD: Final = struct.Struct(">BhiBB")
_PARTITION_HEAD: Final = struct.Struct(">Bi")
_USUAL_HEAD_MAX_BYTES: Final = _USUAL_HEAD.size + 0x7F + _PARTITION_HEAD.size + UVARINT_MAX_BYTES
_ONE_ITEM: Final = 2
_NO_TAGS: Final = b"\0\0\0"  # of the partition, the topic and the request


def _decode_flexible(body: memoryview) -> ProduceRequest:
    transactional_id, position = read_string(body, 0, True)
    acks, timeout_ms = _ACKS_TIMEOUT.unpack_from(body, position)
    count, position = read_items(body, position + 6, True)
    topics = []
    for _ in range(count):
        name, position = read_name(body, position, True)
        partition_count, position = read_items(body, position, True)
        partitions: list[PartitionRecords] = []
        for _ in range(partition_count):
            index = INT32.unpack_from(body, position)[0]
            records, position = read_bytes(body, position + 4, True)
            position = _skip_tags(body, position)
            partitions.append((index, records))  # type: ignore[arg-type]  # a slice of a view is a view
        position = _skip_tags(body, position)
        topics.append((name, partitions))
    _skip_tags(body, position)
    return ProduceRequest(transactional_id, acks, timeout_ms, topics)


def _skip_tags(body: memoryview, position: int) -> int:
    return position + 1 if body[position] == 0 else read_tags(body, position)[1]


def encode_produce_request(version: int, request: ProduceRequest) -> list[bytes | memoryview]:
    """The body as buffers; records are not copied. Raises UnencodableMessageError."""
    flexible = version >= FLEXIBLE_FROM
    end = b"\0" if flexible else b""
    parts: list[bytes | memoryview] = []
    try:
        if version >= 3:
            parts.append(write_string(request.transactional_id, flexible))
        parts.append(_ACKS_TIMEOUT.pack(request.acks, request.timeout_ms))
        parts.append(write_bytes_size(len(request.topics), flexible))
        for name, partitions in request.topics:
            parts += (write_string(name, flexible), write_bytes_size(len(partitions), flexible))
            _append_partitions(parts, partitions, flexible)
            parts.append(end)
    except struct.error as error:
        raise UnencodableMessageError(
            f"a Produce request that does not fit its wire types: {error}"
        ) from error
    parts.append(end)
    return parts


def _append_partitions(
    parts: list[bytes | memoryview], partitions: Sequence[PartitionRecords], flexible: bool
) -> None:
    for index, records in partitions:
        parts.append(
            INT32.pack(index) + write_bytes_size(None if records is None else len(records), flexible)
        )
        if records is not None:
            parts.append(records)
        if flexible:
            parts.append(b"\0")
