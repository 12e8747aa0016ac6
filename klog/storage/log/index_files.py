"""The offset index and the time index of a segment that a broker serves.

Rules: KIP-33 (time index) and Kafka's `AbstractIndex`. The files of the active segment have their full
size, as holes, and are mapped; rolling and closing trims them. Entries are appended, searched in place and
truncated, and never changed. Not safe for threads: the log's lock guards it. The layouts are those of the
definitions in `klog.formats.offset_index` and `time_index`.

A write into a mapped hole of a full disk would kill the process. So blocks are allocated a page ahead,
which raises `OSError` if the disk is full. Indexes of rolled segments are read with plain reads and are not
kept open.
"""

from __future__ import annotations

import contextlib
import mmap
import operator
import os
import struct
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from klog.formats.constants import INT32_MAX
from klog.formats.errors import CorruptRecordError
from klog.formats.packed import OFFSET_INDEX_ENTRY, TIME_INDEX_ENTRY
from klog.storage.log.cold_reads import ProbedFile, read_at

_PAGE_BYTES: Final = 4096
# So many entries of a file that is not mapped are read at once.
_BLOCK_ENTRIES: Final = 512
_RANDOM: Final[int | None] = getattr(mmap, "MADV_RANDOM", None)


class OffsetPosition(NamedTuple):
    """An offset and the position in bytes in the segment's log where its batch (or one before it) starts."""

    offset: int
    position: int


class TimestampOffset(NamedTuple):
    """A timestamp in ms and the last offset of the batch that brought it."""

    timestamp: int
    offset: int


Entries = mmap.mmap | bytes | bytearray


def _entry(entries: Entries, entry: struct.Struct, number: int) -> tuple[int, int]:
    first, second = entry.unpack_from(entries, number * entry.size)
    return first, second


def _up_to(entries: Entries, entry: struct.Struct, low: int, high: int, value: int, column: int) -> int:
    """The number of the first entry above `value` in a column (which ascends), from `low` to `high`."""
    size, unpack_from = entry.size, entry.unpack_from
    while low < high:
        middle = (low + high) // 2
        if unpack_from(entries, middle * size)[column] <= value:
            low = middle + 1
        else:
            high = middle
    return low


class _IndexFile:
    """The common part of both indexes. All methods raise `OSError` if the disk fails."""

    def __init__(self, path: str, base_offset: int, max_bytes: int, entry: struct.Struct) -> None:
        """Open an index as it is (a new one is empty); `activate` makes it one that is appended to."""
        self.path = path
        self.entry = entry
        self._probed = ProbedFile()
        self.base_offset = base_offset
        self.max_entries = max_bytes // self.entry.size
        descriptor = os.open(path, os.O_RDONLY | os.O_CREAT, 0o644)
        try:
            self.entries = os.fstat(descriptor).st_size // self.entry.size
        finally:
            os.close(descriptor)
        self._map: mmap.mmap | None = None
        self._allocated_bytes = 0
        self._loaded()

    def _loaded(self) -> None:
        """Read the last entry again."""

    @property
    def is_active(self) -> bool:
        """Whether it is appended to."""
        return self._map is not None

    def ascends(self) -> bool:
        """Whether all entries are in order and none is negative. Reads the whole file."""
        with open(self.path, "rb", buffering=0) as file:
            data = file.read(self.entries * self.entry.size)
        entries = list(self.entry.iter_unpack(data[: len(data) // self.entry.size * self.entry.size]))
        if not entries:
            return True
        keys, values = zip(*entries, strict=True)
        # One batch may bring several timestamps, but each entry has a position of its own.
        in_order = operator.lt if self.entry is OFFSET_INDEX_ENTRY else operator.le
        return (
            keys[0] >= 0
            and values[0] >= 0
            and all(map(operator.lt, keys, keys[1:]))
            and all(map(in_order, values, values[1:]))
        )

    @property
    def full(self) -> bool:
        """Whether there is no space for an entry."""
        return self.entries >= self.max_entries

    def activate(self) -> None:
        """Allocate the full size: the segment is (again) the active one."""
        self._resize(self.max_entries * self.entry.size, mapped=True)

    def trim(self) -> None:
        """Cut the file to what is used: the segment is not the active one any more."""
        if self._map is not None:
            self._resize(self.entries * self.entry.size, mapped=False)

    def _resize(self, size_bytes: int, *, mapped: bool) -> None:
        descriptor = os.open(self.path, os.O_RDWR)
        self.release()
        try:
            os.ftruncate(descriptor, size_bytes)
            if mapped and size_bytes:
                self._map = mmap.mmap(descriptor, size_bytes)
                if _RANDOM is not None:
                    # Else the first entry would read ahead, and allocate, megabytes of the hole behind it.
                    self._map.madvise(_RANDOM)
        finally:
            os.close(descriptor)
        used_bytes = min(self.entries * self.entry.size, size_bytes)
        self._allocated_bytes = used_bytes // _PAGE_BYTES * _PAGE_BYTES

    def release(self) -> None:
        """Close the file without changing it."""
        if self._map is not None:
            self._map.close()
            self._map = None

    def reserve(self, count: int) -> None:
        """Allocate the disk space of so many more entries, which needs a descriptor; adding them does not."""
        end = min(self.entries + count, self.max_entries) * self.entry.size
        if self._map is not None and end > self._allocated_bytes:
            self._allocate(end)

    def _append(self, first: int, second: int) -> None:
        at = self.entries * self.entry.size
        end = at + self.entry.size
        if self._map is None or end > len(self._map):
            raise CorruptRecordError(f"no space for an entry after {self.entries}", file=self.path)
        if end > self._allocated_bytes:
            self._allocate(end)
        self.entry.pack_into(self._map, at, first, second)
        self.entries += 1

    def _append_pairs(self, firsts: Sequence[int], seconds: Sequence[int]) -> None:
        """Add entries, at least one, as many as there is space for."""
        count = min(len(firsts), self.max_entries - self.entries)
        at = self.entries * self.entry.size
        end = at + count * self.entry.size
        if self._map is None or count < 1:
            raise CorruptRecordError(f"no space for an entry after {self.entries}", file=self.path)
        if end > self._allocated_bytes:
            self._allocate(end)
        pack = self.entry.pack
        self._map[at:end] = b"".join(map(pack, firsts[:count], seconds[:count]))
        self.entries += count

    def _allocate(self, end_bytes: int) -> None:
        start = self._allocated_bytes
        size_bytes = -(-end_bytes // _PAGE_BYTES) * _PAGE_BYTES - start
        descriptor = os.open(self.path, os.O_RDWR)
        try:
            # Within the file: allocating must not make it longer.
            os.posix_fallocate(descriptor, start, min(size_bytes, os.fstat(descriptor).st_size - start))
        finally:
            os.close(descriptor)
        self._allocated_bytes = start + size_bytes

    def _keep(self, entries: int) -> None:
        """Keep only the first entries; the rest of the file becomes zeros."""
        self.entries = entries
        self._resize(entries * self.entry.size, mapped=False)
        self._loaded()

    def _pair(self, number: int, may_wait: bool = True) -> tuple[int, int]:
        if self._map is not None:
            return _entry(self._map, self.entry, number)
        with self._opened() as descriptor:
            return _entry(self._block(descriptor, number, number + 1, may_wait), self.entry, 0)

    def _block(self, descriptor: int, low: int, high: int, may_wait: bool) -> bytes | bytearray:
        """The bytes of some entries."""
        at, size_bytes = low * self.entry.size, (high - low) * self.entry.size
        data = read_at(self._probed, descriptor, self.path, size_bytes, at, may_wait=may_wait)
        if len(data) < size_bytes:
            raise CorruptRecordError("entry is not there any more", file=self.path, position_bytes=at)
        return data

    @contextlib.contextmanager
    def _opened(self) -> Iterator[int]:
        descriptor = os.open(self.path, os.O_RDONLY)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def _after(self, value: int, column: int, may_wait: bool = True) -> int:
        """How many entries have at most `value` in a column (which ascends)."""
        if self._map is not None:
            return _up_to(self._map, self.entry, 0, self.entries, value, column)
        low, high = 0, self.entries
        with self._opened() as descriptor:
            while high - low > _BLOCK_ENTRIES:
                middle = (low + high) // 2
                block = self._block(descriptor, middle, middle + 1, may_wait)
                if _entry(block, self.entry, 0)[column] <= value:
                    low = middle + 1
                else:
                    high = middle
            if low < high:
                block = self._block(descriptor, low, high, may_wait)
                low += _up_to(block, self.entry, 0, high - low, value, column)
        return low

    def _before(self, value: int, column: int) -> int:
        """How many entries have less than `value` in a column."""
        return self._after(value - 1, column)

    def _relative(self, offset: int) -> int:
        relative = offset - self.base_offset
        if not 0 <= relative <= INT32_MAX:
            raise CorruptRecordError(
                f"offset {offset} does not fit an index that starts at {self.base_offset}", file=self.path
            )
        return relative


class OffsetIndexFile(_IndexFile):
    """Last offset of a batch -> where the batch starts, about one entry every `index.interval.bytes`."""

    def __init__(self, path: str, base_offset: int, max_bytes: int) -> None:
        super().__init__(path, base_offset, max_bytes, OFFSET_INDEX_ENTRY)

    def _loaded(self) -> None:
        self.last = self._at(self.entries - 1)

    def _at(self, number: int, may_wait: bool = True) -> OffsetPosition:
        if number < 0:
            return OffsetPosition(self.base_offset, 0)
        relative, position = self._pair(number, may_wait)
        return OffsetPosition(self.base_offset + relative, position)

    def append(self, offset: int, position: int) -> None:
        """Add an entry. Raises `CorruptRecordError` if the offset does not ascend or does not fit."""
        if self.entries and offset <= self.last.offset:
            raise CorruptRecordError(
                f"offset {offset} after {self.last.offset} in the offset index", file=self.path
            )
        self._append(self._relative(offset), position)
        self.last = OffsetPosition(offset, position)

    def append_all(self, offsets: Sequence[int], positions: Sequence[int]) -> None:
        """Add entries, at least one; the offsets ascend and are relative to the base offset.

        Those for which there is no space are left out. Raises `CorruptRecordError` if they do not ascend.
        """
        if self.entries and self.base_offset + offsets[0] <= self.last.offset:
            raise CorruptRecordError(
                f"offset {self.base_offset + offsets[0]} after {self.last.offset} in the offset index",
                file=self.path,
            )
        self._append_pairs(offsets, positions)
        self._loaded()

    def lookup(self, offset: int, *, may_wait: bool = True) -> OffsetPosition:
        """The last entry at or below `offset`; the start of the segment if there is none.

        Raises `ColdReadError` if the disk is needed and the caller may not wait for it.
        """
        if offset >= self.last.offset:
            return self.last
        return self._at(self._after(offset - self.base_offset, 0, may_wait) - 1, may_wait)

    def upper_bound(self, position: int) -> int | None:
        """The offset of the first entry at or after a position; None if there is none."""
        number = self._before(position, 1)
        return self._at(number).offset if number < self.entries else None

    def truncate_to(self, offset: int) -> None:
        """Drop every entry at or above `offset`; the file is trimmed."""
        self._keep(self._before(offset - self.base_offset, 0))


class TimeIndexFile(_IndexFile):
    """Largest timestamp so far -> last offset of the batch that brought it."""

    def __init__(self, path: str, base_offset: int, max_bytes: int) -> None:
        super().__init__(path, base_offset, max_bytes, TIME_INDEX_ENTRY)

    def _loaded(self) -> None:
        self.last = self._at(self.entries - 1)

    @property
    def full(self) -> bool:
        """Full one entry early: rolling or closing appends the last entry."""
        return self.entries >= self.max_entries - 1

    @property
    def before_first(self) -> TimestampOffset:
        """What a lookup finds below the first entry."""
        return TimestampOffset(-1, self.base_offset)

    def _at(self, number: int) -> TimestampOffset:
        if number < 0:
            return self.before_first
        timestamp, relative = self._pair(number)
        return TimestampOffset(timestamp, self.base_offset + relative)

    def maybe_append(self, timestamp: int, offset: int) -> None:
        """Add an entry if the timestamp is above the last one's and there is space.

        Raises `CorruptRecordError` if the offset goes back or does not fit.
        """
        if self.entries and offset < self.last.offset:
            raise CorruptRecordError(
                f"offset {offset} after {self.last.offset} in the time index", file=self.path
            )
        if timestamp > self.last.timestamp and self.entries < self.max_entries:
            self._append(timestamp, self._relative(offset))
            self.last = TimestampOffset(timestamp, offset)

    def append_all(self, timestamps: Sequence[int], offsets: Sequence[int]) -> None:
        """Add entries that ascend, at least one; offsets are relative to the base offset.

        Those for which there is no space are left out. Raises `CorruptRecordError` if an offset goes back.
        """
        if self.entries and self.base_offset + offsets[0] < self.last.offset:
            raise CorruptRecordError(
                f"offset {self.base_offset + offsets[0]} after {self.last.offset} in the time index",
                file=self.path,
            )
        if self.entries < self.max_entries:
            self._append_pairs(timestamps, offsets)
            self._loaded()

    def lookup(self, timestamp: int) -> TimestampOffset:
        """The last entry at or below `timestamp`; (-1, base offset) if there is none."""
        if timestamp >= self.last.timestamp:
            return self.last
        return self._at(self._after(timestamp, 0) - 1)

    def truncate_to(self, offset: int) -> None:
        """Drop every entry at or above `offset`; the file is trimmed."""
        self._keep(self._before(offset - self.base_offset, 1))
