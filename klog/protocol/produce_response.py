"""Reads and writes Produce responses, versions 0 to 11.

Rules: ProduceResponse of Kafka's message schemas, KIP-467 (record errors), KIP-951 (the new leader as
tagged fields of version 10 and later). Fields that a version does not have are left out.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from klog.protocol.leader_hints import LEADER, NO_HINT, NODE, LeaderHint, NodeEndpoint
from klog.protocol.message_tables import Message, Part, Struct
from klog.protocol.primitives import INT32, Buffer, write_bytes_size, write_string

FLEXIBLE_FROM: Final = 9


class PartitionProduced(NamedTuple):
    """How writing to one partition went. `record_errors` are (index in the batch, message) pairs."""

    partition: int
    error_code: int = 0
    base_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    record_errors: tuple[tuple[int, str | None], ...] = ()
    error_message: str | None = None
    current_leader: LeaderHint = NO_HINT


class ProduceResponse(NamedTuple):
    """The answer to a Produce request, topics by name."""

    topics: list[tuple[str, list[PartitionProduced]]]
    throttle_time_ms: int = 0
    node_endpoints: tuple[NodeEndpoint, ...] = ()


def encode_produce_response(version: int, response: ProduceResponse) -> bytes:
    """The body. Raises UnencodableMessageError."""
    return b"".join(_MESSAGE.write(version, response))


class AnswerTemplate(NamedTuple):
    """A whole response frame for one partition without an error, and where its numbers stand.

    The numbers are partition, error, base offset, append time and log start offset; correlation id, base
    offset and log start offset are to be filled in.
    """

    frame: bytes
    numbers_at: int


def answer_template(version: int, topic: str, partition: int) -> AnswerTemplate:
    """The template for a version from 5 on. Raises UnencodableMessageError."""
    flexible = version >= FLEXIBLE_FROM
    header = INT32.pack(0) + (b"\0" if flexible else b"")
    produced = PartitionProduced(partition, base_offset=0, log_start_offset=0)
    body = header + encode_produce_response(version, ProduceResponse([(topic, [produced])]))
    before = len(header) + len(write_string(topic, flexible)) + 2 * len(write_bytes_size(1, flexible))
    return AnswerTemplate(INT32.pack(len(body)) + body, INT32.size + before)


_RECORD_ERROR: Final = Struct(tuple, (Part("index", "int32"), Part("message", "string", nullable=True)))
_PARTITION: Final = Struct(
    PartitionProduced,
    (
        Part("partition", "int32"),
        Part("error_code", "int16"),
        Part("base_offset", "int64"),
        Part("log_append_time_ms", "int64", since=2, default=-1),
        Part("log_start_offset", "int64", since=5, default=-1),
        Part("record_errors", _RECORD_ERROR, since=8, array=tuple, default=()),
        Part("error_message", "string", since=8, nullable=True),
        Part("current_leader", LEADER, since=10, tag=0, default=NO_HINT),
    ),
)
_TOPIC: Final = Struct(tuple, (Part("name", "string"), Part("partitions", _PARTITION, array=list)))
_MESSAGE: Final = Message(
    "Produce response",
    FLEXIBLE_FROM,
    Struct(
        ProduceResponse,
        (
            Part("topics", _TOPIC, array=list),
            Part("throttle_time_ms", "int32", since=1, default=0),
            Part("node_endpoints", NODE, since=10, array=tuple, tag=0, default=()),
        ),
    ),
)


def decode_produce_response(version: int, body: Buffer) -> ProduceResponse:
    """Raises MalformedMessageError."""
    response: ProduceResponse = _MESSAGE.read(version, body)
    return response
