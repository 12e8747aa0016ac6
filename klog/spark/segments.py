"""Where a segment can be cut and where it ends, found through its offset index and a few batch headers.

An entry of an index is used where a whole batch with a good checksum starts at its position and the offset
fits. Where there is no sound index, headers are walked from the start. A segment's tail that is all zeros
was only allocated (`log.preallocate`, or a crash) and ends it silently.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import BinaryIO, Final

from klog.formats.columns import OFFSET_UNKNOWN, BatchTable
from klog.formats.errors import StorageError
from klog.spark.discover import SegmentFile
from klog.spark.files import open_input, read_at
from klog.spark.index_lookup import OffsetIndex
from klog.spark.seek import headers, sound_batch

LARGEST_SEGMENT_BYTES: Final = 1 << 31
"""Kafka's positions are 32-bit numbers: what stands for the size of a gzipped copy."""
_ENTRIES_TRIED: Final = 4
_TAIL_READ_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class End:
    """Where the sound batches of a segment end: the offset after the last, and the byte after it.

    `rest_bytes` says up to where unreadable bytes follow, and `rest_problem` what they are (None: nothing
    or zeros follow).
    """

    end_offset: int
    end_bytes: int
    rest_bytes: int = 0
    rest_problem: str | None = None


@dataclass(frozen=True, slots=True)
class Place:
    """A batch that starts at a position with a first offset."""

    position_bytes: int
    offset: int


class OpenSegment:
    """A segment with its offset index, opened for planning; a context manager. Raises `StorageError`."""

    def __init__(self, segment: SegmentFile) -> None:
        self.segment = segment
        self._files = ExitStack()
        self.file: BinaryIO = self._files.enter_context(open_input(segment.log))
        self._index: OffsetIndex | None = None
        if segment.offset_index is not None and not segment.gzipped:
            try:
                self._index = self._files.enter_context(OffsetIndex(segment.offset_index))
            except StorageError:
                self._index = None  # an index only saves reading; `klog verify` is what complains of it

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

    def place_before(self, position_bytes: int, after_bytes: int = 0) -> Place | None:
        """The last batch that the index knows from `after_bytes` to `position_bytes`, both exclusive and
        inclusive; None where there is none."""
        index = self._index
        if index is None or not len(index):
            return None
        row = index.row_at_position(position_bytes)
        for tried in range(row, max(row - _ENTRIES_TRIED, -1), -1):
            entry = index[tried]
            if entry.position_bytes <= after_bytes:
                return None
            place = self._checked(entry.relative_offset, entry.position_bytes)
            if place is not None:
                return place
        return None

    def place_at_or_before_offset(self, offset: int) -> Place | None:
        """The last batch that the index knows that starts at or before an offset."""
        index = self._index
        if index is None or not len(index):
            return None
        row = index.row_at_offset(min(offset - self.segment.base_offset, 2**31 - 1))
        for tried in range(row, max(row - _ENTRIES_TRIED, -1), -1):
            entry = index[tried]
            place = self._checked(entry.relative_offset, entry.position_bytes)
            if place is not None and place.offset <= offset:
                return place
        return None

    def _checked(self, relative_offset: int, position_bytes: int) -> Place | None:
        """The batch an entry points at, None where it is not there: an entry holds the last offset of its
        batch, or of several that a follower appended at once."""
        if not 0 <= position_bytes < self.size_bytes or relative_offset < 0:
            return None
        batch = sound_batch(self.file, position_bytes)
        if batch is None or not _first_offset(batch) <= self.segment.base_offset + relative_offset:
            return None
        if _first_offset(batch) < self.segment.base_offset:
            return None
        return Place(position_bytes, _first_offset(batch))

    def end(self) -> End:
        """Where the sound batches end."""
        last = self.place_before(self.size_bytes)
        start = Place(0, self.segment.base_offset) if last is None else last
        position, next_offset = self._walk_from(start)
        rest_problem = None if self._only_zeros_from(position) else "no batch follows"
        rest = self.size_bytes if rest_problem else position
        return End(next_offset, position, rest, rest_problem)

    def _walk_from(self, start: Place) -> tuple[int, int]:
        position, next_offset = start.position_bytes, start.offset
        for table in headers(self.file, position, self.size_bytes):
            next_offset = table.last_offset[-1] + 1
            position = table.origin + table.consumed_bytes
        return position, next_offset

    def _only_zeros_from(self, position_bytes: int) -> bool:
        while data := read_at(self.file, position_bytes, _TAIL_READ_BYTES):
            if any(data):
                return False
            position_bytes += len(data)
        return True

    def cuts(self, start_bytes: int, end_bytes: int, target_bytes: int) -> list[int]:
        """Positions of batches between two positions, about `target_bytes` apart."""
        found: list[int] = []
        at = start_bytes
        # A last part of less than half is not worth a split of its own.
        while end_bytes - at > target_bytes * 3 // 2:
            place = self.place_before(at + target_bytes, at)
            if place is None:
                return found
            found.append(place.position_bytes)
            at = place.position_bytes
        return found


def _first_offset(batch: BatchTable) -> int:
    # Of a compressed magic 0 or 1 set only the last offset is known without decompressing.
    base = batch.base_offset[0]
    return batch.last_offset[0] if base == OFFSET_UNKNOWN else base
