"""Follows transactions for the cleaner, batch by batch: whose data was aborted, which markers are
unnecessary.

Rules: KIP-98 and Kafka's `CleanedTransactionMetadata`. Nothing beyond the last stable offset is cleaned, so
the transaction indexes know the outcome of every transaction.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from typing import Final

from klog.storage.reading.producer_state import AbortedTxn

ABORT: Final = 0
COMMIT: Final = 1


class CleanedTransactions:
    """The state of one pass over a log, from batch to batch and from segment to segment."""

    def __init__(self) -> None:
        self._ahead: list[tuple[int, AbortedTxn]] = []  # heap by first offset
        self._aborted: dict[int, AbortedTxn] = {}  # open at this offset, by producer
        self._seen: set[int] = set()  # producers of these whose data is still in the log
        self._committed: set[int] = set()  # producers with data of a transaction that is not aborted
        self.kept: list[AbortedTxn] = []  # entries of the cleaned segment's transaction index

    def expect(self, aborted: Iterable[AbortedTxn]) -> None:
        """Add aborted transactions that come later in the log; one may be added several times."""
        for txn in aborted:
            heapq.heappush(self._ahead, (txn.first_offset, txn))

    def data(self, producer_id: int, last_offset: int) -> bool:
        """Follow a transactional data batch; True if its transaction was aborted."""
        self._reach(last_offset)
        if producer_id in self._aborted:
            self._seen.add(producer_id)
            return True
        self._committed.add(producer_id)
        return False

    def marker(self, producer_id: int, last_offset: int, kind: int | None) -> bool:
        """Follow a control batch (kind None: it is empty); True if nothing needs it any more.

        An abort marker whose data is still in the log is added to `kept`.
        """
        self._reach(last_offset)
        if kind is None:
            return True
        if kind == COMMIT:
            spent = producer_id not in self._committed
            self._committed.discard(producer_id)
            return spent
        if kind != ABORT:
            return False
        txn = self._aborted.pop(producer_id, None)
        if txn is None or producer_id not in self._seen:
            return True
        self._seen.discard(producer_id)
        self.kept.append(txn)
        return False

    def _reach(self, offset: int) -> None:
        while self._ahead and self._ahead[0][0] <= offset:
            txn = heapq.heappop(self._ahead)[1]
            self._aborted.setdefault(txn.producer_id, txn)
