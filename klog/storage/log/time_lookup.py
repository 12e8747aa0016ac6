"""Finds offsets by time (ListOffsets): the first record at or after a timestamp, or with the largest one.

Rules: Kafka's `UnifiedLog.fetchOffsetByTimestamp`, `LogSegment.findOffsetByTimestamp` and KIP-734. The log's
lock is held while the position is looked up, not while batches are read.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from operator import attrgetter
from typing import NamedTuple

from klog.formats import compression
from klog.formats.checksums import Bytes
from klog.formats.constants import CODEC_MASK
from klog.formats.errors import CorruptRecordError
from klog.kernel import kernel
from klog.kernel.columns import BatchTable, RecordTable
from klog.storage.log.batch_place import BatchPlace
from klog.storage.log.earlier_records import TimedOffset
from klog.storage.log.index_repair import checked_time
from klog.storage.log.partition_log import PartitionLog
from klog.storage.log.segment import LogSegment


class _Range(NamedTuple):
    """The bytes of a segment from a position to its end."""

    segment: LogSegment
    position: int
    end: int


def earliest(log: PartitionLog) -> TimedOffset:
    """The log start offset."""
    with log.lock:
        start = log.log_start_offset
        return TimedOffset(-1, start, log.epochs.epoch_of(start))


def first_at_or_after(log: PartitionLog, timestamp: int) -> TimedOffset | None:
    """The first record of the log whose timestamp is at least `timestamp`; None if there is none.

    Raises `OSError`, `CorruptRecordError`.
    """
    if log.earlier is not None and (earlier := log.earlier.first_at_or_after(timestamp)) is not None:
        return earlier
    with log.lock:
        start = log.log_start_offset
        segment = next((s for s in log.segments if s.largest_timestamp() >= timestamp), None)
        if segment is None:
            return None
        indexed = checked_time(segment, timestamp).offset
        position = segment.start_before(max(indexed, start))
        found_in = _Range(segment, position, segment.size)
    for place in _batches(found_in):
        if place.max_timestamp >= timestamp:
            _, records = _records(segment, place)
            for offset, found in zip(records.offset, records.timestamp, strict=True):
                if found >= timestamp and offset >= start:
                    return TimedOffset(found, offset, place.leader_epoch)
    return None


def with_max_timestamp(log: PartitionLog) -> TimedOffset | None:
    """The first record with the largest timestamp of the log, which may be -1; None if the log is empty.

    None, too, if it would be a message of magic 0, which has no timestamp. Raises `OSError`,
    `CorruptRecordError`, `StorageError`.
    """
    found = _with_max_timestamp(log)
    earlier = None if log.earlier is None else log.earlier.with_max_timestamp()
    if found is None or (earlier is not None and earlier.timestamp >= found.timestamp):
        return earlier
    return found


def _with_max_timestamp(log: PartitionLog) -> TimedOffset | None:
    """As `with_max_timestamp`, of the log's own segments."""
    with log.lock:
        segment = max(log.segments, key=attrgetter("max_timestamp.timestamp"))
        largest = segment.max_timestamp
        position = segment.start_before(largest.offset)
        found_in = _Range(segment, position, segment.size)
    for place in _batches(found_in):
        if place.max_timestamp == largest.timestamp:
            magic, records = _records(segment, place)
            for offset, found in zip(records.offset, records.timestamp, strict=True):
                if magic and found == largest.timestamp:
                    return TimedOffset(found, offset, place.leader_epoch)
            return None
    return None


def _batches(found_in: _Range) -> Iterator[BatchPlace]:
    position = found_in.position
    while position < found_in.end:
        place = found_in.segment.batch_at(position)
        yield place
        position += place.size


def _records(segment: LogSegment, place: BatchPlace) -> tuple[int, RecordTable]:
    """The magic and the records of one batch."""
    data = os.pread(segment.file.descriptor, place.size, place.position)
    return records_of_batch(data, segment.file.path, place.position)


def records_of_batch(data: Bytes, path: str, position: int) -> tuple[int, RecordTable]:
    """The magic and the records of a batch, which stands at a position of a file. Raises
    `CorruptRecordError`.
    """
    table, records = BatchTable(), RecordTable()
    kernel.scan(data, 0, True, table)
    codec = table.attributes[0] & CODEC_MASK if len(table) else 0
    if codec and table.count[0] != 0:
        start, size = kernel.payload_span(data, table, 0)
        block = memoryview(data)[start : start + max(size, 0)]
        kernel.decode_payload(compression.decompress(codec, block, magic=table.magic[0]), table, 0, records)
    elif len(table):
        kernel.decode(data, table, 0, 1, records)
    if records.problem is not None:
        raise CorruptRecordError(records.problem, file=path, position_bytes=position)
    return (table.magic[0] if len(table) else 0), records
