"""Offset and time index files read fast, as columns, for lookups.

The layouts are those of the definitions in `klog.formats.offset_index` and `time_index`; this is the fast
reader beside them. Entries end at the first all-zero one after entry 0 (a pre-allocated tail) or where one
no longer ascends: a lookup needs sorted entries, and what is wrong with a file is the index check's matter.
"""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import NamedTuple

from klog.formats.constants import OFFSET_INDEX_ENTRY_BYTES, TIME_INDEX_ENTRY_BYTES
from klog.formats.names import FileKind
from klog.storage.index_file import read_index

_OFFSET_ENTRY = struct.Struct(">ii")
_TIME_ENTRY = struct.Struct(">qi")


class OffsetIndexEntries(NamedTuple):
    """Entries of an offset index: offsets relative to the segment's base, positions in bytes, both
    ascending."""

    relative_offsets: array[int]
    positions: array[int]

    def at_or_before(self, relative_offset: int) -> Iterator[tuple[int, int]]:
        """Entries (relative offset, position) from the largest at or below `relative_offset` downwards."""
        for row in range(bisect_right(self.relative_offsets, relative_offset) - 1, -1, -1):
            yield self.relative_offsets[row], self.positions[row]


class TimeIndexEntries(NamedTuple):
    """Entries of a time index: timestamps in ms since the epoch, ascending, and relative offsets."""

    timestamps_ms: array[int]
    relative_offsets: array[int]

    def before(self, timestamp_ms: int) -> tuple[int, int] | None:
        """The last entry (timestamp, relative offset) whose timestamp is below `timestamp_ms`."""
        row = bisect_left(self.timestamps_ms, timestamp_ms) - 1
        return None if row < 0 else (self.timestamps_ms[row], self.relative_offsets[row])


def offset_index_entries(data: bytes) -> Iterator[tuple[int, int]]:
    """All entries (relative offset, position) of an offset index up to its zero tail, sound or not."""
    yield from _to_zero_tail(_OFFSET_ENTRY, data)


def time_index_entries(data: bytes) -> Iterator[tuple[int, int]]:
    """All entries (timestamp in ms, relative offset) of a time index up to its zero tail, sound or not."""
    yield from _to_zero_tail(_TIME_ENTRY, data)


def _to_zero_tail(entry: struct.Struct, data: bytes) -> Iterator[tuple[int, int]]:
    whole = memoryview(data)[: len(data) // entry.size * entry.size]
    for row, (first, second) in enumerate(entry.iter_unpack(whole)):
        if row and not first and not second:
            return
        yield first, second


def read_entries(path: str, kind: FileKind) -> bytes:
    """The bytes of a `.index` or `.timeindex` but for its zero tail. Raises `StorageError`."""
    size = OFFSET_INDEX_ENTRY_BYTES if kind is FileKind.OFFSET_INDEX else TIME_INDEX_ENTRY_BYTES
    return read_index(path, size).entries


def read_offset_index(path: str) -> OffsetIndexEntries:
    """The entries of an offset index file that ascend. Raises `StorageError` where it cannot be read."""
    data = read_index(path, OFFSET_INDEX_ENTRY_BYTES, sorted_only=True).entries
    numbers = array("i")
    numbers.frombytes(memoryview(data)[: len(data) // OFFSET_INDEX_ENTRY_BYTES * OFFSET_INDEX_ENTRY_BYTES])
    if sys.byteorder == "little":
        numbers.byteswap()
    offsets, positions = numbers[0::2], numbers[1::2]
    end = _ascending(offsets)
    end = min(end, _ascending(positions[:end]))
    return OffsetIndexEntries(offsets[:end], positions[:end])


def read_time_index(path: str) -> TimeIndexEntries:
    """The entries of a time index file that ascend. Raises `StorageError` where it cannot be read."""
    data = read_index(path, TIME_INDEX_ENTRY_BYTES, sorted_only=True).entries
    timestamps, offsets = array("q"), array("q")
    for timestamp, offset in time_index_entries(data):
        if timestamps and (timestamp <= timestamps[-1] or offset < offsets[-1]):
            break
        timestamps.append(timestamp)
        offsets.append(offset)
    return TimeIndexEntries(timestamps, offsets)


def _ascending(numbers: array[int]) -> int:
    """How many of the first numbers are not negative and ascend strictly."""
    last = -1
    for row, number in enumerate(numbers):
        if number <= last:
            return row
        last = number
    return len(numbers)
