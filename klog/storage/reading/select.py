"""Bounds of offsets and times: decide which records to show, and which batches may hold them.

`klog.storage.reading.position_search` finds where to start reading for them.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import Final

from klog.kernel.columns import OFFSET_UNKNOWN, BatchTable, RecordTable

_FAR: Final = 1 << 64


@dataclass(frozen=True, slots=True)
class Bounds:
    """The offsets and times of the wanted records; the default is all.

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

    def may_hold(self, batches: BatchTable, row: int) -> bool:
        """Whether batch `row` may hold a wanted record, according to its header."""
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
        """Whether the last batch starts after the last wanted offset, so that no wanted one follows."""
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
    """Keep, from `first_row` on, only the rows of `table` that `rows` names, in that order."""
    for name in table.COLUMNS:
        column: array[int] = getattr(table, name)
        if not column:
            continue  # `valid` and `computed_crc` of batches that were not verified
        values = [column[row] for row in rows]
        del column[first_row:]
        column.extend(values)
