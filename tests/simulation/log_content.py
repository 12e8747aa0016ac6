"""What is in a log: the id of each record, by offset, read from the segment files as they are."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from klog.formats.constants import CONTROL_COMMIT
from klog.formats.names import FileKind
from klog.kernel.batch_builder import BatchFields, RecordData, build_batch
from klog.server.handlers.topics.topic_metadata import INTERNAL_TOPICS
from klog.storage.log.partition_log import PartitionLog
from klog.storage.log.segment import LogSegment

_HEAD = struct.Struct(">qi")
_PREFIX_BYTES = 12
# Crc, attributes, last offset delta, two timestamps, producer id, producer epoch, base sequence.
_FIELDS = struct.Struct(">IHiqqqhi")
_FIELDS_AT = 17
_TRANSACTIONAL_BIT = 0x10
_CONTROL_BIT = 0x20
_CONTROL_TYPE_AT = 69
_ID_BYTES = 8


class Batch(NamedTuple):
    """One batch of one record. The id of a marker is made of its checksum and is negative."""

    record_id: int
    producer_id: int
    producer_epoch: int
    sequence: int
    is_transactional: bool
    commits: bool | None
    """What a marker says; None if it is none."""


def batch_of(record_id: int, now_ms: int, fields: BatchFields) -> bytearray:
    """A batch of one record whose value is an id."""
    return build_batch([RecordData(0, now_ms, None, record_id.to_bytes(_ID_BYTES, "big"))], fields)


def batches_in(data: bytes, expected_offset: int) -> list[Batch]:
    """Whole batches of an application's topic; offsets must be dense from the first on."""
    batches: list[Batch] = []
    position, size = 0, len(data)
    while position + _PREFIX_BYTES <= size:
        offset, length = _HEAD.unpack_from(data, position)
        end = position + _PREFIX_BYTES + length
        if end > size:
            break
        assert offset == expected_offset, f"offset {offset} follows {expected_offset - 1}"
        crc, attributes, more, _, _, producer_id, epoch, sequence = _FIELDS.unpack_from(
            data, position + _FIELDS_AT
        )
        assert not more, f"the batch at {offset} has {more + 1} records"
        commits, record_id = None, ~crc
        if attributes & _CONTROL_BIT:
            commits = data[position + _CONTROL_TYPE_AT] == CONTROL_COMMIT
        else:
            # One record without key and headers: its value is before the count of headers.
            record_id = int.from_bytes(data[end - 1 - _ID_BYTES : end - 1], "big")
        is_transactional = bool(attributes & _TRANSACTIONAL_BIT)
        batches.append(Batch(record_id, producer_id, epoch, sequence, is_transactional, commits))
        expected_offset += 1
        position = end
    return batches


def ids_of(batches: Iterable[Batch]) -> list[int]:
    """The ids of the records."""
    return [each.record_id for each in batches]


def is_taken(
    batches: Iterable[Batch], aborted: Iterable[tuple[int, int]], first_offset: int = 0
) -> Iterator[tuple[Batch, bool]]:
    """The records of transactions, and whether a client that reads committed records takes them.

    `aborted` are the producers and first offsets of aborted transactions, as in the answer to Fetch.
    """
    begins = sorted((offset, producer_id) for producer_id, offset in aborted)
    left_out: set[int] = set()
    for offset, batch in enumerate(batches, first_offset):
        while begins and begins[0][0] <= offset:
            left_out.add(begins.pop(0)[1])
        if batch.commits is not None:
            left_out.discard(batch.producer_id)
        elif batch.is_transactional:
            yield batch, batch.producer_id not in left_out


def records_in(data: bytes, expected_offset: int, is_internal: bool) -> list[int]:
    """The ids of records, by offset. In a topic of the coordinators the id is made of the checksum."""
    if not is_internal:
        return ids_of(batches_in(data, expected_offset))
    records: list[int] = []
    position, size = 0, len(data)
    while position + _PREFIX_BYTES <= size:
        offset, length = _HEAD.unpack_from(data, position)
        end = position + _PREFIX_BYTES + length
        if end > size:
            break
        assert offset == expected_offset, f"offset {offset} follows {expected_offset - 1}"
        crc, _, more, *_ = _FIELDS.unpack_from(data, position + _FIELDS_AT)
        records += [~crc] * (more + 1)
        expected_offset += more + 1
        position = end
    return records


def batches_of(log: PartitionLog) -> list[Batch]:
    """All batches of a log of an application's topic, from its first segment on."""
    batches: list[Batch] = []
    for segment in log.segments:
        data = os.pread(segment.file.descriptor, segment.size, 0)
        batches += batches_in(data, log.segments.bases[0] + len(batches))
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
        self.records: list[int] = []
        self._first_segment = -1
        # The segment that was read last, and the position after what was read.
        self._segment: LogSegment | None = None
        self._position = 0

    @property
    def end(self) -> int:
        return self.start + len(self.records)

    def between(self, start: int, end: int) -> list[int]:
        """The records of a range of offsets that the log holds."""
        return self.records[start - self.start : end - self.start]

    def update(self, log: PartitionLog) -> None:
        """Read what was appended since the last time, and drop what was cut."""
        first = log.segments.bases[0]
        if first != self._first_segment or log.log_end_offset < self.start:
            self._first_segment = self.start = first
            self.records = []
            self._segment = None
        end, is_internal = log.log_end_offset, log.partition.topic in INTERNAL_TOPICS
        if end < self.end:
            del self.records[max(end - self.start, 0) :]
            self._segment = None
        while self.end < end:
            before = self.end
            segment = log.segments[log.segments.floor(before)]
            if segment is not self._segment:
                place = segment.find(before)
                assert place is not None, f"{log.partition} has no offset {before}"
                self._segment, self._position = segment, place.position
            size_bytes = segment.size - self._position
            data = os.pread(segment.file.descriptor, size_bytes, self._position)
            self.records += records_in(data, before, is_internal)
            self._position = segment.size
            assert self.end > before, f"{log.partition} has a hole at offset {before}"
        assert self.end == end, f"{log.partition} ends at {end}, not {self.end}"
