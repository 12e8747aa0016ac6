"""Offset and time bounds, and where in a segment to start reading for them.

Rules of lookup: Kafka's `OffsetIndex.lookup`, `TimeIndex.lookup` and `LogSegment.findOffsetByTimestamp`. An
index only saves reading: each entry that is used is held against the batch it leads to, and where the two
disagree, or there is no index, reading starts at the first byte. Offsets are taken to ascend within a
segment, as Kafka takes them to.
"""

from __future__ import annotations

import os
from array import array
from dataclasses import dataclass
from typing import BinaryIO, Final

from klog.formats import kernel
from klog.formats.columns import OFFSET_UNKNOWN, BatchTable, RecordTable
from klog.formats.errors import StorageError
from klog.storage.indexes import read_offset_index, read_time_index

_LARGEST_CHECKED_BYTES: Final = 4 << 20
_ENTRIES_TRIED: Final = 3
_FAR: Final = 1 << 64


@dataclass(frozen=True, slots=True)
class Bounds:
    """Which records are wanted by their place; the default is all.

    Offsets are inclusive at both ends. `since_ms` is inclusive, `until_ms` exclusive (ms since the epoch).
    """

    first_offset: int | None = None
    last_offset: int | None = None
    since_ms: int | None = None
    until_ms: int | None = None

    @property
    def by_place(self) -> bool:
        """Whether offsets or times are restricted."""
        return not (
            self.first_offset is None
            and self.last_offset is None
            and self.since_ms is None
            and self.until_ms is None
        )

    def takes_place(self, offset: int, timestamp_ms: int) -> bool:
        """Whether a record at this offset with this timestamp is wanted."""
        return (
            (self.first_offset is None or offset >= self.first_offset)
            and (self.last_offset is None or offset <= self.last_offset)
            and (self.since_ms is None or timestamp_ms >= self.since_ms)
            and (self.until_ms is None or timestamp_ms < self.until_ms)
        )

    def may_hold(self, batches: BatchTable, row: int) -> bool:
        """Whether batch `row` may hold a wanted record, by its header alone."""
        if self.first_offset is not None and batches.last_offset[row] < self.first_offset:
            return False
        if self.last_offset is not None and self._starts_after(batches, row):
            return False
        # A magic 0 message has no timestamp (-1); a wrapper's is the largest of its messages.
        return self.since_ms is None or batches.max_timestamp[row] >= self.since_ms

    def _starts_after(self, batches: BatchTable, row: int) -> bool:
        base = batches.base_offset[row]
        return self.last_offset is not None and base != OFFSET_UNKNOWN and base > self.last_offset

    def ends_before(self, batches: BatchTable) -> bool:
        """Whether the chunk's last batch lies past the last wanted offset, so that none can follow."""
        return len(batches) > 0 and self._starts_after(batches, len(batches) - 1)

    def keep(self, records: RecordTable, first_row: int = 0) -> None:
        """Drop the rows of `records` from `first_row` on that are not wanted."""
        lowest = -_FAR if self.first_offset is None else self.first_offset
        highest = _FAR if self.last_offset is None else self.last_offset
        since = -_FAR if self.since_ms is None else self.since_ms
        until = _FAR if self.until_ms is None else self.until_ms
        places = zip(records.offset[first_row:], records.timestamp[first_row:], strict=True)
        wanted = [
            row
            for row, (offset, timestamp) in enumerate(places, first_row)
            if lowest <= offset <= highest and since <= timestamp < until
        ]
        if len(wanted) < len(records) - first_row:
            compact(records, wanted, first_row)


def compact(table: BatchTable | RecordTable, rows: list[int], first_row: int = 0) -> None:
    """Make the rows of `table` from `first_row` on those that `rows` names, in that order."""
    for name in table.COLUMNS:
        column: array[int] = getattr(table, name)
        if not column:
            continue  # the checksums of batches that nobody verified
        values = [column[row] for row in rows]
        del column[first_row:]
        column.extend(values)


def start_position(file: BinaryIO, path: str, base_offset: int | None, bounds: Bounds) -> int:
    """A batch's position in the segment, in bytes, before which no wanted record lies; 0 where that is
    unknown.

    `file` is the open segment at `path` and is left at an arbitrary position. A gzipped copy has no index.
    """
    if base_offset is None or not path.endswith(".log"):
        return 0
    if bounds.first_offset is None and bounds.since_ms is None:
        return 0
    target = bounds.first_offset if bounds.first_offset is not None else base_offset
    if bounds.since_ms is not None:
        target = max(target, _first_offset_since(file, path, base_offset, bounds.since_ms))
    return _position_of(file, path, base_offset, target)[0]


def _position_of(file: BinaryIO, path: str, base_offset: int, target: int) -> tuple[int, BatchTable | None]:
    """Position of a batch at or before offset `target`, by the offset index, and its header."""
    relative = target - base_offset
    index_path = path.removesuffix(".log") + ".index"
    if relative <= 0 or not os.path.exists(index_path):
        return 0, None
    try:
        entries = read_offset_index(index_path)
    except StorageError:
        return 0, None  # an index only saves reading; verify is what complains of it
    for tried, (_, position) in enumerate(entries.at_or_before(min(relative, 2**31 - 1))):
        if tried == _ENTRIES_TRIED:
            break
        batch = _sound_batch(file, position)
        if batch is not None and _starts_at_or_before(batch, target):
            return position, batch
    return 0, None


def _starts_at_or_before(batch: BatchTable, target: int) -> bool:
    base = batch.base_offset[0]
    # Of a compressed magic 0 or 1 set only the last offset is known without decompressing.
    return (batch.last_offset[0] if base == OFFSET_UNKNOWN else base) <= target


def _sound_batch(file: BinaryIO, position: int) -> BatchTable | None:
    """The header of the batch at `position`, None where no whole batch with a good checksum starts there."""
    table = BatchTable()
    file.seek(position)
    data = file.read(4096)
    kernel.scan(data, position, True, table)
    if not len(table) and len(data) < table.need_bytes <= _LARGEST_CHECKED_BYTES:
        data += file.read(table.need_bytes - len(data))
        kernel.scan(data, position, True, table)
    if not len(table):
        return None
    kernel.verify(data, table)
    return table if table.valid[0] and table.magic[0] in (0, 1, 2) else None


def _first_offset_since(file: BinaryIO, path: str, base_offset: int, since_ms: int) -> int:
    """An offset before which every record is older than `since_ms`, by the time index."""
    index_path = path.removesuffix(".log") + ".timeindex"
    if not os.path.exists(index_path):
        return base_offset
    try:
        entry = read_time_index(index_path).before(since_ms)
    except StorageError:
        return base_offset
    if entry is None:
        return base_offset
    timestamp_ms, relative = entry
    offset = base_offset + relative
    # All records up to this offset are as old as the entry or older: true if it is the entry of its batch.
    position, _ = _position_of(file, path, base_offset, offset)
    return offset + 1 if _batch_has(file, position, offset, timestamp_ms) else base_offset


def _batch_has(file: BinaryIO, position: int, offset: int, timestamp_ms: int) -> bool:
    """Whether the first batch from `position` on that ends at `offset` or later has this largest
    timestamp."""
    for _ in range(4096):
        batch = _sound_batch(file, position)
        if batch is None:
            return False
        if batch.last_offset[0] >= offset:
            return batch.max_timestamp[0] == timestamp_ms
        position += batch.size[0]
    return False
