"""Reads and writes Fetch responses, versions 0 to 17: buffers with file slices between them, not copied.

Rules: FetchResponse of Kafka's message schemas; the KIPs that fetch_request names, and KIP-951 (endpoints
of new leaders, version 16). Writing is by hand, because brokers do it most: records stay files.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple, TypeAlias
from uuid import UUID

from klog.formats.epochs import EpochEnd
from klog.protocol.errors import UnencodableMessageError
from klog.protocol.fetch_request import FLEXIBLE_FROM, TOPIC, TOPIC_IDS_FROM
from klog.protocol.file_slice import BodyPart, FileSlice, LazyBytes
from klog.protocol.leader_hints import LEADER, NO_HINT, NODE, LeaderHint, NodeEndpoint, leader_tag, nodes_tag
from klog.protocol.message_tables import Message, Part, Struct
from klog.protocol.primitives import INT32, Buffer, write_bytes_size, write_string, write_tags

_DIVERGING_TAG: Final = 0
_LEADER_TAG: Final = 1
_NODES_TAG: Final = 0
_HEAD_V7: Final = struct.Struct(">ihi")  # throttle time, error, session id
_PARTITION_V1: Final = struct.Struct(">ihq")  # index, error, high watermark
_PARTITION_V4: Final = struct.Struct(">ihqq")  # index, error, high watermark, last stable offset
_PARTITION_V5: Final = struct.Struct(">ihqqq")  # and log start offset
_PARTITION_V0: Final = struct.Struct(">ih")  # index, error
_ABORTED: Final = struct.Struct(">qq")
_EPOCH_END: Final = struct.Struct(">iq")
_EPOCH: Final = Struct(EpochEnd, (Part("epoch", "int32"), Part("end_offset", "int64")))

Records: TypeAlias = BodyPart | Sequence[BodyPart] | None
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
    records: Records = None
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
    try:
        return _encode(version, response)
    except (struct.error, AttributeError) as error:
        raise UnencodableMessageError(
            f"a Fetch response that does not fit its wire types: {error}"
        ) from error


def _encode(version: int, response: FetchResponse) -> list[BodyPart]:
    flexible = version >= FLEXIBLE_FROM
    parts: list[BodyPart] = []
    pending = [_head(version, response), write_bytes_size(len(response.topics), flexible)]
    for topic in response.topics:
        pending += (_topic(version, flexible, topic), write_bytes_size(len(topic.partitions), flexible))
        for partition in topic.partitions:
            records, size = _records(partition.records)
            pending.append(_partition_head(version, flexible, partition))
            pending.append(write_bytes_size(size, flexible))
            if size:
                parts.append(b"".join(pending))
                pending.clear()
                parts += records
            if flexible:
                pending.append(_partition_tags(partition))
        if flexible:
            pending.append(b"\0")
    if flexible:
        pending.append(nodes_tag(_NODES_TAG, response.node_endpoints if version >= 16 else ()))
    if tail := b"".join(pending):
        parts.append(tail)
    return parts


def _head(version: int, response: FetchResponse) -> bytes:
    if version >= 7:
        return _HEAD_V7.pack(response.throttle_time_ms, response.error_code, response.session_id)
    return INT32.pack(response.throttle_time_ms) if version else b""


def _topic(version: int, flexible: bool, topic: TopicFetched) -> bytes:
    if version < TOPIC_IDS_FROM:
        return write_string(topic.name or "", flexible)
    return bytes(16) if topic.topic_id is None else topic.topic_id.bytes


def size_of_records(records: Records) -> int:
    """The size in bytes; 0 for null."""
    return _records(records)[1] or 0


def _records(records: Records) -> tuple[Sequence[BodyPart], int | None]:
    if records is None:
        return (), None
    if isinstance(records, FileSlice):
        return (records,), records.size_bytes
    if isinstance(records, bytes | bytearray | memoryview | LazyBytes):
        return (records,), len(records)
    return records, sum(part.size_bytes if isinstance(part, FileSlice) else len(part) for part in records)


def _partition_head(version: int, flexible: bool, partition: PartitionFetched) -> bytes:
    if version < 4:
        return _PARTITION_V1.pack(*partition[:3])
    head = _PARTITION_V5.pack(*partition[:5]) if version >= 5 else _PARTITION_V4.pack(*partition[:4])
    return head + _after_offsets(version, flexible, partition)


def _after_offsets(version: int, flexible: bool, partition: PartitionFetched) -> bytes:
    aborted = partition.aborted_transactions
    after = write_bytes_size(None if aborted is None else len(aborted), flexible)
    if aborted:
        end = b"\0" if flexible else b""
        after += b"".join(_ABORTED.pack(*transaction) + end for transaction in aborted)
    return after + INT32.pack(partition.preferred_read_replica) if version >= 11 else after


def _partition_tags(partition: PartitionFetched) -> bytes:
    if partition.diverging_epoch == NOT_DIVERGING and partition.current_leader == NO_HINT:
        return b"\0"
    tags = []
    if partition.diverging_epoch != NOT_DIVERGING:
        tags.append((_DIVERGING_TAG, _EPOCH_END.pack(*partition.diverging_epoch) + b"\0"))
    if partition.current_leader != NO_HINT:
        tags.append((_LEADER_TAG, leader_tag(partition.current_leader)))
    return write_tags(tags)


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
    end = b"\0" if flexible else b""
    one = write_bytes_size(1, flexible)
    fetched = PartitionFetched(partition, 0, -1, aborted_transactions=() if committed else None)
    # Throttle time, and from version 7 on an error.
    before_session = end + bytes(6 if version >= 7 else 4)
    topic = _topic(version, flexible, TopicFetched(name, topic_id, []))
    before_offsets = one + topic + one + _PARTITION_V0.pack(*fetched[:2])
    before_size = _after_offsets(version, flexible, fetched)
    if version >= 7:
        start = f"{len(before_session)}si{len(before_offsets)}s"
    else:
        start = f"{len(before_session + before_offsets)}s"
    offsets = "qqq" if version >= 5 else "qq"
    layout = struct.Struct(f">ii{start}{offsets}{len(before_size)}s")
    # No tagged fields: of the partition, of the topic, of the response.
    return AnswerTemplate(version, layout, before_session, before_offsets, before_size, 3 * end)


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
        Part("records", "view"),
        Part("diverging_epoch", _EPOCH, since=12, tag=_DIVERGING_TAG, default=NOT_DIVERGING),
        Part("current_leader", LEADER, since=12, tag=_LEADER_TAG, default=NO_HINT),
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
            Part("node_endpoints", NODE, since=FLEXIBLE_FROM, array=tuple, tag=_NODES_TAG, default=()),
        ),
    ),
    copies=False,
)


def decode_fetch_response(version: int, body: Buffer) -> FetchResponse:
    """The response with records as slices of the body (views of a view). Raises MalformedMessageError."""
    response: FetchResponse = _MESSAGE.read(version, body)
    return response
