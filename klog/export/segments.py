"""Where a segment can be cut and where it ends, found through its offset index and a few batches.

An entry of an index is used where a whole batch with a good checksum starts at its position and the offset
fits. Where there is no sound index, headers are walked from the start. A tail of zeros was only allocated
(`log.preallocate`, or a crash) and ends a segment silently.
"""

from __future__ import annotations

import io
from array import array
from bisect import bisect_left
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property
from types import TracebackType
from typing import BinaryIO, Final, NamedTuple

from klog.export.files import open_input, read_at
from klog.export.index_lookup import OffsetIndex
from klog.export.replica_files import SegmentFile
from klog.export.seek import candidates, first_filled_byte, sound_batch, walk
from klog.formats import kernel
from klog.formats.columns import COUNT_UNKNOWN, OFFSET_UNKNOWN, BatchTable
from klog.formats.constants import BATCH_HEADER_BYTES, INT32_MAX
from klog.formats.errors import KlogError, StorageError
from klog.storage.reader import SegmentReader, raise_problem
from klog.storage.select import compact

LARGEST_SEGMENT_BYTES: Final = 1 << 31
"""Kafka's positions are 32-bit numbers: what stands for the size of a gzipped copy."""
_ENTRIES_TRIED: Final = 4
_TAIL_BYTES: Final = 64 << 10
_TABLES_KEPT: Final = 3


class Place(NamedTuple):
    """A sound batch: where it starts, and its first offset."""

    position_bytes: int
    offset: int


@dataclass(frozen=True, slots=True)
class End:
    """Where the sound batches of a segment end: the offset after the last, and the byte after it.

    `leader_epoch` is the last batch's (-1: none). Of the last few batches `max_timestamp_ms` is the largest
    timestamp, and `dense` says that no offset is missing among them: the cleaner has not been there.
    Unreadable bytes follow up to `rest_bytes`, where that is larger than `end_bytes`; `rest_problem` says
    what they are. Zeros do not count.
    """

    end_offset: int
    end_bytes: int
    rest_bytes: int
    leader_epoch: int = -1
    dense: bool = True
    max_timestamp_ms: int = -1
    rest_problem: str = ""


class _Headers(NamedTuple):
    position: array[int]
    max_timestamp: array[int]
    dense: bool

    @classmethod
    def of(cls, table: BatchTable) -> _Headers:
        """Copies of what is wanted of a table that is used again."""
        return cls(table.position[:], table.max_timestamp[:], _dense(table))


class OpenSegment:
    """A segment with its offset index, opened for planning; a context manager. Raises `StorageError`."""

    def __init__(self, segment: SegmentFile) -> None:
        self.segment = segment
        self._files = ExitStack()
        self.file: BinaryIO = self._files.enter_context(open_input(segment.log))

    @cached_property
    def _index(self) -> OffsetIndex | None:
        """The offset index, opened when it is first wanted; None where there is none with entries."""
        path = self.segment.offset_index
        if path is None or self.segment.gzipped:
            return None
        try:
            index = self._files.enter_context(OffsetIndex(path))
        except StorageError:
            return None  # an index only saves reading; `klog verify` is what complains of it
        return index if len(index) else None

    def __enter__(self) -> OpenSegment:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._files.close()

    @property
    def size_bytes(self) -> int:
        """Bytes of the segment; of a gzipped copy the most that there can be."""
        return LARGEST_SEGMENT_BYTES if self.segment.gzipped else self.segment.size_bytes

    def place_by_position(self, position_bytes: int, above_bytes: int = -1) -> Place | None:
        """The last sound batch that the index knows up to a position and above another, None where there is
        none."""
        index = self._index
        if index is None:
            return None
        row = index.row_at_position(position_bytes)
        for tried in range(row, max(row - _ENTRIES_TRIED, -1), -1):
            if index[tried].position_bytes <= above_bytes:
                return None
            place = self._place(*index[tried])
            if place is not None:
                return place
        return None

    def place_by_offset(self, offset: int) -> Place:
        """The last sound batch that the index knows that starts at or before an offset, or the segment's
        start."""
        index = self._index
        relative = min(offset - self.segment.base_offset, INT32_MAX)
        if index is not None and relative > 0:
            row = index.row_at_offset(relative)
            for tried in range(row, max(row - _ENTRIES_TRIED, -1), -1):
                place = self._place(*index[tried])
                if place is not None and place.offset <= offset:
                    return place
        return Place(0, self.segment.base_offset)

    def _place(self, relative_offset: int, position_bytes: int) -> Place | None:
        """The batch that an index entry points at, None where it is not there: an entry has the last offset
        of its batch, or of several that a follower appended at once."""
        if not 0 <= position_bytes < self.size_bytes or relative_offset < 0:
            return None
        batch = sound_batch(self.file, position_bytes)
        if batch is None:
            return None
        offset = self._first_offset(batch)
        if offset is None or not 0 <= offset - self.segment.base_offset <= relative_offset:
            return None
        return Place(position_bytes, offset)

    def _first_offset(self, batch: BatchTable) -> int | None:
        """The offset of a batch's first record; that of a compressed set of magic 0 or 1 is inside it."""
        if batch.base_offset[0] != OFFSET_UNKNOWN:
            return batch.base_offset[0]
        data = read_at(self.file, batch.position[0], batch.size[0])
        reader = SegmentReader(io.BytesIO(data), self.segment.log, verify=False, on_problem=raise_problem)
        reader.batches = batch
        try:
            for _ in reader.decode(data):
                return reader.records.offset[0]
        except KlogError:
            return None
        return None

    def batch_at(self, offset: int, end_bytes: int) -> BatchTable | None:
        """The header of the batch that holds an offset, checked in no way; None where none does before
        `end_bytes`."""
        place = self.place_by_offset(offset)
        for _, table in walk(self.file, place.position_bytes, end_bytes, self.segment.base_offset):
            if max(table.last_offset) < offset:
                continue
            for row, last in enumerate(table.last_offset):
                if last >= offset:
                    compact(table, [row])
                    return table if table.base_offset[0] <= offset else None
        return None

    def end(self) -> End:
        """Where the sound batches end."""
        found = None if self.segment.gzipped else self._end_of_whole_file()
        return self._end_by_walk() if found is None else found

    def _end_of_whole_file(self) -> End | None:
        """The end of a segment that ends with a sound batch, by its last bytes: one read, no index."""
        size = self.size_bytes
        start = max(size - _TAIL_BYTES, 0)
        data = read_at(self.file, start, size - start)
        table = BatchTable()
        for at in candidates(data, self.segment.base_offset):
            kernel.scan(memoryview(data)[at:], start + at, True, table)
            # Bytes of a value may look like a batch, but not like one after the other up to the file's end.
            if len(table) and at + table.consumed_bytes == len(data) and kernel.verify(data[at:], table) == 0:
                largest = max(table.max_timestamp)
                return End(
                    table.last_offset[-1] + 1, size, size, table.leader_epoch[-1], _dense(table), largest
                )
        return None

    def _end_by_walk(self) -> End:
        start = self.place_by_position(self.size_bytes) or Place(0, self.segment.base_offset)
        # A few headers more than needed: the last batches may turn out to be damaged.
        recent: deque[_Headers] = deque(maxlen=_TABLES_KEPT)
        for _, table in walk(self.file, start.position_bytes, self.size_bytes, self.segment.base_offset):
            recent.append(_Headers.of(table))
        end = self._last_sound(recent) or End(start.offset, start.position_bytes, start.position_bytes)
        if self.segment.gzipped:
            return replace(end, end_bytes=self.size_bytes, rest_bytes=self.size_bytes)
        if first_filled_byte(self.file, end.end_bytes, self.size_bytes) is None:
            return end
        return replace(end, rest_bytes=self.size_bytes, rest_problem=self._rest_problem(end.end_bytes))

    def _last_sound(self, recent: deque[_Headers]) -> End | None:
        """The end of the last batch whose checksum is good."""
        for headers in reversed(recent):
            for row in range(len(headers.position) - 1, -1, -1):
                batch = sound_batch(self.file, headers.position[row])
                if batch is not None:
                    end_bytes = batch.position[0] + batch.size[0]
                    return End(
                        batch.last_offset[0] + 1,
                        end_bytes,
                        end_bytes,
                        batch.leader_epoch[0],
                        headers.dense,
                        max(headers.max_timestamp[: row + 1]),
                    )
        return None

    def _rest_problem(self, position_bytes: int) -> str:
        rest_bytes = self.size_bytes - position_bytes
        table = BatchTable()
        kernel.scan(read_at(self.file, position_bytes, BATCH_HEADER_BYTES), position_bytes, False, table)
        if rest_bytes < table.need_bytes <= LARGEST_SEGMENT_BYTES:
            return f"the last batch is cut short: it needs {table.need_bytes} bytes, {rest_bytes} are left"
        return f"no sound batch is found in the last {rest_bytes} bytes"

    @property
    def indexed(self) -> bool:
        """Whether there is an offset index with entries."""
        return self._index is not None

    def place_from_offset(self, offset: int) -> Place | None:
        """A sound batch that the index knows that starts at or soon after an offset; None where there is
        none."""
        index = self._index
        if index is None:
            return None
        row = index.row_at_offset(min(offset - self.segment.base_offset, INT32_MAX)) + 1
        for tried in range(row, min(row + _ENTRIES_TRIED, len(index))):
            place = self._place(*index[tried])
            if place is not None and place.offset >= offset:
                return place
        return None

    def cuts(self, start: Place, end_bytes: int, parts: int) -> list[Place]:
        """Sound batches that cut what is from `start` to before `end_bytes` into about equal parts.

        Without an index they are found by walking the headers. There are fewer where batches are large or
        the index has few entries.
        """
        step = (end_bytes - start.position_bytes) / max(parts, 1)
        wanted = [start.position_bytes + int(step * part) for part in range(1, parts)]
        if self.segment.gzipped or not wanted:
            return []
        find = self._cuts_by_index if self.indexed else self._cuts_by_walk
        return list(find(start, end_bytes, wanted))

    def _cuts_by_index(self, start: Place, end_bytes: int, wanted: list[int]) -> Iterator[Place]:
        last = start
        for position in wanted:
            place = self.place_by_position(position, last.position_bytes)
            if place is not None and place.offset > last.offset and place.position_bytes < end_bytes:
                yield place
                last = place

    def _cuts_by_walk(self, start: Place, end_bytes: int, wanted: list[int]) -> Iterator[Place]:
        last = start
        for _, table in walk(self.file, start.position_bytes, end_bytes, self.segment.base_offset):
            while wanted and table.position[-1] >= wanted[0]:
                row = bisect_left(table.position, wanted.pop(0))
                place = self._place(INT32_MAX, table.position[row])
                if place is not None and place.offset > last.offset:
                    yield place
                    last = place


def _dense(table: BatchTable) -> bool:
    """Whether the batches hold every offset from the first to the last, as far as their headers say."""
    next_offset = table.base_offset[0]
    for base, last, count in zip(table.base_offset, table.last_offset, table.count, strict=True):
        if OFFSET_UNKNOWN in (base, next_offset):
            next_offset = OFFSET_UNKNOWN  # not known for sets of old: taken to be dense
            continue
        if base != next_offset or (count != COUNT_UNKNOWN and count != last - base + 1):
            return False
        next_offset = last + 1
    return True
