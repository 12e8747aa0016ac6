"""Fetch requests, versions 0 to 17, by hand.

Rules: FetchRequest of Kafka's message schemas, KIP-74 (sizes, version 3), KIP-227 (sessions, 7), KIP-320
(leader epochs, 9), KIP-392 (rack, 11), KIP-595 (last fetched epoch, 12), KIP-516 (topic ids instead of names,
13), KIP-903 (replica epoch, 15), KIP-853 (directory id, 17: skipped, because klog does not use it).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple
from uuid import UUID

from klog.protocol.errors import MalformedMessageError, UnencodableMessageError
from klog.protocol.primitives import (
    INT32,
    Buffer,
    end_of,
    read_int32,
    read_items,
    read_name,
    read_string,
    read_tags,
    write_bytes_size,
    write_string,
    write_tags,
)

FLEXIBLE_FROM: Final = 12
TOPIC_IDS_FROM: Final = 13
_CLUSTER_TAG: Final = 0
_REPLICA_TAG: Final = 1
_REPLICA_STATE: Final = struct.Struct(">iq")

_UNLIMITED: Final = 0x7FFFFFFF  # what versions before 3 have instead of a limit

_HEAD_V0: Final = struct.Struct(">ii")  # max wait, min bytes
_HEAD_V3: Final = struct.Struct(">iii")  # and max bytes
_HEAD_V4: Final = struct.Struct(">iiib")  # max wait, min bytes, max bytes, isolation level
_HEAD_V7: Final = struct.Struct(">iiibii")  # and session id, session epoch

_PARTITION_V4: Final = struct.Struct(">iqi")  # partition, fetch offset, max bytes
_PARTITION_V5: Final = struct.Struct(">iqqi")  # with log start offset
_PARTITION_V9: Final = struct.Struct(">iiqqi")  # with current leader epoch
_PARTITION_V12: Final = struct.Struct(">iiqiqi")  # with last fetched epoch


class FetchPartition(NamedTuple):
    """The offset to read one partition from, and how many bytes at most."""

    partition: int
    current_leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int
    max_bytes: int


class FetchTopic(NamedTuple):
    """One topic's partitions; the topic is named below version 13 and known by its id from there on."""

    name: str | None
    topic_id: UUID | None
    partitions: list[FetchPartition]


class ForgottenTopic(NamedTuple):
    """Partitions to drop from an incremental fetch session."""

    name: str | None
    topic_id: UUID | None
    partitions: list[int]


class FetchRequest(NamedTuple):
    """What a consumer (replica id -1) or a follower wants to read.

    `isolation_level` is 0 (read uncommitted) or 1 (read committed).
    """

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    topics: list[FetchTopic]
    session_id: int = 0
    session_epoch: int = -1
    forgotten: Sequence[ForgottenTopic] = ()
    rack_id: str = ""
    replica_id: int = -1
    replica_epoch: int = -1
    cluster_id: str | None = None


def decode_fetch_request(version: int, body: Buffer) -> FetchRequest:
    """Raises MalformedMessageError."""
    try:
        return _decode(version, body)
    except (struct.error, IndexError) as error:
        raise MalformedMessageError("the Fetch request ends too early") from error


def _decode(version: int, body: Buffer) -> FetchRequest:
    flexible = version >= FLEXIBLE_FROM
    replica_id, position = (-1, 0) if version >= 15 else read_int32(body, 0)
    session_id, session_epoch = 0, -1
    if version >= 7:
        wait, least, most, isolation, session_id, session_epoch = _HEAD_V7.unpack_from(body, position)
        position += _HEAD_V7.size
    elif version >= 4:
        wait, least, most, isolation = _HEAD_V4.unpack_from(body, position)
        position += _HEAD_V4.size
    else:
        wait, least, most, isolation, position = _read_first_head(version, body, position)
    topics, position = _read_topics(version, flexible, body, position)
    forgotten: list[ForgottenTopic] = []
    if version >= 7:
        forgotten, position = _read_forgotten(version, flexible, body, position)
    rack_id, position = read_name(body, position, flexible) if version >= 11 else ("", position)
    replica_epoch, cluster_id = -1, None
    tags = read_tags(body, position)[0] if flexible else None
    if tags:
        if _CLUSTER_TAG in tags:
            cluster_id = read_string(body, tags[_CLUSTER_TAG], True)[0]
        if version >= 15 and _REPLICA_TAG in tags:
            replica_id, replica_epoch = _REPLICA_STATE.unpack_from(body, tags[_REPLICA_TAG])
    return FetchRequest(
        wait,
        least,
        most,
        isolation,
        topics,
        session_id,
        session_epoch,
        forgotten,
        rack_id,
        replica_id,
        replica_epoch,
        cluster_id,
    )


def _read_first_head(version: int, body: Buffer, position: int) -> tuple[int, int, int, int, int]:
    """The fields of `_HEAD_V4` with the defaults of older versions, and the position after them."""
    if version == 3:
        return *_HEAD_V3.unpack_from(body, position), 0, position + _HEAD_V3.size
    return *_HEAD_V0.unpack_from(body, position), _UNLIMITED, 0, position + _HEAD_V0.size


def _read_topic(
    version: int, flexible: bool, body: Buffer, position: int
) -> tuple[str | None, UUID | None, int]:
    if version >= TOPIC_IDS_FROM:
        end = end_of(body, position, 16)
        return None, UUID(bytes=bytes(body[position:end])), end
    name, position = read_name(body, position, flexible)
    return name, None, position


def _read_topics(version: int, flexible: bool, body: Buffer, position: int) -> tuple[list[FetchTopic], int]:
    count, position = read_items(body, position, flexible)
    topics = []
    for _ in range(count):
        name, topic_id, position = _read_topic(version, flexible, body, position)
        partition_count, position = read_items(body, position, flexible)
        partitions = []
        for _ in range(partition_count):
            partition, position = _read_partition(version, body, position)
            partitions.append(partition)
            if flexible:
                position = _skip_tags(body, position)
        if flexible:
            position = _skip_tags(body, position)
        topics.append(FetchTopic(name, topic_id, partitions))
    return topics, position


def _read_partition(version: int, body: Buffer, position: int) -> tuple[FetchPartition, int]:
    if version >= 12:
        return FetchPartition._make(
            _PARTITION_V12.unpack_from(body, position)
        ), position + _PARTITION_V12.size
    if version >= 9:
        index, epoch, offset, start, most = _PARTITION_V9.unpack_from(body, position)
        return FetchPartition(index, epoch, offset, -1, start, most), position + _PARTITION_V9.size
    if version >= 5:
        index, offset, start, most = _PARTITION_V5.unpack_from(body, position)
        return FetchPartition(index, -1, offset, -1, start, most), position + _PARTITION_V5.size
    index, offset, most = _PARTITION_V4.unpack_from(body, position)
    return FetchPartition(index, -1, offset, -1, -1, most), position + _PARTITION_V4.size


def _read_forgotten(
    version: int, flexible: bool, body: Buffer, position: int
) -> tuple[list[ForgottenTopic], int]:
    count, position = read_items(body, position, flexible)
    forgotten = []
    for _ in range(count):
        name, topic_id, position = _read_topic(version, flexible, body, position)
        partition_count, position = read_items(body, position, flexible)
        end = end_of(body, position, 4 * partition_count)
        partitions = list(struct.unpack_from(f">{partition_count}i", body, position))
        position = _skip_tags(body, end) if flexible else end
        forgotten.append(ForgottenTopic(name, topic_id, partitions))
    return forgotten, position


def _skip_tags(body: Buffer, position: int) -> int:
    return position + 1 if body[position] == 0 else read_tags(body, position)[1]


def encode_fetch_request(version: int, request: FetchRequest) -> bytes:
    """The body. Raises UnencodableMessageError."""
    try:
        return _encode(version, request)
    except (struct.error, AttributeError) as error:
        raise UnencodableMessageError(f"a Fetch request that does not fit its wire types: {error}") from error


def _encode(version: int, request: FetchRequest) -> bytes:
    flexible = version >= FLEXIBLE_FROM
    parts = [] if version >= 15 else [INT32.pack(request.replica_id)]
    if version >= 7:
        parts.append(_HEAD_V7.pack(*request[:4], request.session_id, request.session_epoch))
    elif version >= 4:
        parts.append(_HEAD_V4.pack(*request[:4]))
    else:
        parts.append(_HEAD_V3.pack(*request[:3]) if version == 3 else _HEAD_V0.pack(*request[:2]))
    end = b"\0" if flexible else b""
    parts.append(write_bytes_size(len(request.topics), flexible))
    for topic in request.topics:
        parts += (_topic(version, flexible, topic), write_bytes_size(len(topic.partitions), flexible))
        parts += [_partition(version, partition) + end for partition in topic.partitions]
        parts.append(end)
    if version >= 7:
        parts.append(write_bytes_size(len(request.forgotten), flexible))
        for gone in request.forgotten:
            parts += (_topic(version, flexible, gone), write_bytes_size(len(gone.partitions), flexible))
            parts.append(struct.pack(f">{len(gone.partitions)}i", *gone.partitions) + end)
    if version >= 11:
        parts.append(write_string(request.rack_id, flexible))
    if flexible:
        parts.append(write_tags(_tags(version, request)))
    return b"".join(parts)


def _tags(version: int, request: FetchRequest) -> list[tuple[int, bytes]]:
    tags = []
    if request.cluster_id is not None:
        tags.append((_CLUSTER_TAG, write_string(request.cluster_id, True)))
    if version >= 15 and (request.replica_id, request.replica_epoch) != (-1, -1):
        state = _REPLICA_STATE.pack(request.replica_id, request.replica_epoch) + b"\0"
        tags.append((_REPLICA_TAG, state))
    return tags


def _topic(version: int, flexible: bool, topic: FetchTopic | ForgottenTopic) -> bytes:
    if version < TOPIC_IDS_FROM:
        return write_string(topic.name or "", flexible)
    return bytes(16) if topic.topic_id is None else topic.topic_id.bytes


def _partition(version: int, partition: FetchPartition) -> bytes:
    index, epoch, offset, fetched_epoch, start, most = partition
    if version >= 12:
        return _PARTITION_V12.pack(index, epoch, offset, fetched_epoch, start, most)
    if version >= 9:
        return _PARTITION_V9.pack(index, epoch, offset, start, most)
    if version >= 5:
        return _PARTITION_V5.pack(index, offset, start, most)
    return _PARTITION_V4.pack(index, offset, most)
