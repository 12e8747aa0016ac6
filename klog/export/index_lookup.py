"""Lookups in the index files of segments, without reading the files whole.

Of a local index the few entries that a binary search meets are read; a remote one comes in one request.
Rules of lookup: Kafka's `OffsetIndex` and `TimeIndex`. Entries are taken to ascend: who uses one holds it
against the segment (`klog.export.seek`), for an index can be damaged, or another file's.
"""

from __future__ import annotations

import io
import struct
from typing import BinaryIO, Final, NamedTuple

from klog.export.files import is_remote, open_input, read_at
from klog.formats.errors import StorageError

_LARGEST_INDEX_BYTES: Final = 1 << 31
_OFFSET_ENTRY: Final = struct.Struct(">ii")
_TIME_ENTRY: Final = struct.Struct(">qi")


class OffsetEntry(NamedTuple):
    """One entry of an offset index: offset relative to the segment's base, position in bytes."""

    relative_offset: int
    position_bytes: int


class TimeEntry(NamedTuple):
    """One entry of a time index: ms since the epoch, offset relative to the segment's base."""

    timestamp_ms: int
    relative_offset: int


class _Entries:
    """Entries of a fixed size, up to the zeros that a broker has only allocated."""

    def __init__(self, file: BinaryIO, entry: struct.Struct) -> None:
        self._file = file
        self._entry = entry
        self.count = self._size_bytes() // entry.size
        # Only the first entry may be all zeros: relative offset 0 at byte 0.
        low, high = min(1, self.count), self.count
        while low < high:
            middle = (low + high) // 2
            if any(self.at(middle)):
                low = middle + 1
            else:
                high = middle
        self.count = low

    def at(self, row: int) -> tuple[int, int]:
        data = read_at(self._file, row * self._entry.size, self._entry.size)
        first, second = self._entry.unpack(data.ljust(self._entry.size, b"\0"))
        return first, second

    def rows_up_to(self, value: int, column: int) -> int:
        """How many entries have at most `value` in that column."""
        low, high = 0, self.count
        while low < high:
            middle = (low + high) // 2
            if self.at(middle)[column] <= value:
                low = middle + 1
            else:
                high = middle
        return low

    def close(self) -> None:
        self._file.close()

    def _size_bytes(self) -> int:
        return min(self._file.seek(0, io.SEEK_END), _LARGEST_INDEX_BYTES)


def _open(path: str) -> BinaryIO:
    if path.endswith(".gz"):
        raise StorageError("an index is not read out of a gzipped copy", file=path)
    file = open_input(path)
    if not is_remote(path):
        return file
    with file:
        return io.BytesIO(file.read(64 << 20))


class OffsetIndex:
    """An offset index opened for lookups; close it. Raises `StorageError` where it cannot be read."""

    def __init__(self, path: str) -> None:
        self._entries = _Entries(_open(path), _OFFSET_ENTRY)

    def __enter__(self) -> OffsetIndex:
        return self

    def __exit__(self, *_: object) -> None:
        self._entries.close()

    def __len__(self) -> int:
        return self._entries.count

    def __getitem__(self, row: int) -> OffsetEntry:
        return OffsetEntry(*self._entries.at(row))

    def row_at_offset(self, relative_offset: int) -> int:
        """The row of the last entry at or before an offset, -1 where there is none."""
        return self._entries.rows_up_to(relative_offset, 0) - 1

    def row_at_position(self, position_bytes: int) -> int:
        """The row of the last entry at or before a position, -1 where there is none."""
        return self._entries.rows_up_to(position_bytes, 1) - 1


class TimeIndex:
    """A time index opened for lookups; close it. Raises `StorageError` where it cannot be read."""

    def __init__(self, path: str) -> None:
        self._entries = _Entries(_open(path), _TIME_ENTRY)

    def __enter__(self) -> TimeIndex:
        return self

    def __exit__(self, *_: object) -> None:
        self._entries.close()

    def __len__(self) -> int:
        return self._entries.count

    def last(self) -> TimeEntry | None:
        """The last entry: the largest timestamp of a closed segment."""
        count = self._entries.count
        return TimeEntry(*self._entries.at(count - 1)) if count else None

    def before(self, timestamp_ms: int) -> TimeEntry | None:
        """The last entry whose timestamp is below `timestamp_ms`."""
        rows = self._entries.rows_up_to(timestamp_ms - 1, 0)
        return TimeEntry(*self._entries.at(rows - 1)) if rows else None
