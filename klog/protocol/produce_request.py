"""Reads and writes Produce requests, versions 0 to 11. Usual ones are read by hand: brokers read them most.

Rules: ProduceRequest of Kafka's message schemas. Records are views into the frame, so that offsets can be
set in place if the frame is writable; nothing is copied. Version 3 added the transactional id, 9 the
compact types. Versions 0 to 2 carry message sets of magic 0 and 1, which the log checks.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple, TypeAlias

from klog.protocol.message_tables import Message, Part, Struct
from klog.protocol.primitives import UVARINT_MAX_BYTES, read_uvarint, text_of

FLEXIBLE_FROM: Final = 9

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
    usual = _decode_usual(body) if version >= FLEXIBLE_FROM else None
    request: ProduceRequest = usual or _MESSAGE.read(version, body)
    return request


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


_PARTITION: Final = Struct(tuple, (Part("index", "int32"), Part("records", "view")))
_TOPIC: Final = Struct(tuple, (Part("name", "string"), Part("partitions", _PARTITION, array=list)))
_MESSAGE: Final = Message(
    "Produce request",
    FLEXIBLE_FROM,
    Struct(
        ProduceRequest,
        (
            Part("transactional_id", "string", since=3, nullable=True),
            Part("acks", "int16"),
            Part("timeout_ms", "int32"),
            Part("topics", _TOPIC, array=list),
        ),
    ),
    copies=False,
)


def encode_produce_request(version: int, request: ProduceRequest) -> list[bytes | memoryview]:
    """The body as buffers; records are not copied. Raises UnencodableMessageError."""
    return _MESSAGE.write(version, request)
