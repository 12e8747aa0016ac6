"""Follows the batches of a partition, and finds its end at a moment and the transactions around it.

Rules: KIP-98. Time is that of arrival as far as `EndRule` knows it, and else the largest timestamp of a
batch: a batch arrives after its records were made.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from klog.backup.moment.values import Basis, EndRule, Gap, PartitionHistory, Transaction
from klog.formats.constants import CONTROL_BIT, MAGIC_V2, TRANSACTIONAL_BIT
from klog.formats.errors import UsageError
from klog.kernel.columns import BatchTable
from klog.kernel.markers import Marker, marker_of_batch

_TRANSACTION_BITS: Final = TRANSACTIONAL_BIT | CONTROL_BIT


class HistoryReader:
    """Takes the batches of one partition in their order. Markers may be lost in `gaps`."""

    def __init__(self, rule: EndRule, gaps: Sequence[Gap] = ()) -> None:
        self._rule = rule
        self._gaps = deque(gaps)
        self._end: int | None = None  # found by a batch that is not taken
        self._used_time = False
        self._last_end = 0
        self._leader_epoch = -1
        self._open: dict[int, Transaction] = {}
        self._ended: list[Transaction] = []
        self._last_marker_ms: dict[int, int] = {}
        self._coordinator_epochs: dict[int, int] = {}

    @property
    def has_ended(self) -> bool:
        """Whether a batch was taken that lies after the end."""
        return self._end is not None

    def follow(self, data: memoryview, table: BatchTable, first: int = 0, last: int | None = None) -> None:
        """Take the rows from `first` to before `last` of `table`, which was scanned from `data`."""
        last = len(table) if last is None else last
        if first >= last:
            return
        while self._gaps and table.last_offset[first] >= self._gaps[0].end_offset:
            self._pass(self._gaps.popleft())
        if self._end is None:
            self._find_end(table, first, last)
        self._last_end = table.last_offset[last - 1] + 1
        if any(attributes & _TRANSACTION_BITS for attributes in set(table.attributes[first:last])):
            for row in range(first, last):
                if table.magic[row] >= MAGIC_V2 and table.attributes[row] & TRANSACTIONAL_BIT:
                    self._follow_one(data, table, row)

    def skip(self, end_offset: int, *, by_time: bool) -> None:
        """Pass over batches up to `end_offset` that are not transactional and do not hold the end. `by_time`
        says that only their timestamps tell.
        """
        self._used_time = self._used_time or by_time
        self._last_end = end_offset

    def finish(self, complete_ms: int, start_offset: int = 0) -> PartitionHistory:
        """What was found. All that was acknowledged by `complete_ms` was among the batches. The log begins at
        `start_offset`.
        """
        view_end = max(self._last_end, start_offset)
        end = view_end if self._end is None else self._end
        end = max(end, start_offset)
        transactions = sorted((*self._ended, *self._open.values()), key=lambda txn: txn.first_offset)
        return PartitionHistory(
            end,
            view_end,
            self._basis(),
            complete_ms,
            tuple(transactions),
            self._coordinator_epochs,
            self._leader_epoch,
        )

    def _pass(self, gap: Gap) -> None:
        """Let each transaction that is open before a gap end in it."""
        room = gap.end_offset - max(self._last_end, gap.first_offset)
        if len(self._open) > room:
            raise UsageError(
                f"{len(self._open)} transactions are open before the lost offsets {gap.first_offset} to"
                f" {gap.end_offset - 1}, and there is no place for their markers",
                cure=f"let the partition end there, by --offsets FILE with the offset {gap.first_offset}",
            )
        self._ended += [replace(each, gap=gap) for each in self._open.values()]
        self._open.clear()
        self._last_marker_ms.clear()  # later ones may be lost

    def _basis(self) -> Basis:
        if self._rule.is_given:
            return Basis.OFFSET
        return Basis.TIMESTAMP if self._used_time else Basis.ARRIVAL

    def _find_end(self, table: BatchTable, first: int, last: int) -> None:
        rule = self._rule
        highest = rule.highest
        for row in range(first, last):
            last_offset = table.last_offset[row]
            if last_offset >= rule.lowest:
                beyond = highest is not None and last_offset >= highest
                if not beyond and rule.moment_ms is not None:
                    self._used_time = True
                    beyond = table.max_timestamp[row] > rule.moment_ms
                if beyond:
                    self._end = table.last_offset[row - 1] + 1 if row > first else self._last_end
                    return
            self._leader_epoch = max(self._leader_epoch, table.leader_epoch[row])

    def _follow_one(self, data: memoryview, table: BatchTable, row: int) -> None:
        producer_id, base_offset = table.producer_id[row], table.base_offset[row]
        open_one = self._open.get(producer_id)
        if table.attributes[row] & CONTROL_BIT:
            start = table.position[row] - table.origin
            marker = marker_of_batch(data[start : start + table.size[row]]) if table.count[row] else None
            if marker is not None:
                self._end_one(producer_id, table.producer_epoch[row], base_offset, marker, open_one)
            return
        end_offset = table.last_offset[row] + 1
        if open_one is None:
            self._open[producer_id] = Transaction(
                producer_id,
                table.producer_epoch[row],
                base_offset,
                end_offset,
                table.max_timestamp[row],
                self._last_marker_ms.get(producer_id, -1),
            )
        else:
            self._open[producer_id] = replace(open_one, end_offset=end_offset)

    def _end_one(
        self, producer_id: int, epoch: int, offset: int, marker: Marker, open_one: Transaction | None
    ) -> None:
        if open_one is None:
            before_ms = self._last_marker_ms.get(producer_id, -1)
            open_one = Transaction(producer_id, epoch, offset, offset, marker.timestamp, before_ms)
        self._ended.append(replace(open_one, marker_offset=offset, marker=marker))
        self._open.pop(producer_id, None)
        self._last_marker_ms[producer_id] = marker.timestamp
        self._coordinator_epochs[producer_id] = marker.coordinator_epoch
