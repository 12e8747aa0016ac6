"""Follows which transactions of a partition are open, and what was last known of their producers.

Rules: KIP-98. A summary says what a range of batches changes in that, so that a reader who does not need the
transactions which end there can pass over it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

from klog.backup.model import ProducerSummary
from klog.backup.moment.values import Transaction
from klog.formats.constants import CONTROL_BIT, MAGIC_V2, TRANSACTIONAL_BIT
from klog.kernel.columns import BatchTable
from klog.kernel.markers import Marker, marker_of_batch

_TRANSACTION_BITS: Final = TRANSACTIONAL_BIT | CONTROL_BIT


class OpenTransactions:
    """The transactions that are `open`, by producer id. `coordinator_epochs` are those of each producer's
    last marker.
    """

    def __init__(self) -> None:
        self.open: dict[int, Transaction] = {}
        self.coordinator_epochs: dict[int, int] = {}
        self._last_marker_ms: dict[int, int] = {}

    def follow(self, data: memoryview, table: BatchTable, first: int, last: int) -> Iterator[Transaction]:
        """Take rows of `table`, which was scanned from `data`; gives the transactions that end there."""
        if not any(attributes & _TRANSACTION_BITS for attributes in set(table.attributes[first:last])):
            return
        for row in range(first, last):
            if table.magic[row] >= MAGIC_V2 and table.attributes[row] & TRANSACTIONAL_BIT:
                ended = self._follow_one(data, table, row)
                if ended is not None:
                    yield ended

    def forget(self) -> None:
        """Markers may be lost from here on: nothing is open, and no earlier marker counts."""
        self.open.clear()
        self._last_marker_ms.clear()

    def summary(self) -> tuple[ProducerSummary, ...]:
        """What was followed so far, if it began with nothing."""
        found = []
        for producer_id in sorted({*self.open, *self.coordinator_epochs}):
            marker_ms = self._last_marker_ms.get(producer_id, -1)
            coordinator_epoch = self.coordinator_epochs.get(producer_id, -1)
            of_open = self.open.get(producer_id)
            where = (
                ()
                if of_open is None
                else (of_open.epoch, of_open.first_offset, of_open.end_offset, of_open.first_ms)
            )
            found.append(ProducerSummary(producer_id, marker_ms, coordinator_epoch, *where))
        return tuple(found)

    def skip(self, summary: Iterable[ProducerSummary]) -> None:
        """Take a range of batches by its summary. The transactions that end there are not known then."""
        for each in summary:
            if each.coordinator_epoch >= 0:
                self.open.pop(each.producer_id, None)
                self._last_marker_ms[each.producer_id] = each.marker_ms
                self.coordinator_epochs[each.producer_id] = each.coordinator_epoch
            if each.first_offset >= 0:
                self._continue(
                    each.producer_id, each.epoch, each.first_offset, each.end_offset, each.first_ms
                )

    def _follow_one(self, data: memoryview, table: BatchTable, row: int) -> Transaction | None:
        producer_id, base_offset = table.producer_id[row], table.base_offset[row]
        if table.attributes[row] & CONTROL_BIT:
            start = table.position[row] - table.origin
            marker = marker_of_batch(data[start : start + table.size[row]]) if table.count[row] else None
            if marker is None:
                return None
            return self._end(producer_id, table.producer_epoch[row], base_offset, marker)
        end_offset = table.last_offset[row] + 1
        self._continue(
            producer_id, table.producer_epoch[row], base_offset, end_offset, table.max_timestamp[row]
        )
        return None

    def _continue(
        self, producer_id: int, epoch: int, first_offset: int, end_offset: int, first_ms: int
    ) -> None:
        """Take batches of a producer, which begin a transaction if none is open."""
        known = self.open.get(producer_id)
        if known is None:
            before_ms = self._last_marker_ms.get(producer_id, -1)
            known = Transaction(producer_id, epoch, first_offset, end_offset, first_ms, before_ms)
        self.open[producer_id] = replace(known, end_offset=end_offset)

    def _end(self, producer_id: int, epoch: int, offset: int, marker: Marker) -> Transaction:
        known = self.open.pop(producer_id, None)
        if known is None:
            before_ms = self._last_marker_ms.get(producer_id, -1)
            known = Transaction(producer_id, epoch, offset, offset, marker.timestamp, before_ms)
        self._last_marker_ms[producer_id] = marker.timestamp
        self.coordinator_epochs[producer_id] = marker.coordinator_epoch
        return replace(known, marker_offset=offset, marker=marker)
