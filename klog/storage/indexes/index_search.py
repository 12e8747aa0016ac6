"""Searches open offset and time index files, without reading them completely.

A binary search reads only the entries that it compares. Lookup rules: Kafka's `OffsetIndex` and `TimeIndex`.
The search assumes ascending entries: `klog.storage.reading.position_search` checks each entry that it uses
against the segment, because an index can be damaged or belong to another segment.
"""

from __future__ import annotations

import io
import struct
from bisect import bisect_left, bisect_right
from typing import BinaryIO, Final, NamedTuple

from klog.formats.packed import OFFSET_INDEX_ENTRY, TIME_INDEX_ENTRY
from klog.storage.files.files import read_at

_LARGEST_INDEX_BYTES: Final = 1 << 31


class OffsetEntry(NamedTuple):
    """One entry of an offset index: offset relative to the segment's base, position in bytes."""

    relative_offset: int
    position_bytes: int


class TimeEntry(NamedTuple):
    """One entry of a time index: ms since the epoch, offset relative to the segment's base."""

    timestamp_ms: int
    relative_offset: int


class _Entries:
    """The entries of an index, up to the zeros that a broker has preallocated. Raises `StorageError`."""

    def __init__(self, file: BinaryIO, entry: struct.Struct) -> None:
        self._file = file
        self._entry = entry
        self._count = min(file.seek(0, io.SEEK_END), _LARGEST_INDEX_BYTES) // entry.size
        # Only the first entry may be all zeros: relative offset 0 at byte 0.
        self._count = bisect_left(
            range(self._count), True, lo=min(1, self._count), key=lambda row: not any(self._at(row))
        )

    def __len__(self) -> int:
        return self._count

    def _at(self, row: int) -> tuple[int, int]:
        data = read_at(self._file, row * self._entry.size, self._entry.size)
        first, second = self._entry.unpack(data.ljust(self._entry.size, b"\0"))
        return first, second

    def _rows_up_to(self, value: int, column: int) -> int:
        """How many entries have at most `value` in that column."""
        return bisect_right(range(self._count), value, key=lambda row: self._at(row)[column])


class OffsetIndexSearch(_Entries):
    """Lookups in an open offset index."""

    def __init__(self, file: BinaryIO) -> None:
        super().__init__(file, OFFSET_INDEX_ENTRY)

    def __getitem__(self, row: int) -> OffsetEntry:
        return OffsetEntry(*self._at(row))

    def row_at_offset(self, relative_offset: int) -> int:
        """The row of the last entry at or before an offset, -1 if there is none."""
        return self._rows_up_to(relative_offset, 0) - 1

    def row_at_position(self, position_bytes: int) -> int:
        """The row of the last entry at or before a position, -1 if there is none."""
        return self._rows_up_to(position_bytes, 1) - 1


class TimeIndexSearch(_Entries):
    """Lookups in an open time index."""

    def __init__(self, file: BinaryIO) -> None:
        super().__init__(file, TIME_INDEX_ENTRY)

    def __getitem__(self, row: int) -> TimeEntry:
        return TimeEntry(*self._at(row))

    def last(self) -> TimeEntry | None:
        """The last entry: in a closed segment it holds the largest timestamp."""
        return self[len(self) - 1] if len(self) else None

    def before(self, timestamp_ms: int) -> TimeEntry | None:
        """The last entry whose timestamp is less than `timestamp_ms`."""
        rows = self._rows_up_to(timestamp_ms - 1, 0)
        return self[rows - 1] if rows else None
