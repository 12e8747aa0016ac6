"""Finds batches of a segment by offset, position or time, through its indexes.

Lookup rules: Kafka's `OffsetIndex.lookup`, `TimeIndex.lookup` and `LogSegment.findOffsetByTimestamp`. An
index only saves reading: an entry counts only if a batch with a valid checksum starts at its position and the
batch's offset fits the entry. If no entry does, or there is no index, the answer is the segment's start. The
offsets of a segment are assumed to ascend, as Kafka assumes.

Segment and indexes are any seekable streams, so the same search serves local files and object stores.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from functools import cached_property, partial
from typing import BinaryIO, Final, NamedTuple

from klog.formats.constants import INT32_MAX
from klog.formats.errors import StorageError
from klog.kernel.columns import OFFSET_UNKNOWN, BatchTable
from klog.storage.files.files import open_for_reading, read_at
from klog.storage.indexes.index_search import OffsetIndexSearch, TimeEntry, TimeIndexSearch
from klog.storage.reading.batch_search import MAX_BATCH_BYTES, fill_base_offset, valid_batch, walk
from klog.storage.reading.select import Bounds

OpenIndex = Callable[[], BinaryIO]
"""Opens an index file. Raises `StorageError`."""

_MOST_ENTRIES_TRIED: Final = 4


class BatchPosition(NamedTuple):
    """A valid batch: the position in bytes at which it starts, and the offset of its first record."""

    position_bytes: int
    offset: int


class PositionSearch:
    """Searches one open segment; close it to close the indexes. The file stays at an arbitrary position.

    The indexes are opened when they are first needed; None means that the segment has none. A batch of more
    than `MAX_BATCH_BYTES` counts as invalid.
    """

    def __init__(
        self,
        file: BinaryIO,
        base_offset: int,
        size_bytes: int,
        *,
        offset_index: OpenIndex | None,
        time_index: OpenIndex | None,
    ) -> None:
        self.start = BatchPosition(0, base_offset)
        self._file = file
        self._base_offset = base_offset
        self._size_bytes = size_bytes
        self._open_offset_index = offset_index
        self._open_time_index = time_index
        self._opened = ExitStack()

    def close(self) -> None:
        """Close the indexes."""
        self._opened.close()

    @property
    def has_offset_index(self) -> bool:
        """Whether there is an offset index with entries."""
        return self._offsets is not None

    @cached_property
    def _offsets(self) -> OffsetIndexSearch | None:
        """The offset index; None if there is none with entries, or it cannot be read."""
        try:
            if self._open_offset_index is None:
                return None
            index = OffsetIndexSearch(self._opened.enter_context(self._open_offset_index()))
        except StorageError:
            return None  # an index only saves reading; `klog verify` reports that it is damaged
        return index if len(index) else None

    @cached_property
    def _times(self) -> TimeIndexSearch | None:
        try:
            if self._open_time_index is None:
                return None
            return TimeIndexSearch(self._opened.enter_context(self._open_time_index()))
        except StorageError:
            return None

    def at(self, position_bytes: int, highest_relative_offset: int = INT32_MAX) -> BatchPosition | None:
        """The batch at a position, None if no valid one with a fitting offset starts there.

        `highest_relative_offset` is what an index entry says: the last offset of that batch, or of several
        batches that a follower appended at once.
        """
        if not 0 <= position_bytes < self._size_bytes or highest_relative_offset < 0:
            return None
        batch = valid_batch(self._file, position_bytes, MAX_BATCH_BYTES)
        if batch is None:
            return None
        if batch.base_offset[0] == OFFSET_UNKNOWN:
            fill_base_offset(read_at(self._file, position_bytes, batch.size[0]), batch, 0, MAX_BATCH_BYTES)
        offset = batch.base_offset[0]
        if offset == OFFSET_UNKNOWN or not 0 <= offset - self._base_offset <= highest_relative_offset:
            return None
        return BatchPosition(position_bytes, offset)

    def at_or_before_offset(self, offset: int) -> BatchPosition:
        """An indexed batch that starts at or before an offset, the last such one; else the segment's
        start."""
        index = self._offsets
        relative = min(offset - self._base_offset, INT32_MAX)
        if index is not None and relative > 0:
            row = index.row_at_offset(relative)
            for found in self._indexed(index, range(row, -1, -1)):
                if found.offset <= offset:
                    return found
        return self.start

    def at_or_after_offset(self, offset: int) -> BatchPosition | None:
        """An indexed batch that starts at an offset or soon after it, None if there is none."""
        index = self._offsets
        if index is None:
            return None
        row = index.row_at_offset(min(offset - self._base_offset, INT32_MAX)) + 1
        for found in self._indexed(index, range(row, len(index))):
            if found.offset >= offset:
                return found
        return None

    def at_or_before_position(self, position_bytes: int, above_bytes: int = -1) -> BatchPosition | None:
        """The last indexed batch at or before one position and after another, None if there is none."""
        index = self._offsets
        if index is None:
            return None
        row = index.row_at_position(position_bytes)
        for found in self._indexed(index, range(row, -1, -1), above_bytes):
            return found
        return None

    def _indexed(
        self, index: OffsetIndexSearch, rows: range, above_bytes: int = -1
    ) -> Iterable[BatchPosition]:
        """The batches that some entries point at; gives up after a few entries."""
        for row in rows[:_MOST_ENTRIES_TRIED]:
            entry = index[row]
            if entry.position_bytes <= above_bytes:
                return
            found = self.at(entry.position_bytes, entry.relative_offset)
            if found is not None:
                yield found

    def indexed_end_offset(self) -> int:
        """The offset after the highest one that an index names; the base offset if none names any.

        A last entry that does not follow on the one before it does not count: the index is damaged.
        """
        ends = [self._base_offset]
        for index, column in ((self._offsets, 0), (self._times, 1)):
            try:
                last = None if index is None or not len(index) else index[len(index) - 1]
                before = None if index is None or len(index) < 2 else index[len(index) - 2]
            except StorageError:
                continue
            if last is None or not any(last) or last[column] < 0:
                continue
            if before is None or all(old < new for old, new in zip(before, last, strict=True)):
                ends.append(self._base_offset + last[column] + 1)
        return max(ends)

    def before_time(self, timestamp_ms: int) -> BatchPosition:
        """A batch before which all records are older than `timestamp_ms`; the segment's start if unknown."""
        try:
            entry = None if self._times is None else self._times.before(timestamp_ms)
        except StorageError:
            entry = None
        if entry is None:
            return self.start
        found = self.at_or_before_offset(self._base_offset + entry.relative_offset)
        return found if found != self.start and self._confirms(found, entry) else self.start

    def ends_before_time(self, timestamp_ms: int, least_ms: int) -> bool:
        """Whether all records are older than `timestamp_ms`, by the last entry of the time index.

        Only the index of a closed segment says that. A last entry below `least_ms` does not count: the index
        was truncated.
        """
        try:
            last = None if self._times is None else self._times.last()
        except StorageError:
            last = None
        if last is None or not least_ms <= last.timestamp_ms < timestamp_ms:
            return False
        found = self.at_or_before_offset(self._base_offset + last.relative_offset)
        return self._confirms(found, last)

    def _confirms(self, start: BatchPosition, entry: TimeEntry) -> bool:
        """Whether the batch that holds the offset of a time index entry has the entry's timestamp."""
        offset = self._base_offset + entry.relative_offset
        for _, table in walk(self._file, start.position_bytes, self._size_bytes, self._base_offset):
            row = row_of_offset(table, offset)
            if row is not None:
                return table.max_timestamp[row] == entry.timestamp_ms
        return False


def row_of_offset(table: BatchTable, offset: int) -> int | None:
    """The first row whose batch ends at or after an offset, None if there is none."""
    return next((row for row, last in enumerate(table.last_offset) if last >= offset), None)


def start_position(file: BinaryIO, path: str, base_offset: int | None, bounds: Bounds) -> int:
    """The position of a batch before which no record within `bounds` lies, in bytes; 0 if that is unknown.

    `file` is the open segment at the local `path` and stays at an arbitrary position. A gzipped copy has no
    index. Raises `StorageError`.
    """
    if base_offset is None or not path.endswith(".log"):
        return 0
    if bounds.first_offset is None and bounds.since_ms is None:
        return 0
    search = PositionSearch(
        file,
        base_offset,
        file.seek(0, io.SEEK_END),
        offset_index=_beside(path, ".index"),
        time_index=_beside(path, ".timeindex"),
    )
    try:
        found = search.start
        if bounds.first_offset is not None:
            found = search.at_or_before_offset(bounds.first_offset)
        if bounds.since_ms is not None:
            found = max(found, search.before_time(bounds.since_ms))
        return found.position_bytes
    finally:
        search.close()


def _beside(path: str, suffix: str) -> OpenIndex | None:
    index = path.removesuffix(".log") + suffix
    return partial(open_for_reading, index) if os.path.exists(index) else None
