"""Reads the valid batches of one replica in the order of their offsets, to compare them with another's.

A chunk of batches is a table of columns; batches are decoded one by one, and only if that is asked for.
Damaged ranges are collected, and reading goes on after them.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from klog.formats.checkpoints import EpochEntry
from klog.formats.checksums import Bytes
from klog.formats.compression import DEFAULT_LIMIT_BYTES
from klog.formats.constants import CODEC_MASK, INT64_MAX, MAGIC_V2
from klog.formats.errors import KlogError
from klog.kernel.columns import COUNT_UNKNOWN, BatchTable, RecordTable
from klog.replicas.lost_ranges import LostRangeReporter
from klog.replicas.open_segment import OpenSegment
from klog.replicas.replica_contents import Extent, ReplicaContents
from klog.replicas.splits import LostRange, Split
from klog.replicas.valid_batches import ValidBatches
from klog.storage.cleaner.decoding import decode_one
from klog.storage.reading.select import compact

IDENTITY: Final = ("base_offset", "last_offset", "crc", "size", "leader_epoch", "magic")
"""Columns that are the same only for equal batches: the checksum covers what it does not name."""


class Absence(NamedTuple):
    """Why a replica does not have a record: removed by the cleaner, or the reason."""

    cleaned: bool
    reason: str = ""


class ReplicaBatches:
    """A cursor over the batches of a replica with offsets from `first_offset` to before `end_offset`.

    `row` is the current batch in `table`, `records` are its records if it was `decode`d; those from `at` to
    before `to` are left. `name` is what reasons call the replica. `on_bytes` receives the bytes that were
    read. `lost` are the ranges that could not be read so far.
    """

    def __init__(
        self,
        name: str,
        contents: ReplicaContents,
        first_offset: int = 0,
        end_offset: int = INT64_MAX,
        on_bytes: Callable[[int], None] = lambda _: None,
    ) -> None:
        self.name = name
        self.contents = contents
        self.table = BatchTable()
        self.row = 0
        self.records = RecordTable()
        self.payload: Bytes = b""
        self.at = 0
        self.to = 0
        self.lost: list[LostRange] = []
        self.epochs: list[EpochEntry] = []
        """The leader epochs of the batches read, each with its first offset."""
        self._first_offset = max(first_offset, contents.log_start_offset)
        self._end_offset = end_offset
        self._on_bytes = on_bytes
        self._decoded = False
        self._low, self._high = 0, INT64_MAX
        self._file = ""
        self._whole_from = self._whole_to = 0
        self._data = memoryview(b"")
        self._chunks = self._read()

    def fill(self) -> bool:
        """Whether there is a current batch; reads the next chunk if the last one is done."""
        while self.row >= len(self.table):
            self.row = 0
            self._data = memoryview(b"")
            data = next(self._chunks, None)
            if data is None:
                self.table.clear(0)
                return False
            self._data = data
        return True

    @property
    def whole_rows(self) -> int:
        """How many batches from the current one on lie completely within the bounds and are undivided."""
        return 0 if self._decoded or self.row < self._whole_from else max(self._whole_to - self.row, 0)

    @property
    def next_offset(self) -> int:
        """The offset of the next record; before the batch is decoded the lowest that it may have."""
        if self._decoded and self.at < self.to:
            return self.records.offset[self.at]
        return max(self.table.base_offset[self.row], self._low)

    @property
    def last_offset(self) -> int:
        """The last offset of the current batch that lies within the bounds."""
        return min(self.table.last_offset[self.row], self._high - 1)

    @property
    def left(self) -> int:
        """How many records of the decoded batch are left."""
        return self.to - self.at

    def skip(self, rows: int) -> None:
        """Go on to the batch after so many."""
        self.row += rows
        self._decoded = False

    def decode(self) -> None:
        """Decode the current batch, once. One that cannot be decoded is added to `lost` and has no
        records."""
        if self._decoded:
            return
        self._decoded = True
        table, row = self.table, self.row
        try:
            self.payload = decode_one(self._data, table, row, self.records)
        except KlogError as error:
            self.records.clear()
            start = table.position[row]
            self.lost.append(
                LostRange(
                    *self.contents.replica.partition,
                    self._file,
                    start,
                    start + table.size[row],
                    self.next_offset,
                    self.last_offset + 1,
                    error.explanation,
                )
            )
        self.at = bisect_left(self.records.offset, self._low)
        self.to = bisect_left(self.records.offset, self._high)

    def counted(self, row: int, rows: int) -> int | None:
        """The number of records of batches by their headers; None if a header does not say it."""
        table = self.table
        counts = table.count[row : row + rows]
        if COUNT_UNKNOWN not in counts:
            return sum(counts)
        total = 0
        for at, count in enumerate(counts, row):
            if count == COUNT_UNKNOWN and table.attributes[at] & CODEC_MASK:
                return None
            total += 1 if count == COUNT_UNKNOWN else count
        return total

    def absence(self, offset: int) -> Absence:
        """Why this replica does not have a record at an offset that it has passed.

        A broker writes no gaps. So a gap within a segment, or after a segment that has some, or below the
        cleaner's checkpoint, comes from the cleaner.
        """
        contents, name = self.contents, self.name
        if offset < contents.log_start_offset:
            return Absence(False, f"below the log start of {name}")
        for lost in self.damage:
            if (lost.first_offset or 0) <= offset < (lost.end_offset or INT64_MAX):
                return Absence(False, f"{name} is damaged: {lost.reason}")
        if offset >= contents.end_offset:
            return Absence(False, f"after the log end of {name}")
        row = bisect_right(contents.extents, offset, key=_first_offset) - 1
        extent = contents.extents[row] if row >= 0 else None
        within = extent is not None and (offset < extent.end_offset or not extent.end.dense)
        if within or offset < (contents.replica.cleaned_to or 0):
            return Absence(True)
        return Absence(False, f"no segment of {name} holds these offsets")

    @property
    def damage(self) -> list[LostRange]:
        """All ranges that cannot be read, as far as they are known yet; without a torn end."""
        return [*(lost for lost in self.contents.lost if not is_torn_end(self.contents, lost)), *self.lost]

    def damage_between(self, first_offset: int, last_offset: int) -> bool:
        """Whether some of these offsets cannot be read."""
        return any(
            (lost.first_offset or 0) <= last_offset and first_offset < (lost.end_offset or INT64_MAX)
            for lost in self.damage
        )

    def _read(self) -> Iterator[memoryview]:
        for extent in self.contents.extents:
            self._low = max(self._first_offset, extent.first_offset)
            self._high = min(self._end_offset, extent.end_offset)
            if self._low < self._high:
                self._file = extent.segment.log
                yield from self._segment(extent)

    def _segment(self, extent: Extent) -> Iterator[memoryview]:
        segment, low, high = extent.segment, self._low, self._high
        partition = self.contents.replica.partition
        try:
            opened = OpenSegment(segment)
        except KlogError as error:
            self.lost.append(LostRange(*partition, segment.log, None, None, low, high, error.explanation))
            return
        with opened:
            start = 0
            if low > extent.first_offset:
                start = opened.search.at_or_before_offset(low).position_bytes
            split = Split(
                0, *partition, segment.log, segment.base_offset, start, extent.end.end_bytes, low, high
            )
            reporter = LostRangeReporter(split, self.lost.append, fail=False)
            batches = ValidBatches(split, opened.file, self.table, reporter, DEFAULT_LIMIT_BYTES)
            for data in batches.chunks():
                past_end = high < extent.end_offset and self.table.last_offset[-1] >= high - 1
                self._bound(low, high)
                read_bytes = self.table.consumed_bytes
                yield data
                if not segment.gzipped:
                    self._on_bytes(read_bytes)
                if past_end:
                    break
        if segment.gzipped:
            self._on_bytes(segment.size_bytes)

    def _bound(self, low: int, high: int) -> None:
        """Drop the batches outside of the bounds, and note which ones the bounds divide."""
        table = self.table
        if table.last_offset[0] < low or table.last_offset[-1] >= high:
            first = bisect_left(table.last_offset, low)
            last = max(first, bisect_left(table.base_offset, high))
            compact(table, list(range(first, last)))
        self._whole_from = int(len(table) > 0 and table.base_offset[0] < low)
        self._whole_to = len(table) - int(len(table) > 0 and table.last_offset[-1] >= high)
        self._note_epochs()

    def _note_epochs(self) -> None:
        table = self.table
        known = self.epochs[-1].epoch if self.epochs else -1
        if not len(table) or max(table.leader_epoch) <= known or max(table.magic) < MAGIC_V2:
            return
        for epoch, base in zip(table.leader_epoch, table.base_offset, strict=True):
            if epoch > known:
                self.epochs.append(EpochEntry(epoch, base))
                known = epoch


def is_torn_end(contents: ReplicaContents, lost: LostRange) -> bool:
    """Whether a lost range is what follows the last valid batch of a log: a broker truncates it."""
    after_end = lost.first_offset is not None and lost.first_offset >= contents.end_offset
    return after_end and bool(lost.start_bytes)


def is_same_batch(a: ReplicaBatches, b: ReplicaBatches) -> bool:
    """Whether the current batches of both are the same batch."""
    return all(_column(a, name)[a.row] == _column(b, name)[b.row] for name in IDENTITY)


def equal_rows(a: ReplicaBatches, b: ReplicaBatches) -> int:
    """How many batches from the current ones on are the same in both.

    Slices of columns are compared, each twice as long as the one before, until one differs; then its halves.
    So the work is in proportion to the answer.
    """
    most = min(a.whole_rows, b.whole_rows)
    columns = [(_column(a, name), _column(b, name)) for name in IDENTITY]
    equal, size, found = 0, 1, False
    while equal < most and size:
        size = min(size, most - equal)
        i, j = a.row + equal, b.row + equal
        if all(ours[i : i + size] == theirs[j : j + size] for ours, theirs in columns):
            equal += size
            size = (most - equal) // 2 if found else 2 * size
        else:
            found, most = True, equal + size  # the first difference is before `most`
            size //= 2
    return equal


def _column(side: ReplicaBatches, name: str) -> array[int]:
    column: array[int] = getattr(side.table, name)
    return column


def _first_offset(extent: Extent) -> int:
    return extent.first_offset
