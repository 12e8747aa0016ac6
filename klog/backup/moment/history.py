"""Follows the batches of a partition, and finds its end at a moment and the transactions around it.

Rules: KIP-98. Time is that of arrival as far as `EndRule` knows it, and else the largest timestamp of a
batch: a batch arrives after its records were made.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace

from klog.backup.model import Piece
from klog.backup.moment.open_transactions import OpenTransactions
from klog.backup.moment.values import Basis, EndRule, Gap, PartitionHistory, Transaction
from klog.formats.errors import UsageError
from klog.kernel.columns import BatchTable


class HistoryBuilder:
    """Takes the batches of one partition in their order. Markers may be lost in `gaps`."""

    def __init__(self, rule: EndRule, gaps: Sequence[Gap] = ()) -> None:
        self._rule = rule
        self._gaps = deque(gaps)
        self._end: int | None = None  # found by a batch that is not taken
        self._used_time = False
        self._last_end = 0
        self._leader_epoch = -1
        self._transactions = OpenTransactions()
        self._ended: list[Transaction] = []
        self._decisions_lost_until_ms = -1
        self._is_behind_gap = False  # and no marker came since

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
            self._decisions_lost_until_ms, self._is_behind_gap = table.max_timestamp[first], True
        if self._end is None:
            self._find_end(table, first, last)
        self._last_end = table.last_offset[last - 1] + 1
        ended = list(self._transactions.follow(data, table, first, last))
        marker = ended[0].marker if ended else None
        if self._is_behind_gap and marker is not None:
            self._decisions_lost_until_ms, self._is_behind_gap = marker.timestamp, False
        self._ended += ended

    def skip(self, piece: Piece, *, by_time: bool) -> None:
        """Pass over a piece that does not hold the end: its transactions are in its summary, and those that
        end there are not known. `by_time` says that only timestamps tell where the end is.
        """
        self._used_time = self._used_time or by_time
        self._last_end = piece.end_offset
        self._transactions.skip(piece.producers or ())

    def finish(self, complete_ms: int, start_offset: int = 0) -> PartitionHistory:
        """What was found. All that was acknowledged by `complete_ms` was among the batches. The log begins at
        `start_offset`.
        """
        view_end = max(self._last_end, start_offset)
        end = view_end if self._end is None else self._end
        still_open = self._transactions.open.values()
        transactions = sorted((*self._ended, *still_open), key=lambda txn: txn.first_offset)
        return PartitionHistory(
            end,
            view_end,
            self._basis(),
            complete_ms,
            tuple(transactions),
            self._transactions.coordinator_epochs,
            self._leader_epoch,
            self._decisions_lost_until_ms,
            start_offset,
        )

    def _pass(self, gap: Gap) -> None:
        """Let each transaction that is open before a gap end in it."""
        room = gap.end_offset - max(self._last_end, gap.first_offset)
        still_open = self._transactions.open.values()
        if len(still_open) > room:
            raise UsageError(
                f"{len(still_open)} transactions are open before the lost offsets {gap.first_offset} to"
                f" {gap.end_offset - 1}, and there is no place for their markers",
                cure=f"let the partition end there, by --offsets FILE with the offset {gap.first_offset}",
            )
        self._ended += [replace(each, gap=gap) for each in still_open]
        self._transactions.forget()

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
