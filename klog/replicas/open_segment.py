"""A segment opened for planning: where its valid batches end, and where it can be divided.

Both are found through the offset index and a few batches (`klog.storage.reading.position_search`). Without a
usable index, headers are walked from the start. Zeros at the end were only preallocated (`log.preallocate`,
or a crash): they end a segment and are not a loss.
"""

from __future__ import annotations

import os
from array import array
from bisect import bisect_left
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, BinaryIO, Final, NamedTuple

from klog.formats.constants import BATCH_HEADER_BYTES
from klog.formats.errors import StorageError
from klog.kernel import kernel
from klog.kernel.columns import COUNT_UNKNOWN, OFFSET_UNKNOWN, BatchTable
from klog.replicas.files import open_index, open_input
from klog.replicas.replica_files import SegmentFile
from klog.storage.files.files import read_at
from klog.storage.files.gzipped import GzippedFile
from klog.storage.files.seekable import SeekableStream
from klog.storage.reading.batch_search import candidates, first_filled_byte, valid_batch, walk
from klog.storage.reading.position_search import BatchPosition, PositionSearch, row_of_offset
from klog.storage.reading.select import compact

LARGEST_SEGMENT_BYTES: Final = 1 << 31
"""Kafka's positions are 32-bit numbers. It stands for the size of a gzipped copy, until that was read."""
_NOT_GZIPPED: Final = "the copy is not gzipped, as its name says, and no valid batch is in it"
_TAIL_BYTES: Final = 64 << 10
_TABLES_KEPT: Final = 3


@dataclass(frozen=True, slots=True)
class SegmentEnd:
    """Where the valid batches of a segment end: the offset after the last one, and the byte after it.

    `leader_epoch` is that of the last batch (-1: none). `max_timestamp_ms` is the largest timestamp of the
    last few batches. `dense` says that no offset is missing among those: the cleaner has removed none. If
    `rest_problem` is not empty, unreadable bytes follow up to `rest_bytes`, and it describes them; zeros do
    not count. Positions in a gzipped copy are those of the plain bytes. `indexed_end_offset` is the offset
    after the highest one that the indexes name, -1 if they were not read.
    """

    end_offset: int
    end_bytes: int
    rest_bytes: int
    leader_epoch: int = -1
    dense: bool = True
    max_timestamp_ms: int = -1
    rest_problem: str = ""
    indexed_end_offset: int = -1


class _Headers(NamedTuple):
    position: array[int]
    max_timestamp: array[int]
    dense: bool

    @classmethod
    def of(cls, table: BatchTable) -> _Headers:
        """Copies of the columns that are needed: the table is reused."""
        return cls(table.position[:], table.max_timestamp[:], _dense(table))


class OpenSegment:
    """A segment with its indexes, opened for planning; a context manager. Raises `StorageError`.

    `search` finds batches through the indexes.
    """

    def __init__(self, segment: SegmentFile) -> None:
        self.segment = segment
        self._files = ExitStack()
        file = self._files.enter_context(open_input(segment.log))
        self._copy = ReadableCopy(file) if isinstance(file, GzippedFile) else None
        self.file: BinaryIO = file if self._copy is None else self._copy  # type: ignore[assignment]
        offset_index, time_index = (
            None if path is None or segment.gzipped else partial(open_index, path)
            for path in (segment.offset_index, segment.time_index)
        )
        self.search = PositionSearch(
            self.file,
            segment.base_offset,
            self.size_bytes,
            offset_index=offset_index,
            time_index=time_index,
        )
        self._files.callback(self.search.close)

    def __enter__(self) -> OpenSegment:
        return self

    def __exit__(self, *_: object) -> None:
        self._files.close()

    @property
    def size_bytes(self) -> int:
        """Bytes of the segment; for a gzipped copy the most that there can be."""
        return self.segment.size_bytes if self._copy is None else LARGEST_SEGMENT_BYTES

    def batch_at(self, offset: int, end_bytes: int) -> BatchTable | None:
        """The unchecked header of the batch that holds an offset, None if no batch before `end_bytes`
        does."""
        start = self.search.at_or_before_offset(offset)
        for _, table in walk(self.file, start.position_bytes, end_bytes, self.segment.base_offset):
            row = row_of_offset(table, offset)
            if row is not None:
                compact(table, [row])
                return table if table.base_offset[0] <= offset else None
        return None

    def end(self) -> SegmentEnd:
        """Where the valid batches end."""
        found = None if self._copy is not None else self._end_of_whole_file()
        return self._end_by_walk() if found is None else found

    def _end_of_whole_file(self) -> SegmentEnd | None:
        """The end of a segment that ends with a valid batch, from its last bytes: one read, no index."""
        size = self.size_bytes
        start = max(size - _TAIL_BYTES, 0)
        data = read_at(self.file, start, size - start)
        table = BatchTable()
        for at in candidates(data, self.segment.base_offset):
            kernel.scan(memoryview(data)[at:], start + at, True, table)
            # Bytes of a value may look like a batch, but not like consecutive batches up to the file's end.
            if len(table) and at + table.consumed_bytes == len(data) and kernel.verify(data[at:], table) == 0:
                return SegmentEnd(
                    table.last_offset[-1] + 1,
                    size,
                    size,
                    table.leader_epoch[-1],
                    _dense(table),
                    max(table.max_timestamp),
                )
        return None

    def _end_by_walk(self) -> SegmentEnd:
        start = self.search.at_or_before_position(self.size_bytes) or self.search.start
        # More headers than needed are kept: the last batches may turn out to be damaged.
        recent: deque[_Headers] = deque(maxlen=_TABLES_KEPT)
        for _, table in walk(self.file, start.position_bytes, self.size_bytes, self.segment.base_offset):
            recent.append(_Headers.of(table))
        end = self._last_valid(recent) or SegmentEnd(start.offset, start.position_bytes, start.position_bytes)
        # This reads a copy to its end, which shows its size and whether it is damaged.
        size_bytes = self.size_bytes if self._copy is None else self.file.seek(LARGEST_SEGMENT_BYTES)
        if self._copy is not None and self._copy.damage is not None:
            return replace(end, rest_bytes=size_bytes, rest_problem=self._copy.damage.explanation)
        if self.segment.gzipped and self._copy is None and not end.end_bytes:
            return replace(end, rest_bytes=size_bytes, rest_problem=_NOT_GZIPPED)
        if first_filled_byte(self.file, end.end_bytes, size_bytes) is None:
            return end
        return replace(end, rest_bytes=size_bytes, rest_problem=self._rest_problem(end.end_bytes, size_bytes))

    def _last_valid(self, recent: deque[_Headers]) -> SegmentEnd | None:
        """The end of the last batch whose checksum matches."""
        for headers in reversed(recent):
            for row in range(len(headers.position) - 1, -1, -1):
                batch = valid_batch(self.file, headers.position[row])
                if batch is not None:
                    end_bytes = batch.position[0] + batch.size[0]
                    return SegmentEnd(
                        batch.last_offset[0] + 1,
                        end_bytes,
                        end_bytes,
                        batch.leader_epoch[0],
                        headers.dense,
                        max(headers.max_timestamp[: row + 1]),
                    )
        return None

    def _rest_problem(self, position_bytes: int, size_bytes: int) -> str:
        rest_bytes = size_bytes - position_bytes
        table = BatchTable()
        kernel.scan(read_at(self.file, position_bytes, BATCH_HEADER_BYTES), position_bytes, False, table)
        if rest_bytes < table.need_bytes <= LARGEST_SEGMENT_BYTES:
            return f"the last batch is cut short: it needs {table.need_bytes} bytes, {rest_bytes} are left"
        return f"no valid batch is found in the last {rest_bytes} bytes"

    def cuts(self, start: BatchPosition, end_bytes: int, parts: int) -> list[BatchPosition]:
        """Valid batches that divide the range from `start` to before `end_bytes` into about equal parts.

        Without an index they are found by walking the headers. There are fewer than `parts` - 1 if batches
        are large or the index has few entries.
        """
        step = (end_bytes - start.position_bytes) / max(parts, 1)
        wanted = [start.position_bytes + int(step * part) for part in range(1, parts)]
        if self.segment.gzipped or not wanted:
            return []
        find = self._cuts_by_index if self.search.has_offset_index else self._cuts_by_walk
        return list(find(start, end_bytes, wanted))

    def _cuts_by_index(
        self, start: BatchPosition, end_bytes: int, wanted: list[int]
    ) -> Iterator[BatchPosition]:
        last = start
        for position in wanted:
            found = self.search.at_or_before_position(position, last.position_bytes)
            if found is not None and found.offset > last.offset and found.position_bytes < end_bytes:
                yield found
                last = found

    def _cuts_by_walk(
        self, start: BatchPosition, end_bytes: int, wanted: list[int]
    ) -> Iterator[BatchPosition]:
        last = start
        for _, table in walk(self.file, start.position_bytes, end_bytes, self.segment.base_offset):
            while wanted and table.position[-1] >= wanted[0]:
                row = bisect_left(table.position, wanted.pop(0))
                found = self.search.at(table.position[row])
                if found is not None and found.offset > last.offset:
                    yield found
                    last = found


def _dense(table: BatchTable) -> bool:
    """Whether the batches hold every offset from the first to the last, by their headers."""
    next_offset = table.base_offset[0]
    for base, last, count in zip(table.base_offset, table.last_offset, table.count, strict=True):
        if OFFSET_UNKNOWN in (base, next_offset):
            next_offset = OFFSET_UNKNOWN  # compressed sets of magic 0 or 1 do not say: assumed to be dense
            continue
        if base != next_offset or (count != COUNT_UNKNOWN and count != last - base + 1):
            return False
        next_offset = last + 1
    return True


# -- A gzipped copy of a segment, read as a file that ends where the copy is damaged or cut short ------------
# The planner looks for the last valid batch of a copy. So it needs what was decompressed before the damage,
# and what the damage is, instead of an error.


class ReadableCopy(SeekableStream):
    """The plain bytes of `copy` up to its damage; `damage` is None until that was reached."""

    def __init__(self, copy: GzippedFile) -> None:
        super().__init__(copy)
        self._copy = copy
        self.damage: StorageError | None = None

    def readinto(self, buffer: Any, /) -> int:  # noqa: ANN401 (io's own signature)
        """Fill a part of `buffer`; 0 at the end and at damage."""
        try:
            return self._copy.readinto(buffer)
        except StorageError as error:
            self.damage = error
            return 0

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """Go to a position from the start or from the present one, at most to the end of what is readable."""
        try:
            return self._copy.seek(offset, whence)
        except StorageError as error:
            if whence == os.SEEK_END:
                raise
            self.damage = error
            return self._copy.tell()

    def tell(self) -> int:
        """The position in the plain bytes."""
        return self._copy.tell()
