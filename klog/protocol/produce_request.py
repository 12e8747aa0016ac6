"""Reads and writes Produce requests, versions 0 to 11.

Rules: ProduceRequest of Kafka's message schemas. Records are views into the frame, so that offsets can be
set in place if the frame is writable; nothing is copied. Version 3 added the transactional id, 9 the
compact types. Versions 0 to 2 carry message sets of magic 0 and 1, which the log checks.
"""

from __future__ import annotations

from typing import Final, NamedTuple, TypeAlias

from klog.protocol.message_tables import Message, Part, Struct

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


def decode_produce_request(version: int, body: memoryview) -> ProduceRequest:
    """Raises MalformedMessageError."""
    request: ProduceRequest = _MESSAGE.read(version, body)
    return request


def encode_produce_request(version: int, request: ProduceRequest) -> list[bytes | memoryview]:
    """The body as buffers; records are not copied. Raises UnencodableMessageError."""
    return _MESSAGE.write(version, request)
