"""Reads Fetch requests of the usual kind in one pass: a consumer asks for one partition.

A usual request has version 4 to 17, replica id -1, nothing forgotten, no tagged fields, and no epoch of what
was fetched last. It has no session (session id 0, session epoch -1), or it is incremental (KIP-227).
Everything else is left to `fetch_request`.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from klog.protocol.apis import ApiKey
from klog.protocol.fetch_request import FLEXIBLE_FROM, TOPIC_IDS_FROM
from klog.protocol.primitives import INT16

_HEADER: Final = struct.Struct(">ihhih")  # size, key, version, correlation id, size of the client id
_FETCH: Final = int(ApiKey.FETCH)
_VERSIONS: Final = range(4, 18)
_ANY_EPOCH: Final = -1
_UNKNOWN: Final = -1
_READ_UNCOMMITTED, _READ_COMMITTED = 0, 1
_TWO_BYTES_FROM: Final = 0x80  # compact sizes
_RACK_FROM: Final = 11
_NO_RACK_SIZE: Final = 2  # an empty string; a compact one has one byte less, and tagged fields follow

# What all usual requests of a version have in common. A compact size is one more than the size.
_CONSUMER: Final = b"\xff\xff\xff\xff"  # as the replica id
_NO_TAGS: Final = b"\0"
_NO_SESSION: Final = (0, -1)  # session id, session epoch
_ONE_CLASSIC, _ONE_COMPACT = b"\0\0\0\1", b"\2"
_NONE_CLASSIC, _NONE_COMPACT = b"\0\0\0\0", b"\1"


class _Layout(NamedTuple):
    """Where the fields of a version stand.

    `start` has what comes after the client id, then maximum wait, minimum bytes, maximum bytes, isolation
    level, session id and epoch if the version has sessions, the number of topics, and the topic's id or the
    size of its name. `partition` has the number of partitions and one of them. `rest` follows it.
    """

    start: struct.Struct
    consumer: bytes
    one: bytes
    has_session: bool
    has_topic_id: bool
    partition: struct.Struct
    rest: bytes


def _layout(version: int) -> _Layout:
    flexible, has_topic_id = version >= FLEXIBLE_FROM, version >= TOPIC_IDS_FROM
    consumer = (_NO_TAGS if flexible else b"") + (b"" if version >= 15 else _CONSUMER)
    one = _ONE_COMPACT if flexible else _ONE_CLASSIC
    session = "ii" if version >= 7 else ""
    topic = "16s" if has_topic_id else "B" if flexible else "h"
    if flexible:
        partition, rest = "iiqiqi", 2 * _NO_TAGS + _NONE_COMPACT
    else:
        partition = "iiqqi" if version >= 9 else "iqqi" if version >= 5 else "iqi"
        rest = _NONE_CLASSIC if version >= 7 else b""
    return _Layout(
        struct.Struct(f">{len(consumer)}siiib{session}{len(one)}s{topic}"),
        consumer,
        one,
        bool(session),
        has_topic_id,
        struct.Struct(f">{len(one)}s{partition}{len(rest)}s"),
        rest,
    )


_LAYOUTS: Final = {version: _layout(version) for version in _VERSIONS}


class UsualFetch:
    """What the request asks for, and the position after its frame.

    `topic` is the name as it came, from version 13 on the 16 bytes of the topic's id. `max_bytes` is for the
    whole answer, `partition_max_bytes` for the partition. `current_leader_epoch` is -1 if none is given, and
    so is `log_start_offset`, which only followers send. `session_epoch` is -1 without a session. `has_rack`
    says that the consumer names its rack.
    """

    def __init__(
        self,
        version: int,
        correlation_id: int,
        max_wait_ms: int,
        min_bytes: int,
        max_bytes: int,
        committed: bool,
        session_id: int,
        session_epoch: int,
        topic: bytes,
        partition: int,
        current_leader_epoch: int,
        offset: int,
        log_start_offset: int,
        partition_max_bytes: int,
        has_rack: bool,
        end: int,
    ) -> None:
        self.version = version
        self.correlation_id = correlation_id
        self.max_wait_ms = max_wait_ms
        self.min_bytes = min_bytes
        self.max_bytes = max_bytes
        self.committed = committed
        self.session_id = session_id
        self.session_epoch = session_epoch
        self.topic = topic
        self.partition = partition
        self.current_leader_epoch = current_leader_epoch
        self.offset = offset
        self.log_start_offset = log_start_offset
        self.partition_max_bytes = partition_max_bytes
        self.has_rack = has_rack
        self.end = end


def read_usual_fetch(buffer: bytearray, start: int, end: int) -> UsualFetch | None:
    """The frame at `start`, before `end`; None if it is not a usual one, or not whole. It raises nothing."""
    try:
        return _read(buffer, start, min(end, len(buffer)))
    except (struct.error, IndexError):
        return None


def _read(buffer: bytearray, start: int, end: int) -> UsualFetch | None:
    size, key, version, correlation_id, client_size = _HEADER.unpack_from(buffer, start)
    stop = start + 4 + size
    layout = _LAYOUTS.get(version)
    if key != _FETCH or layout is None or stop > end:
        return None
    at = start + _HEADER.size
    if client_size > 0:
        at += client_size
    fields = layout.start.unpack_from(buffer, at)
    session_id, session_epoch = _NO_SESSION
    if layout.has_session:
        consumer, wait_ms, min_bytes, max_bytes, isolation, session_id, session_epoch, one, topic = fields
        if session_epoch <= 0 and (session_id, session_epoch) != _NO_SESSION:
            return None
    else:
        consumer, wait_ms, min_bytes, max_bytes, isolation, one, topic = fields
    if consumer != layout.consumer or one != layout.one:
        return None
    if isolation not in (_READ_UNCOMMITTED, _READ_COMMITTED):
        return None
    at += layout.start.size
    if not layout.has_topic_id:
        name_end = _end_of_name(version, at, topic)
        topic = bytes(buffer[at:name_end])
        at = name_end
    fetched_epoch = epoch = _ANY_EPOCH
    start_offset = _UNKNOWN
    fields = layout.partition.unpack_from(buffer, at)
    if version >= FLEXIBLE_FROM:
        one, partition, epoch, offset, fetched_epoch, start_offset, partition_max_bytes, rest = fields
    elif version >= 9:
        one, partition, epoch, offset, start_offset, partition_max_bytes, rest = fields
    elif version >= 5:
        one, partition, offset, start_offset, partition_max_bytes, rest = fields
    else:
        one, partition, offset, partition_max_bytes, rest = fields
    if one != layout.one or rest != layout.rest or fetched_epoch != _ANY_EPOCH:
        return None
    # Positions only rise, so that everything was within the frame if they end where it ends.
    at += layout.partition.size
    if _end_of_request(buffer, at, version) != stop:
        return None
    return UsualFetch(
        version,
        correlation_id,
        wait_ms,
        min_bytes,
        max_bytes,
        isolation == _READ_COMMITTED,
        session_id,
        session_epoch,
        topic,
        partition,
        epoch,
        offset,
        start_offset,
        partition_max_bytes,
        version >= _RACK_FROM and stop - at > _NO_RACK_SIZE,
        stop,
    )


def _end_of_name(version: int, at: int, size: int) -> int:
    """Raises IndexError if the name is null or empty, or its size takes more than one byte."""
    if version >= FLEXIBLE_FROM:
        size = size - 1 if size < _TWO_BYTES_FROM else 0
    if size <= 0:
        raise IndexError("no name")
    return at + size


def _end_of_request(buffer: bytearray, at: int, version: int) -> int:
    """The position after the rack and the tagged fields; -1 if the rack is null or tagged fields follow."""
    if version < _RACK_FROM:
        return at
    if version < FLEXIBLE_FROM:
        size: int = INT16.unpack_from(buffer, at)[0]
        return at + 2 + size if size >= 0 else -1
    size = buffer[at]
    if not 0 < size < _TWO_BYTES_FROM or buffer[at + size] != 0:
        return -1
    return at + size + 1
