"""Finds batches that consumers do not get: control batches, and with read_committed aborted transactions.

Rules: KIP-98 and Kafka's consumer. All records of a batch of magic 2 come from one producer, so the header of
a batch decides about all of it. A batch belongs to an aborted transaction if it is transactional, its
producer aborted that transaction, and it lies between the transaction's first offset and its marker.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import Final, Protocol

from klog.formats.constants import CONTROL_BIT, TRANSACTIONAL_BIT
from klog.kernel.columns import BatchTable

_FIRST_MAGIC: Final = 2  # older formats have no producers, and these bits mean nothing


class AbortedTransaction(Protocol):
    """A transaction from its first offset to that of its ABORT marker."""

    @property
    def producer_id(self) -> int: ...

    @property
    def first_offset(self) -> int: ...

    @property
    def last_offset(self) -> int: ...


class HiddenBatches:
    """Decides which batches a consumer does not get; `aborted` is empty for read_uncommitted.

    With `show_control` control batches are not hidden.
    """

    def __init__(self, aborted: Iterable[AbortedTransaction], *, show_control: bool = False) -> None:
        self._show_control = show_control
        self._ranges: dict[int, list[tuple[int, int]]] = {}
        for one in sorted(aborted, key=lambda one: one.first_offset):
            self._ranges.setdefault(one.producer_id, []).append((one.first_offset, one.last_offset))

    def rows(self, table: BatchTable) -> set[int]:
        """The rows of `table` that no consumer gets."""
        if not any(attributes & (CONTROL_BIT | TRANSACTIONAL_BIT) for attributes in set(table.attributes)):
            return set()
        return {row for row in range(len(table)) if self._is_hidden(table, row)}

    def _is_hidden(self, table: BatchTable, row: int) -> bool:
        attributes = table.attributes[row]
        if table.magic[row] < _FIRST_MAGIC:
            return False
        if attributes & CONTROL_BIT:
            return not self._show_control
        return bool(attributes & TRANSACTIONAL_BIT) and self._is_aborted(
            table.producer_id[row], table.base_offset[row], table.last_offset[row]
        )

    def _is_aborted(self, producer_id: int, base_offset: int, last_offset: int) -> bool:
        ranges = self._ranges.get(producer_id)
        if ranges is None:
            return False
        # Transactions of one producer do not overlap: the last one that starts before the batch ends decides.
        at = bisect_right(ranges, last_offset, key=lambda one: one[0])
        return at > 0 and base_offset <= ranges[at - 1][1]
