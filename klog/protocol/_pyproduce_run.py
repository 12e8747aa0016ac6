"""Consecutive Produce frames of the usual kind that go to one partition: read, placed and answered together.

A usual frame is a Produce request of version 7 to 11 with one batch of magic 2 for one partition: no tagged
fields, not compressed, its checksum and records valid. It has a transactional id if its batch belongs to a
transaction of a producer, and else none. Such a batch stands in the log as it came, but for its base offset
and its leader epoch, which no checksum covers. Every other frame ends the run and is left to the general
reader, which also finds the error to answer.

This is the plain form of `_produce_run.pyx`; tests hold the two equal.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final, NamedTuple

from klog.formats.checksums import crc32c
from klog.formats.constants import (
    BATCH_CRC_FROM,
    BATCH_HEADER_BYTES,
    ENTRY_PREFIX_BYTES,
    TRANSACTIONAL_BIT,
)
from klog.formats.kernel import check_records
from klog.protocol.apis import ApiKey
from klog.protocol.errors import MalformedMessageError
from klog.protocol.primitives import read_uvarint

IMPLEMENTATION: Final = "python"

MOST_FRAMES: Final = 64
_VERSIONS: Final = range(7, 12)
_FLEXIBLE_FROM: Final = 9
_ACKS: Final = range(-1, 2)
_HEADER: Final = struct.Struct(">ihhih")  # size, key, version, correlation id, size of the client id
# The size of the transactional id; acks, timeout, one topic, size of its name; then, after the name, one
# partition and its index (and in the classic form the size of its records). Compact sizes are one more than
# they are.
_FLEXIBLE_ID: Final = struct.Struct(">BB")  # begins with the empty tags of the header
_FLEXIBLE_START: Final = struct.Struct(">hiBB")
_FLEXIBLE_PARTITION: Final = struct.Struct(">Bi")
_CLASSIC_ID: Final = struct.Struct(">h")
_CLASSIC_START: Final = struct.Struct(">hiih")
_CLASSIC_PARTITION: Final = struct.Struct(">iii")
_ONE_ITEM: Final = 2
_NO_TAGS: Final = b"\0\0\0"  # of the partition, the topic and the request
_BATCH: Final = struct.Struct(">qiibIhiqqqhii")
_MAGIC: Final = 2
_PLACE: Final = struct.Struct(">qii")
_NO_TIMESTAMP: Final = -1
_BASE_OFFSET_FROM: Final = 6  # in the numbers of an answer, as the log start offset below
_LOG_START_FROM: Final = 22
_NUMBERS_BYTES: Final = 30
_CORRELATION_ID_POSITION: Final = 4


class _Address(NamedTuple):
    """What all frames of a run have in common. `producer` is that of a transaction: its id and epoch."""

    version: int
    acks: int
    topic: bytes
    partition: int
    transactional_id: bytes | None
    producer: tuple[int, int] | None


@dataclass(frozen=True, slots=True)
class _Batch:
    """One frame's batch, and where it and its frame are in the buffer."""

    correlation_id: int
    frame_end: int
    position: int
    size: int
    records: int
    smallest_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    keyless: bool


class ProduceRun:
    """A run of frames. `read` fills it, and what was read before is forgotten.

    Attributes: `frames` is how many there are, `end` the position after the last one; `version`, `acks`,
    `topic` and `transactional_id` (bytes, the id None without a transaction) and `partition` are what they
    have in common, and the producer of a transaction. Of all batches together: `size_bytes`, `records`,
    `smallest_timestamp` and `max_timestamp` in ms (-1: no record has one), `keyless` (a record has no key),
    `has_producer_ids`. `max_timestamp_records` counts the records up to the end of the batch that brought the
    maximum first. `last_size_bytes` and `largest_size_bytes` are of single batches.
    """

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._batches: list[_Batch] = []
        self._count(())
        self.version = self.acks = self.partition = self.end = 0
        self.topic = b""
        self._address: _Address | None = None

    def read(self, buffer: bytearray, start: int, end: int) -> int:
        """Read as many whole frames as there are from `start` on, before `end`; returns how many.

        The buffer is remembered, not copied: `topic` and `data` must be asked for before it changes.
        """
        self._buffer = buffer
        self.end = start
        self.topic = b""
        self._address = None
        batches: list[_Batch] = []
        with memoryview(buffer) as view:
            end = min(end, len(view))
            while len(batches) < MOST_FRAMES and 0 <= self.end < end:
                found = _frame(view, self.end, end)
                if found is None:
                    break
                address, batch = found
                if not batches:
                    self._address = address
                    self.version, self.acks, self.topic, self.partition, *_ = address
                elif address != self._address:
                    break
                batches.append(batch)
                self.end = batch.frame_end
        self._count(tuple(batches))
        return len(batches)

    def keep(self, frames: int) -> None:
        """Forget all but the first frames. Raises IndexError if there are not so many."""
        if not 0 <= frames <= self.frames:
            raise IndexError(f"{frames} of {self.frames} frames")
        self._count(tuple(self._batches[:frames]))
        if frames:
            self.end = self._batches[-1].frame_end

    def _count(self, batches: tuple[_Batch, ...]) -> None:
        self._batches = list(batches)
        self.frames = len(batches)
        self.size_bytes = sum(batch.size for batch in batches)
        self.last_size_bytes = batches[-1].size if batches else 0
        self.largest_size_bytes = max((batch.size for batch in batches), default=0)
        self.records = 0
        self.smallest_timestamp = min(
            (each.smallest_timestamp for each in batches if each.smallest_timestamp != _NO_TIMESTAMP),
            default=_NO_TIMESTAMP,
        )
        self.max_timestamp = _NO_TIMESTAMP
        self.max_timestamp_records = 0
        for batch in batches:
            self.records += batch.records
            if batch.max_timestamp > self.max_timestamp:
                self.max_timestamp, self.max_timestamp_records = batch.max_timestamp, self.records
        self.keyless = any(batch.keyless for batch in batches)
        self.has_producer_ids = any(batch.producer_id >= 0 for batch in batches)

    @property
    def transactional_id(self) -> bytes | None:
        """The transactional id that all frames have."""
        return self._address.transactional_id if self.frames and self._address else None

    @property
    def is_transactional(self) -> bool:
        """Whether all batches belong to a transaction; else none does."""
        return self.transactional_id is not None

    def batch(self, number: int) -> tuple[int, int, int, int, int, int]:
        """Records, maximum timestamp, producer id and epoch, base sequence and size of one batch.

        Raises IndexError.
        """
        if not 0 <= number < self.frames:
            raise IndexError(f"batch {number} of {self.frames}")
        batch = self._batches[number]
        return (
            batch.records,
            batch.max_timestamp,
            batch.producer_id,
            batch.producer_epoch,
            batch.base_sequence,
            batch.size,
        )

    def data(self, first_offset: int, leader_epoch: int) -> bytes:
        """A copy of all batches, with their offsets and the leader epoch.

        Raises IndexError if the buffer has become smaller.
        """
        if len(self._buffer) < self.end and self.frames:
            raise IndexError("the buffer has become smaller than what was read of it")
        data = bytearray()
        for batch in self._batches:
            at = len(data)
            data += memoryview(self._buffer)[batch.position : batch.position + batch.size]
            _PLACE.pack_into(data, at, first_offset, batch.size - ENTRY_PREFIX_BYTES, leader_epoch)
            first_offset += batch.records
        return bytes(data)

    def answers(self, template: bytes, numbers_at: int, first_offset: int, log_start_offset: int) -> bytes:
        """An answer for every frame: the template with the frame's correlation id and base offset.

        `numbers_at` is where partition, error, base offset, append time and log start offset stand in it.
        Raises IndexError if they cannot stand there.
        """
        if not 2 * _CORRELATION_ID_POSITION <= numbers_at <= len(template) - _NUMBERS_BYTES:
            raise IndexError(f"numbers at {numbers_at} of an answer of {len(template)} bytes")
        answers = bytearray(template * self.frames)
        at = 0
        for batch in self._batches:
            struct.pack_into(">i", answers, at + _CORRELATION_ID_POSITION, batch.correlation_id)
            struct.pack_into(">q", answers, at + numbers_at + _BASE_OFFSET_FROM, first_offset)
            struct.pack_into(">q", answers, at + numbers_at + _LOG_START_FROM, log_start_offset)
            first_offset += batch.records
            at += len(template)
        return bytes(answers)


def _frame(view: memoryview, start: int, end: int) -> tuple[_Address, _Batch] | None:
    """The frame at `start`; None if it is not a usual one, or not whole."""
    if end - start < _HEADER.size:
        return None
    size, key, version, correlation_id, client_size = _HEADER.unpack_from(view, start)
    stop = start + 4 + size
    at = start + _HEADER.size + max(client_size, 0)
    if stop > end or at > stop or key != ApiKey.PRODUCE or version not in _VERSIONS:
        return None
    frame = view[:stop]
    try:
        if version >= _FLEXIBLE_FROM:
            transactional_id, at = _flexible_id(frame, at)
            acks, topic, partition, at, stop = _flexible(frame, at)
        else:
            transactional_id, at = _classic_id(frame, at)
            acks, topic, partition, at = _classic(frame, at)
    except (struct.error, IndexError, MalformedMessageError, _UnusualError):
        return None
    attributes = 0 if transactional_id is None else TRANSACTIONAL_BIT
    batch = _batch(frame[at:stop], at, correlation_id, len(frame), attributes) if acks in _ACKS else None
    if batch is None or (transactional_id is not None and batch.producer_id < 0):
        return None
    producer = None if transactional_id is None else (batch.producer_id, batch.producer_epoch)
    return _Address(version, acks, topic, partition, transactional_id, producer), batch


class _UnusualError(Exception):
    """The frame is not a usual one."""


def _flexible_id(frame: memoryview, at: int) -> tuple[bytes | None, int]:
    """The transactional id, and the position after it."""
    tags, size = _FLEXIBLE_ID.unpack_from(frame, at)
    if tags or size >= 0x80:
        raise _UnusualError
    start = at + _FLEXIBLE_ID.size
    return (bytes(frame[start : start + size - 1]), start + size - 1) if size else (None, start)


def _classic_id(frame: memoryview, at: int) -> tuple[bytes | None, int]:
    (size,) = _CLASSIC_ID.unpack_from(frame, at)
    if size < -1:
        raise _UnusualError
    start = at + _CLASSIC_ID.size
    return (bytes(frame[start : start + size]), start + size) if size >= 0 else (None, start)


def _flexible(frame: memoryview, at: int) -> tuple[int, bytes, int, int, int]:
    """Acks, topic, partition, and where the records begin and end."""
    acks, _, topics, name_size = _FLEXIBLE_START.unpack_from(frame, at)
    name_start = at + _FLEXIBLE_START.size
    name_end = name_start + name_size - 1
    partitions, partition = _FLEXIBLE_PARTITION.unpack_from(frame, name_end)
    if topics != _ONE_ITEM or partitions != _ONE_ITEM or not 1 < name_size < 0x80:
        raise _UnusualError
    size, start = read_uvarint(frame, name_end + _FLEXIBLE_PARTITION.size)
    end = start + size - 1
    if bytes(frame[end:]) != _NO_TAGS or not size:
        raise _UnusualError
    return acks, bytes(frame[name_start:name_end]), partition, start, end


def _classic(frame: memoryview, at: int) -> tuple[int, bytes, int, int]:
    """Acks, topic, partition, and where the records begin; they end with the frame."""
    acks, _, topics, name_size = _CLASSIC_START.unpack_from(frame, at)
    name_start = at + _CLASSIC_START.size
    name_end = name_start + name_size
    if name_size <= 0 or topics != 1:
        raise _UnusualError
    partitions, partition, size = _CLASSIC_PARTITION.unpack_from(frame, name_end)
    start = name_end + _CLASSIC_PARTITION.size
    if partitions != 1 or size < 0 or start + size != len(frame):
        raise _UnusualError
    return acks, bytes(frame[name_start:name_end]), partition, start


def _batch(
    data: memoryview, position: int, correlation_id: int, frame_end: int, expected_attributes: int
) -> _Batch | None:
    """The batch that `data` is; None if it cannot stand in the log as it is, but for offset and epoch."""
    size = len(data)
    if size < BATCH_HEADER_BYTES:
        return None
    base, follows, _, magic, crc, attributes, delta, first_ms, max_ms, producer_id, epoch, sequence, count = (
        _BATCH.unpack_from(data)
    )
    if base or follows + ENTRY_PREFIX_BYTES != size or magic != _MAGIC or attributes != expected_attributes:
        return None
    if count <= 0 or delta + 1 != count or (producer_id >= 0 and sequence < 0):
        return None
    if crc32c(data[BATCH_CRC_FROM:]) != crc:
        return None
    checked = check_records(data, BATCH_HEADER_BYTES, first_ms, count)
    if checked is None:
        return None
    smallest, largest, _, keyless = checked
    if smallest < _NO_TIMESTAMP or largest != max_ms:
        return None
    return _Batch(
        correlation_id,
        frame_end,
        position,
        size,
        count,
        smallest,
        max_ms,
        producer_id,
        epoch,
        sequence,
        keyless,
    )
