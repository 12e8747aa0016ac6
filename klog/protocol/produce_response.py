"""Reads and writes Produce responses, versions 0 to 11.

Rules: ProduceResponse of Kafka's message schemas, KIP-467 (record errors), KIP-951 (the new leader as
tagged fields of version 10 and later). Fields that a version does not have are left out.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Final, NamedTuple

from klog.protocol.errors import MalformedMessageError, UnencodableMessageError
from klog.protocol.leader_hints import (
    NO_HINT,
    LeaderHint,
    NodeEndpoint,
    endpoints_of_tag,
    leader_of_tag,
    leader_tag,
    nodes_tag,
)
from klog.protocol.primitives import (
    INT32,
    Buffer,
    read_int32,
    read_items,
    read_name,
    read_string,
    read_tags,
    write_bytes_size,
    write_string,
    write_tags,
)

FLEXIBLE_FROM: Final = 9
_LEADER_TAG: Final = 0
_NODES_TAG: Final = 0
_V0: Final = struct.Struct(">ihq")
_V2: Final = struct.Struct(">ihqq")
_V5: Final = struct.Struct(">ihqqq")
_NO_ERRORS: Final = {True: b"\x01\x00", False: b"\0\0\0\0\xff\xff"}


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


# The usual end of a partition's answer, after its numbers, and of a response, after its topics.
_NO_COMPLAINT: Final = PartitionProduced(0)[5:]
_NOTHING_MORE: Final = ProduceResponse([])[1:]
_ALL_NUMBERS_FROM: Final = 5


def encode_produce_response(version: int, response: ProduceResponse) -> bytes:
    """The body. Raises UnencodableMessageError."""
    try:
        if version >= _ALL_NUMBERS_FROM and len(response.topics) == 1 and response[1:] == _NOTHING_MORE:
            name, partitions = response.topics[0]
            # The usual answer: only its numbers differ from the answer before.
            if len(partitions) == 1 and partitions[0][5:] == _NO_COMPLAINT:
                before, after = _usual_parts(version, name)
                return before + _V5.pack(*partitions[0][:5]) + after
        return _encode(version, response)
    except struct.error as error:
        raise UnencodableMessageError(
            f"a Produce response that does not fit its wire types: {error}"
        ) from error


@lru_cache(maxsize=1024)
def _usual_parts(version: int, name: str) -> tuple[bytes, bytes]:
    """The bytes before and after the numbers of an answer for one partition without an error."""
    numbers = _V5.pack(*PartitionProduced(0)[:5])
    whole = _encode(version, ProduceResponse([(name, [PartitionProduced(0)])]))
    flexible = version >= FLEXIBLE_FROM
    before = len(write_string(name, flexible)) + 2 * len(write_bytes_size(1, flexible))
    return whole[:before], whole[before + len(numbers) :]


class AnswerTemplate(NamedTuple):
    """A whole response frame for one partition without an error, and where its numbers stand.

    The numbers are partition, error, base offset, append time and log start offset; correlation id, base
    offset and log start offset are to be filled in.
    """

    frame: bytes
    numbers_at: int


def answer_template(version: int, topic: str, partition: int) -> AnswerTemplate:
    """The template for a version from 5 on. Raises UnencodableMessageError."""
    header = INT32.pack(0) + (b"\0" if version >= FLEXIBLE_FROM else b"")
    before, after = _usual_parts(version, topic)
    body = header + before + _V5.pack(partition, 0, 0, -1, 0) + after
    return AnswerTemplate(INT32.pack(len(body)) + body, INT32.size + len(header) + len(before))


def _encode(version: int, response: ProduceResponse) -> bytes:
    """Raises struct.error."""
    flexible = version >= FLEXIBLE_FROM
    parts = [write_bytes_size(len(response.topics), flexible)]
    for name, partitions in response.topics:
        parts += (write_string(name, flexible), write_bytes_size(len(partitions), flexible))
        parts += [_partition(version, flexible, partition) for partition in partitions]
        if flexible:
            parts.append(b"\0")
    if version >= 1:
        parts.append(INT32.pack(response.throttle_time_ms))
    if flexible:
        parts.append(nodes_tag(_NODES_TAG, response.node_endpoints if version >= 10 else ()))
    return b"".join(parts)


def _partition(version: int, flexible: bool, partition: PartitionProduced) -> bytes:
    if version >= 5:
        head = _V5.pack(*partition[:5])
    elif version >= 2:
        head = _V2.pack(*partition[:4])
    else:
        head = _V0.pack(*partition[:3])
    if version < 8:
        return head
    if partition.record_errors or partition.error_message is not None:
        head += _errors(flexible, partition)
    else:
        head += _NO_ERRORS[flexible]
    if not flexible:
        return head
    if version < 10 or partition.current_leader == NO_HINT:
        return head + b"\0"
    return head + write_tags([(_LEADER_TAG, leader_tag(partition.current_leader))])


def _errors(flexible: bool, partition: PartitionProduced) -> bytes:
    parts = [write_bytes_size(len(partition.record_errors), flexible)]
    for index, message in partition.record_errors:
        parts += (INT32.pack(index), write_string(message, flexible))
        if flexible:
            parts.append(b"\0")
    parts.append(write_string(partition.error_message, flexible))
    return b"".join(parts)


def decode_produce_response(version: int, body: Buffer) -> ProduceResponse:
    """Raises MalformedMessageError."""
    try:
        return _decode(version, body)
    except (struct.error, IndexError) as error:
        raise MalformedMessageError("the Produce response ends too early") from error


def _decode(version: int, body: Buffer) -> ProduceResponse:
    flexible = version >= FLEXIBLE_FROM
    count, position = read_items(body, 0, flexible)
    topics = []
    for _ in range(count):
        name, position = read_name(body, position, flexible)
        partition_count, position = read_items(body, position, flexible)
        partitions = []
        for _ in range(partition_count):
            partition, position = _read_partition(version, flexible, body, position)
            partitions.append(partition)
        if flexible:
            position = read_tags(body, position)[1]
        topics.append((name, partitions))
    throttle_time_ms, position = read_int32(body, position) if version >= 1 else (0, position)
    nodes: tuple[NodeEndpoint, ...] = ()
    if flexible:
        tags, _ = read_tags(body, position)
        nodes = endpoints_of_tag(body, tags.get(_NODES_TAG))
    return ProduceResponse(topics, throttle_time_ms, nodes)


def _read_partition(
    version: int, flexible: bool, body: Buffer, position: int
) -> tuple[PartitionProduced, int]:
    layout = _V5 if version >= 5 else _V2 if version >= 2 else _V0
    head = PartitionProduced(*layout.unpack_from(body, position))
    position += layout.size
    if version < 8:
        return head, position
    count, position = read_items(body, position, flexible)
    errors = []
    for _ in range(count):
        index, position = read_int32(body, position)
        message, position = read_string(body, position, flexible)
        if flexible:
            position = read_tags(body, position)[1]
        errors.append((index, message))
    error_message, position = read_string(body, position, flexible)
    leader = NO_HINT
    if flexible:
        tags, position = read_tags(body, position)
        leader = leader_of_tag(body, tags.get(_LEADER_TAG))
    return (
        head._replace(record_errors=tuple(errors), error_message=error_message, current_leader=leader),
        position,
    )
