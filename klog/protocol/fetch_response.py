"""Reads and writes Fetch responses, versions 0 to 17: buffers with file slices between them, not copied.

Rules: FetchResponse of Kafka's message schemas; the KIPs that fetch_request names, and KIP-951 (endpoints
of new leaders, version 16).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple, TypeAlias
from uuid import UUID

from klog.formats.epochs import EpochEnd
from klog.protocol.fetch_request import FLEXIBLE_FROM, TOPIC
from klog.protocol.file_slice import BodyPart, BodyParts, parts_of
from klog.protocol.leader_hints import LEADER, NO_HINT, NODE, LeaderHint, NodeEndpoint
from klog.protocol.message_tables import Message, Part, Struct
from klog.protocol.primitives import INT32, Buffer, write_bytes_size

_EPOCH: Final = Struct(EpochEnd, (Part("epoch", "int32"), Part("end_offset", "int64")))

AbortedTransactions: TypeAlias = Sequence[tuple[int, int]] | None


NOT_DIVERGING: Final = EpochEnd()


class PartitionFetched(NamedTuple):
    """The answer for one partition.

    `records`: bytes or a file slice, or several of them in a row; None is null, as Kafka sends for errors.
    `aborted_transactions`: (producer id, first offset) pairs; None, as Kafka sends below read committed, is
    null.
    """

    partition: int
    error_code: int
    high_watermark: int
    last_stable_offset: int = -1
    log_start_offset: int = -1
    aborted_transactions: AbortedTransactions = None
    preferred_read_replica: int = -1
    records: BodyParts = None
    diverging_epoch: EpochEnd = NOT_DIVERGING
    current_leader: LeaderHint = NO_HINT


class TopicFetched(NamedTuple):
    """One topic's partitions; by name below version 13, by id from there on."""

    name: str | None
    topic_id: UUID | None
    partitions: list[PartitionFetched]


class FetchResponse(NamedTuple):
    """The answer to a Fetch request."""

    topics: list[TopicFetched]
    error_code: int = 0
    session_id: int = 0
    throttle_time_ms: int = 0
    node_endpoints: tuple[NodeEndpoint, ...] = ()


def encode_fetch_response(version: int, response: FetchResponse) -> list[BodyPart]:
    """The body as buffers and file slices, in order. Raises UnencodableMessageError."""
    parts: list[BodyPart] = []
    pending: list[bytes] = []
    for part in _MESSAGE.write(version, response):
        if type(part) is bytes:
            pending.append(part)
        else:
            parts += (b"".join(pending), part)
            pending.clear()
    if pending:
        parts.append(b"".join(pending))
    return parts


def size_of_records(records: BodyParts) -> int:
    """The size in bytes; 0 for null."""
    return max(parts_of(records)[1], 0)


class AnswerTemplate(NamedTuple):
    """A response frame for one partition that has records and no error, but for what differs each time.

    `layout` has all that comes before the size of the records: the frame's size, the correlation id,
    `before_session`, the session id if the version has one, `before_offsets`, the offsets, and
    `before_size`. The records and `after` follow the size.
    """

    version: int
    layout: struct.Struct
    before_session: bytes
    before_offsets: bytes
    before_size: bytes
    after: bytes

    def head(
        self,
        correlation_id: int,
        session_id: int,
        high_watermark: int,
        last_stable_offset: int,
        log_start_offset: int,
        size: int,
    ) -> bytes:
        """All that comes before the records, which have `size` bytes. Raises struct.error."""
        version, layout = self.version, self.layout
        records_size = write_bytes_size(size, version >= FLEXIBLE_FROM)
        follows = layout.size - INT32.size + len(records_size) + size + len(self.after)
        offsets = high_watermark, last_stable_offset, log_start_offset
        if version >= 7:
            before = layout.pack(
                follows,
                correlation_id,
                self.before_session,
                session_id,
                self.before_offsets,
                *offsets,
                self.before_size,
            )
        else:
            start = self.before_session + self.before_offsets
            known = offsets if version >= 5 else offsets[:2]
            before = layout.pack(follows, correlation_id, start, *known, self.before_size)
        return before + records_size


def answer_template(
    version: int, name: str, topic_id: UUID | None, partition: int, *, committed: bool
) -> AnswerTemplate:
    """The template for a topic, which answers name by its id from version 13 on.

    `committed` is the isolation level; the answer has no aborted transactions. Raises struct.error.
    """
    flexible = version >= FLEXIBLE_FROM
    fetched = PartitionFetched(partition, 0, 0, 0, 0, () if committed else None, records=b"")
    whole = b"".join(_MESSAGE.write(version, FetchResponse([TopicFetched(name, topic_id, [fetched])])))
    end = b"\0" if flexible else b""
    # Tagged fields, of which there are none: of the partition, of the topic, of the response.
    after = 3 * end
    count_bytes = len(write_bytes_size(0, flexible))
    size_at = len(whole) - len(after) - count_bytes
    offsets_end = size_at - count_bytes - (INT32.size if version >= 11 else 0)
    offsets = "qqq" if version >= 5 else "qq"
    offsets_at = offsets_end - struct.calcsize(f">{offsets}")
    # Throttle time, and from version 7 on an error and the session.
    session_at, session_end = (6, 10) if version >= 7 else (4, 4)
    before_session, before_offsets = end + whole[:session_at], whole[session_end:offsets_at]
    before_size = whole[offsets_end:size_at]
    if version >= 7:
        start = f"{len(before_session)}si{len(before_offsets)}s"
    else:
        start = f"{len(before_session + before_offsets)}s"
    layout = struct.Struct(f">ii{start}{offsets}{len(before_size)}s")
    return AnswerTemplate(version, layout, before_session, before_offsets, before_size, after)


_ABORTED_TRANSACTION: Final = Struct(tuple, (Part("producer_id", "int64"), Part("first_offset", "int64")))
_PARTITION: Final = Struct(
    PartitionFetched,
    (
        Part("partition", "int32"),
        Part("error_code", "int16"),
        Part("high_watermark", "int64"),
        Part("last_stable_offset", "int64", since=4, default=-1),
        Part("log_start_offset", "int64", since=5, default=-1),
        Part("aborted_transactions", _ABORTED_TRANSACTION, since=4, array=list, nullable=True),
        Part("preferred_read_replica", "int32", since=11, default=-1),
        Part("records", "parts"),
        Part("diverging_epoch", _EPOCH, since=12, tag=0, default=NOT_DIVERGING),
        Part("current_leader", LEADER, since=12, tag=1, default=NO_HINT),
    ),
)
_MESSAGE: Final = Message(
    "Fetch response",
    FLEXIBLE_FROM,
    Struct(
        FetchResponse,
        (
            Part("throttle_time_ms", "int32", since=1, default=0),
            Part("error_code", "int16", since=7, default=0),
            Part("session_id", "int32", since=7, default=0),
            Part(
                "topics",
                Struct(TopicFetched, (*TOPIC, Part("partitions", _PARTITION, array=list))),
                array=list,
            ),
            Part("node_endpoints", NODE, since=16, array=tuple, tag=0, default=()),
        ),
    ),
    copies=False,
)


def decode_fetch_response(version: int, body: Buffer) -> FetchResponse:
    """The response with records as slices of the body (views of a view). Raises MalformedMessageError."""
    response: FetchResponse = _MESSAGE.read(version, body)
    return response
