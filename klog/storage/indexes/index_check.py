"""Checks whether the indexes of a segment are valid: their form, and each entry against the batches.

Rules: the sanity checks of Kafka's `OffsetIndex` and `TimeIndex`, and what a lookup relies on. An offset
entry points at a batch. Its key is the last offset of the batch, its first offset (written by brokers before
2.x), or the last offset of several batches that a follower appended at once. A time entry has the largest
timestamp up to its batch. Zero entries at the end are the pre-allocated part of an active segment. Only
headers are read; other checks find damaged records.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left
from dataclasses import dataclass, field
from typing import BinaryIO, NamedTuple

from klog.formats.constants import CONTROL_BIT, OFFSET_INDEX_ENTRY_BYTES, TIME_INDEX_ENTRY_BYTES
from klog.kernel.columns import OFFSET_UNKNOWN, BatchTable
from klog.storage.files.chunks import chunks
from klog.storage.indexes.index_file import IndexFile


class IndexProblem(NamedTuple):
    """What is wrong with an index file, and at which byte."""

    what: str
    position_bytes: int


class _Times(NamedTuple):
    """A time index as columns; the offsets are relative to the segment's base."""

    timestamps: array[int]
    offsets: array[int]


@dataclass(slots=True)
class HeaderPass:
    """What one pass over the headers of a segment found: problems of the indexes (None: valid) and of the
    batches.
    """

    offset_problem: IndexProblem | None = None
    time_problem: IndexProblem | None = None
    has_markers: bool = False
    end_bytes: int = 0
    max_timestamp: int = -1
    _pending: list[tuple[int, int, int]] = field(default_factory=list)


def check_indexes(
    file: BinaryIO,
    base_offset: int,
    offset_index: IndexFile | None,
    time_index: IndexFile | None,
    *,
    active: bool,
    end_bytes: int | None = None,
) -> HeaderPass:
    """Check both indexes (None: missing) against the open segment, or against its batches up to `end_bytes`.

    Raises `StorageError`.
    """
    found = HeaderPass()
    offsets, positions = array("i"), array("i")
    times = _Times(array("q"), array("i"))
    if offset_index is not None:
        offsets, positions, found.offset_problem = _offset_entries(offset_index, active)
    if time_index is not None:
        times, found.time_problem = _time_entries(time_index, active)
    table = BatchTable()
    next_entry = next_time = 0
    last_before = base_offset - 1
    for _ in chunks(file, table, end_bytes=end_bytes):
        if not len(table):
            continue
        if found.offset_problem is None:
            next_entry = _offsets_in(table, base_offset, offsets, positions, next_entry, last_before, found)
        if found.time_problem is None:
            next_time = _times_in(table, base_offset, times, next_time, found)
        largest = max(table.max_timestamp)
        found.max_timestamp = max(found.max_timestamp, largest)
        found.has_markers = found.has_markers or any(value & CONTROL_BIT for value in set(table.attributes))
        last_before = table.last_offset[-1]
    found.end_bytes = table.origin + table.consumed_bytes
    _conclude(found, positions, next_entry, times, next_time, active and time_index is not None)
    return found


def _conclude(
    found: HeaderPass,
    positions: array[int],
    next_entry: int,
    times: _Times,
    next_time: int,
    active: bool,
) -> None:
    if found.offset_problem is None and next_entry < len(positions):
        what = (
            f"entry {next_entry} points at byte {positions[next_entry]}, the batches end at {found.end_bytes}"
        )
        found.offset_problem = IndexProblem(what, next_entry * OFFSET_INDEX_ENTRY_BYTES)
    if found.offset_problem is None and found._pending:
        entry, offset, _ = found._pending[0]
        what = f"entry {entry} has offset {offset}, with which no batch ends"
        found.offset_problem = IndexProblem(what, entry * OFFSET_INDEX_ENTRY_BYTES)
    if found.time_problem is None and next_time < len(times.offsets):
        what = f"entry {next_time} has an offset after the last batch"
        found.time_problem = IndexProblem(what, next_time * TIME_INDEX_ENTRY_BYTES)
    last = times.timestamps[-1] if times.timestamps else sys.maxsize
    if found.time_problem is None and not active and last < found.max_timestamp:
        what = f"last entry says {last}, but the segment has timestamps up to {found.max_timestamp}"
        found.time_problem = IndexProblem(what, (len(times.offsets) - 1) * TIME_INDEX_ENTRY_BYTES)


def _form(index: IndexFile, entry_bytes: int, active: bool) -> IndexProblem | None:
    count, odd = divmod(index.size_bytes, entry_bytes)
    used = len(index.entries) // entry_bytes
    if odd:
        return IndexProblem(
            f"{index.size_bytes} bytes are no whole number of {entry_bytes}-byte entries", count * entry_bytes
        )
    if index.complete and used < count and not active and not (count == 1 and used == 0):
        what = f"{count - used} zero entries at its end, though the segment is not the active one"
        return IndexProblem(what, used * entry_bytes)
    return None


def _offset_entries(index: IndexFile, active: bool) -> tuple[array[int], array[int], IndexProblem | None]:
    problem = _form(index, OFFSET_INDEX_ENTRY_BYTES, active)
    numbers = array("i")
    numbers.frombytes(memoryview(index.entries)[: _whole_bytes(index, OFFSET_INDEX_ENTRY_BYTES)])
    if sys.byteorder == "little":
        numbers.byteswap()
    offsets, positions = numbers[0::2], numbers[1::2]
    if problem is None:
        last_offset = last_position = -1
        for entry, (offset, position) in enumerate(zip(offsets, positions, strict=True)):
            if offset <= last_offset or position <= last_position:
                what = f"entry {entry} ({offset} at byte {position}) does not ascend"
                problem = IndexProblem(what, entry * OFFSET_INDEX_ENTRY_BYTES)
                break
            last_offset, last_position = offset, position
    return offsets, positions, problem


def _whole_bytes(index: IndexFile, entry_bytes: int) -> int:
    return len(index.entries) // entry_bytes * entry_bytes


def _time_entries(index: IndexFile, active: bool) -> tuple[_Times, IndexProblem | None]:
    problem = _form(index, TIME_INDEX_ENTRY_BYTES, active)
    words = array("i")
    words.frombytes(memoryview(index.entries)[: _whole_bytes(index, TIME_INDEX_ENTRY_BYTES)])
    if sys.byteorder == "little":
        words.byteswap()
    high, low, offsets = words[0::3], words[1::3], words[2::3]
    timestamps = array("q", (h << 32 | w & 0xFFFFFFFF for h, w in zip(high, low, strict=True)))
    if problem is None:
        last_timestamp, last_offset = -1, -1
        for entry, (timestamp, offset) in enumerate(zip(timestamps, offsets, strict=True)):
            if timestamp <= last_timestamp or offset < last_offset or offset < 0:
                what = f"entry {entry} (timestamp {timestamp}, offset {offset}) does not ascend"
                problem = IndexProblem(what, entry * TIME_INDEX_ENTRY_BYTES)
                break
            last_timestamp, last_offset = timestamp, offset
    return _Times(timestamps, offsets), problem


def _offsets_in(
    table: BatchTable,
    base_offset: int,
    offsets: array[int],
    positions: array[int],
    entry: int,
    last_before: int,
    found: HeaderPass,
) -> int:
    """Check the entries that point into this chunk; returns the first entry that points behind it."""
    end = table.origin + table.consumed_bytes
    while entry < len(positions) and positions[entry] < end:
        row = bisect_left(table.position, positions[entry])
        at = entry * OFFSET_INDEX_ENTRY_BYTES
        if row == len(table) or table.position[row] != positions[entry]:
            what = f"entry {entry} points at byte {positions[entry]}, where no batch starts"
            found.offset_problem = IndexProblem(what, at)
            return entry
        offset = base_offset + offsets[entry]
        first, last = table.base_offset[row], table.last_offset[row]
        before = table.last_offset[row - 1] if row else last_before
        if offset > last:
            limit = positions[entry + 1] if entry + 1 < len(positions) else sys.maxsize
            found._pending.append((entry, offset, limit))
        elif offset not in (first, last) and not (first == OFFSET_UNKNOWN and before < offset):
            what = f"entry {entry} has offset {offset}, the batch there has {first} to {last}"
            found.offset_problem = IndexProblem(what, at)
            return entry
        entry += 1
    _settle(table, found)
    return entry


def _settle(table: BatchTable, found: HeaderPass) -> None:
    """Find the batch of an entry of a follower, which indexes several batches by the last offset of them
    all.
    """
    waiting = []
    for entry, offset, limit in found._pending:
        row = bisect_left(table.last_offset, offset)
        if row == len(table):
            waiting.append((entry, offset, limit))
        elif table.last_offset[row] != offset or table.position[row] >= limit:
            what = (
                f"entry {entry} has offset {offset}, which is not the last of a batch before the next entry"
            )
            found.offset_problem = IndexProblem(what, entry * OFFSET_INDEX_ENTRY_BYTES)
    found._pending = waiting


def _times_in(table: BatchTable, base_offset: int, times: _Times, entry: int, found: HeaderPass) -> int:
    """Check the entries whose offset is in this chunk; returns the first entry whose offset is behind it."""
    done = 0
    running = found.max_timestamp
    while entry < len(times.offsets) and base_offset + times.offsets[entry] <= table.last_offset[-1]:
        timestamp, offset = times.timestamps[entry], base_offset + times.offsets[entry]
        row = bisect_left(table.last_offset, offset)
        if row >= done:
            largest = max(table.max_timestamp[done : row + 1])
            running = max(running, largest)
            done = row + 1
        if table.max_timestamp[row] != timestamp or running != timestamp:
            what = (
                f"entry {entry} says {timestamp} at offset {offset}, the batches up to there have {running}"
            )
            found.time_problem = IndexProblem(what, entry * TIME_INDEX_ENTRY_BYTES)
            return entry
        entry += 1
    return entry
