"""What is in a log: the id of each record, by offset, read from the segment files as they are.

Cleaning leaves out records, and writes batches again. So an id is made of what cleaning keeps.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple, TypeAlias
from zlib import crc32

from klog.formats.constants import CONTROL_COMMIT
from klog.formats.names import FileKind
from klog.kernel.batch_builder import BatchFields, RecordData, build_batch
from klog.protocol.primitives import read_uvarint
from klog.server.handlers.topics.topic_metadata import INTERNAL_TOPICS
from klog.storage.log.partition_log import PartitionLog
from klog.storage.log.segment import LogSegment

RecordId: TypeAlias = int | tuple[bytes, int] | None
"""A number that a client has given, or a negative one of a marker. In a topic of the coordinators the key and
a checksum of the value, 0 if it is null. None: cleaning has left out the record."""

_HEAD = struct.Struct(">qi")
_PREFIX_BYTES = 12
# Attributes, last offset delta, two timestamps, producer id, its epoch, base sequence, number of records.
_FIELDS = struct.Struct(">HiqqqhiI")
_FIELDS_AT = 21
_RECORDS_AT = 61
_TRANSACTIONAL_BIT = 0x10
_CONTROL_BIT = 0x20
# The end of a marker: key (version, type), size of the value, value, number of headers.
_MARKER_BYTES = 12
_MARKER_TYPE_AT = 3
_ID_BYTES = 8
KEYS: Final = 5


class Batch(NamedTuple):
    """One batch of one record. The id of a marker is made of its checksum and is negative."""

    offset: int
    record_id: int
    producer_id: int
    producer_epoch: int
    sequence: int
    is_transactional: bool
    commits: bool | None
    """What a marker says; None if it is none."""


def key_of(record_id: RecordId) -> object:
    """The key by which cleaning compares a record; None if there is none."""
    if isinstance(record_id, tuple):
        return record_id[0] or None
    return None if record_id is None or record_id < 0 else record_id % KEYS


def batch_of(record_id: int, now_ms: int, fields: BatchFields) -> bytearray:
    """A batch of one record whose value is an id."""
    value = record_id.to_bytes(_ID_BYTES, "big")
    return build_batch([RecordData(0, now_ms, bytes((record_id % KEYS,)), value)], fields)


def batches_in(data: bytes, expected_offset: int, *, may_lack: bool = False) -> list[Batch]:
    """Whole batches of an application's topic; offsets must be dense from the first on, unless records may
    lack.
    """
    batches: list[Batch] = []
    position, size = 0, len(data)
    while position + _PREFIX_BYTES <= size:
        offset, length = _HEAD.unpack_from(data, position)
        end = position + _PREFIX_BYTES + length
        if end > size:
            break
        assert offset == expected_offset or (may_lack and offset > expected_offset), (
            f"offset {offset} follows {expected_offset - 1}"
        )
        attributes, more, _, _, producer_id, epoch, sequence, count = _FIELDS.unpack_from(
            data, position + _FIELDS_AT
        )
        assert not more, f"the batch at {offset} has {more + 1} records"
        assert count or may_lack, f"the batch at {offset} is empty"
        if count:
            commits = None
            if attributes & _CONTROL_BIT:
                marker = data[end - _MARKER_BYTES : end]
                commits = marker[_MARKER_TYPE_AT] == CONTROL_COMMIT
                record_id = ~crc32(marker, producer_id & 0xFFFF_FFFF)
            else:
                # One record without headers: its value is before their count.
                record_id = int.from_bytes(data[end - 1 - _ID_BYTES : end - 1], "big")
            is_transactional = bool(attributes & _TRANSACTIONAL_BIT)
            batches.append(Batch(offset, record_id, producer_id, epoch, sequence, is_transactional, commits))
        expected_offset = offset + 1
        position = end
    return batches


def is_taken(batches: Iterable[Batch], aborted: Iterable[tuple[int, int]]) -> Iterator[tuple[Batch, bool]]:
    """The records of transactions, and whether a client that reads committed records takes them.

    `aborted` are the producers and first offsets of aborted transactions, as in the answer to Fetch.
    """
    begins = sorted((offset, producer_id) for producer_id, offset in aborted)
    left_out: set[int] = set()
    for batch in batches:
        while begins and begins[0][0] <= batch.offset:
            left_out.add(begins.pop(0)[1])
        if batch.commits is not None:
            left_out.discard(batch.producer_id)
        elif batch.is_transactional:
            yield batch, batch.producer_id not in left_out


def _coordinators_records(data: bytes) -> Iterator[tuple[int, RecordId]]:
    """The records of a topic of the coordinators, which are not compressed, with their offsets."""
    position, size = 0, len(data)
    while position + _PREFIX_BYTES <= size:
        base_offset, length = _HEAD.unpack_from(data, position)
        end = position + _PREFIX_BYTES + length
        if end > size:
            return
        attributes, *_, count = _FIELDS.unpack_from(data, position + _FIELDS_AT)
        at = position + _RECORDS_AT
        for _ in range(count):
            record_bytes, at = read_uvarint(data, at)
            after = at + (record_bytes >> 1)
            if attributes & _CONTROL_BIT:
                offset_delta = 0
                record_id: RecordId = ~crc32(data[after - _MARKER_BYTES : after])
            else:
                zigzag, at = read_uvarint(data, _after_number(data, at + 1))
                offset_delta = zigzag >> 1
                key, at = _span(data, at)
                value, _ = _span(data, at)
                # One of a transaction may be aborted: it replaces nothing for certain.
                known_key = b"" if attributes & _TRANSACTIONAL_BIT else key or b""
                record_id = (known_key, 0 if value is None else crc32(value) + 1)
            yield base_offset + offset_delta, record_id
            at = after
        position = end


def _after_number(data: bytes, at: int) -> int:
    while data[at] & 0x80:
        at += 1
    return at + 1


def _span(data: bytes, at: int) -> tuple[bytes | None, int]:
    zigzag, at = read_uvarint(data, at)
    if zigzag & 1:
        return None, at
    return data[at : at + (zigzag >> 1)], at + (zigzag >> 1)


def batches_of(log: PartitionLog) -> list[Batch]:
    """All batches of a log of an application's topic, from its first segment on."""
    batches: list[Batch] = []
    for segment in log.segments:
        data = os.pread(segment.file.descriptor, segment.size, 0)
        batches += batches_in(data, segment.base_offset, may_lack=log.config.compact)
    return batches


def check_indexes(log: PartitionLog) -> None:
    """Each offset is found, and the indexes are in order and name batches of the segment."""
    for segment in log.segments:
        assert segment.offset_index.ascends(), f"{segment.offset_index.path} is not in order"
        assert segment.time_index.ascends(), f"{segment.time_index.path} is not in order"
        end = segment.next_offset()
        for offset in range(segment.base_offset, end):
            found = segment.find(offset)
            assert found is not None, f"{segment.path(FileKind.LOG)} has no offset {offset}"
            assert found.base_offset <= offset <= found.last_offset, f"{found} is found for {offset}"


class LogContent:
    """The ids of the records of one log. Only what is new is read, and what was cut is dropped."""

    def __init__(self) -> None:
        self.start = 0
        self.records: list[RecordId] = []
        # Offsets of records that cleaning was allowed to leave out.
        self.judged: set[int] = set()
        # As they were at the last time. Each change of them makes a new list of their bases.
        self._segments: list[LogSegment] = []
        self._bases: list[int] = []
        # The segment that was read last, and the position after what was read.
        self._segment: LogSegment | None = None
        self._position = 0

    @property
    def end(self) -> int:
        return self.start + len(self.records)

    def between(self, start: int, end: int) -> list[RecordId]:
        """The records of a range of offsets that the log holds."""
        return self.records[start - self.start : end - self.start]

    def update(self, log: PartitionLog) -> None:
        """Read what was appended since the last time, and drop what was cut."""
        if log.segments.bases is not self._bases:
            self._look_at_segments(list(log.segments), log.segments.bases)
        end = log.log_end_offset
        if end < self.start:
            self.start, self.records, self._segment = log.segments.bases[0], [], None
        elif end < self.end:
            del self.records[end - self.start :]
            self._segment = None
        while self.end < end:
            self._read_on(log)
        assert self.end == end, f"{log.partition} ends at {end}, not {self.end}"

    def _look_at_segments(self, segments: list[LogSegment], bases: list[int]) -> None:
        before, self._segments, self._bases = self._segments, segments, bases
        self.judged.clear()
        same = 0
        for old, new in zip(before, segments, strict=False):
            if old is not new:
                break
            same += 1
        if not same:
            self.start, self.records, self._segment = bases[0], [], None
        elif same < len(before):
            # What follows was cut, or cleaned.
            kept_end = bases[same] if same < len(bases) else self.end
            del self.records[max(kept_end - self.start, 0) :]
            self._segment = None

    def _read_on(self, log: PartitionLog) -> None:
        before = self.end
        number = log.segments.floor(before)
        segment = log.segments[number]
        if segment is not self._segment:
            place = segment.find(before)
            self._segment, self._position = segment, segment.size if place is None else place.position
        data = os.pread(segment.file.descriptor, segment.size - self._position, self._position)
        self._position = segment.size
        may_lack = log.config.compact
        if log.partition.topic in INTERNAL_TOPICS:
            found = _coordinators_records(data)
        else:
            found = ((each.offset, each.record_id) for each in batches_in(data, before, may_lack=may_lack))
        end = before
        for offset, record_id in found:
            if offset >= end:
                if offset > end:
                    self._lack_until(offset, may_lack)
                self.records.append(record_id)
                end = offset + 1
        self._lack_until(log.segments.end_of(number, log.log_end_offset), may_lack)
        assert self.end > before, f"{log.partition} has a hole at offset {before}"

    def _lack_until(self, offset: int, may_lack: bool) -> None:
        if offset > self.end:
            assert may_lack, f"the records from {self.end} to {offset - 1} are missing"
            self.records += [None] * (offset - self.end)
