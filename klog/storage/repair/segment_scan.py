"""Scans a segment as Kafka's recovery does: where the valid batches end, and which index entries follow from
them.

Rules: `LogSegment.recover` with `OffsetIndex` and `TimeIndex` (an entry before the first batch that starts
more than `index.interval.bytes` after the last entry; offsets must fit 31 bits; the last time entry is always
written). The caller can follow producers or epochs, chunk by chunk, in the same pass. Nothing is written
here.
"""

from __future__ import annotations

import operator
import sys
from array import array
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import islice
from typing import BinaryIO, Final

from klog.formats.constants import INT32_MAX, INT64_MAX, OFFSET_INDEX_ENTRY_BYTES, TIME_INDEX_ENTRY_BYTES
from klog.formats.errors import StorageError
from klog.kernel import kernel
from klog.kernel.columns import BatchTable, IndexState
from klog.storage.files.chunks import chunks
from klog.storage.files.verified_chunks import verified_chunks
from klog.storage.reading.tail import tail_problem

DEFAULT_INDEX_INTERVAL_BYTES: Final = 4096
DEFAULT_INDEX_MAX_BYTES: Final = 10_485_760

Follow = Callable[[memoryview, BatchTable, int], int]
"""Called with the number of valid rows at the start of a chunk; returns how many of them it could follow."""


@dataclass(frozen=True, slots=True)
class IndexSettings:
    """The topic's `index.interval.bytes` and `segment.index.bytes`."""

    interval_bytes: int = DEFAULT_INDEX_INTERVAL_BYTES
    max_bytes: int = DEFAULT_INDEX_MAX_BYTES


@dataclass(frozen=True, slots=True)
class SegmentScan:
    """The result of a pass over a segment.

    `valid_bytes` is the end of the valid batches, `next_offset` the offset after them. `problem` says what is
    wrong with the rest, None if there is no rest. `out_of_range_offset` is the offset at `valid_bytes` that
    does not fit the segment: Kafka splits a segment that is too long, and refuses to start otherwise.
    `disordered` means that offsets decrease: Kafka empties the segment. `full` means that an index is larger
    than its maximum: Kafka refuses to start.
    """

    base_offset: int
    size_bytes: int
    valid_bytes: int
    next_offset: int
    offset_index: bytes
    time_index: bytes
    problem: str | None = None
    out_of_range_offset: int | None = None
    disordered: bool = False
    full: bool = False
    has_indexes: bool = True

    def without_indexes(self) -> SegmentScan:
        """The same without the bytes of its indexes, to save memory."""
        return replace(self, offset_index=b"", time_index=b"", has_indexes=False)

    @property
    def cut_bytes(self) -> int:
        """Bytes after the valid batches."""
        return self.size_bytes - self.valid_bytes


def scan_segment(
    file: BinaryIO,
    base_offset: int,
    settings: IndexSettings,
    *,
    follow: Follow | None = None,
    end_bytes: int | None = None,
    checked: bool = False,
) -> SegmentScan:
    """Scan the open `.log` from its start to `end_bytes`. With `checked` the checksums are known to be valid.

    Raises `StorageError` if the file cannot be read, or has more valid bytes than a segment can have.
    """
    table = BatchTable()
    state = IndexState(base_offset, settings.interval_bytes)
    end = last_start = 0
    problem: str | None = None
    for data in (chunks if checked else verified_chunks)(file, table, end_bytes=end_bytes):
        if checked:
            table.valid.extend(array("q", [1]) * len(table))
        rows = len(table)
        if not kernel.index(table, state):
            rows = _row_at(table, state.stopped_at)
            problem = why_not_indexed(table, state)
        if follow is not None and (followed := follow(data, table, rows)) < rows:
            # Kafka keeps the batch that it could not follow, and ends the log after it.
            end = table.position[followed] + table.size[followed]
            short = scan_segment(file, base_offset, settings, end_bytes=end, checked=True)
            return _cut_short(short, _size(file), "control batch does not decode")
        end = table.origin + table.consumed_bytes if problem is None else table.position[rows]
        last_start = table.position[rows - 1] if rows else last_start
        if problem is not None:
            break
    size = _size(file) if end_bytes is None else end
    if end and state.last_offset >= INT64_MAX:
        # No offset follows the largest one. Kafka's log end would be negative, and it would delete the log.
        short = scan_segment(file, base_offset, settings, end_bytes=last_start, checked=True)
        return _cut_short(short, size, f"batch ends at the largest offset there is, {INT64_MAX}")
    if problem is None and end < size:
        rest = tail_problem(table, data[table.consumed_bytes :])
        problem = rest.what if rest is not None else "bytes follow the last batch"
    if end > INT32_MAX:
        # Positions in an index have four bytes. Kafka opens no larger segment either.
        what = f"{end} bytes of valid batches are more than a segment can have"
        raise StorageError(what, file=file.name, cure="split the file by hand")
    return _result(state, settings, size, end, problem, table)


def _row_at(table: BatchTable, position: int | None) -> int:
    return table.position.index(position if position is not None else -1)


def why_not_indexed(table: BatchTable, state: IndexState) -> str:
    """What is wrong with the batch that `kernel.index` stopped at."""
    row = _row_at(table, state.stopped_at)
    offsets = f"batch of offsets {table.base_offset[row]} to {table.last_offset[row]}"
    if state.why == "checksum":
        return f"{offsets} fails its checksum (stored {table.crc[row]}, computed {table.computed_crc[row]})"
    return f"{offsets} does not belong into the segment that starts at {state.base_offset}"


def _size(file: BinaryIO) -> int:
    return file.seek(0, 2)


def _cut_short(scan: SegmentScan, size_bytes: int, problem: str) -> SegmentScan:
    return SegmentScan(
        scan.base_offset,
        size_bytes,
        scan.valid_bytes,
        scan.next_offset,
        scan.offset_index,
        scan.time_index,
        problem if size_bytes > scan.valid_bytes else None,
        disordered=scan.disordered,
        full=scan.full,
    )


def _result(
    state: IndexState, settings: IndexSettings, size: int, end: int, problem: str | None, table: BatchTable
) -> SegmentScan:
    offset_index, time_index = index_files(state)
    out_of_range = None
    if problem is not None and state.why == "offset":
        out_of_range = table.last_offset[_row_at(table, end)]
    ordered = _all(operator.lt, state.offsets) and _all(operator.le, state.timestamp_offsets)
    return SegmentScan(
        base_offset=state.base_offset,
        size_bytes=size,
        valid_bytes=end,
        next_offset=state.last_offset + 1 if end else state.base_offset,
        offset_index=offset_index,
        time_index=time_index,
        problem=problem,
        out_of_range_offset=out_of_range,
        disordered=not ordered,
        full=len(state.offsets) > settings.max_bytes // OFFSET_INDEX_ENTRY_BYTES
        or len(state.timestamps) > settings.max_bytes // TIME_INDEX_ENTRY_BYTES,
    )


def _all(relation: Callable[[int, int], bool], numbers: array[int]) -> bool:
    return all(map(relation, numbers, islice(numbers, 1, None)))


def is_overlong(scan: SegmentScan) -> bool:
    """Whether the segment's offsets exceed what its index can hold (KAFKA-6264): Kafka splits such a
    segment.
    """
    return scan.out_of_range_offset is not None and scan.out_of_range_offset - scan.base_offset > INT32_MAX


def index_files(state: IndexState) -> tuple[bytes, bytes]:
    """The bytes of the offset index and the time index after the last batch of a segment."""
    if state.max_timestamp > state.last_index_timestamp:
        state.timestamps.append(state.max_timestamp)
        state.timestamp_offsets.append(state.max_timestamp_offset - state.base_offset)
    return (
        pack_offset_index(state.offsets, state.positions),
        pack_time_index(state.timestamps, state.timestamp_offsets),
    )


def pack_offset_index(offsets: array[int], positions: array[int]) -> bytes:
    """The bytes of an offset index; both columns are relative to the segment."""
    entries = array("i", bytes(OFFSET_INDEX_ENTRY_BYTES * len(offsets)))
    entries[0::2] = _low_words(offsets)
    entries[1::2] = _low_words(positions)
    return _big_endian(entries).tobytes()


def pack_time_index(timestamps: array[int], offsets: array[int]) -> bytes:
    """The bytes of a time index: timestamps in ms, offsets relative to the segment."""
    words = array("i", _big_endian(array("q", timestamps)).tobytes())
    entries = array("i", bytes(TIME_INDEX_ENTRY_BYTES * len(timestamps)))
    entries[0::3] = words[0::2]
    entries[1::3] = words[1::2]
    entries[2::3] = _big_endian(_low_words(offsets))
    return entries.tobytes()


def _low_words(numbers: array[int]) -> array[int]:
    """The same numbers, all of which fit 31 bits, in 32 bits each."""
    return array("i", numbers.tobytes())[0 if sys.byteorder == "little" else 1 :: 2]


def _big_endian(numbers: array[int]) -> array[int]:
    if sys.byteorder == "little":
        numbers.byteswap()
    return numbers
