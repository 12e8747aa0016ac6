"""Requests that wait, for a moment, until the transaction before is complete.

A producer may begin its next transaction when the last one is decided, which is before its markers are
written. Kafka answers its AddPartitionsToTxn with CONCURRENT_TRANSACTIONS, and clients try again after 20 ms.
The markers are written far sooner, so such a request waits here for them. If they take longer than
`wait_ms` it is answered as by Kafka.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from klog.coordinator.transactions.transaction import Transaction
from klog.replication.purgatory import Timer
from klog.replication.timing_wheel import TimedCall

# Clients wait for as long before they try again.
WAIT_MS: Final = 20

Go = Callable[[], object]


class EndWaits:
    """The requests of all transactional ids. Safe for threads; each is let go exactly once.

    A request waits for `wait_ms` to twice that: so one timer serves all. With 0 nothing waits.
    """

    def __init__(self, timer: Timer, timer_ms: Callable[[], int], wait_ms: int) -> None:
        self._timer = timer
        self._timer_ms = timer_ms
        self._wait_ms = wait_ms
        self._lock = threading.Lock()
        # Those that came after the timer was started last, and those that came before.
        self._newer: dict[Transaction, list[Go]] = {}
        self._older: dict[Transaction, list[Go]] = {}
        self._is_timed = False

    def __len__(self) -> int:
        """How many transactions are waited for."""
        return len(self._newer) + len(self._older)

    def add(self, transaction: Transaction, go: Go) -> bool:
        """Let `go` be called when the transaction is complete, or later; false if nothing may wait.

        `go` is called from any thread, without a lock.
        """
        if not self._wait_ms:
            return False
        with self._lock:
            self._newer.setdefault(transaction, []).append(go)
            starts, self._is_timed = not self._is_timed, True
        if starts:
            self._start_timer()
        return True

    def let_go(self, transaction: Transaction) -> None:
        """The transaction is complete, or not this broker's any more."""
        if not self._newer and not self._older:
            return
        with self._lock:
            waiting = self._older.pop(transaction, []) + self._newer.pop(transaction, [])
        for go in waiting:
            go()

    def _start_timer(self) -> None:
        self._timer.add(TimedCall(self._timer_ms() + self._wait_ms, self._due))

    def _due(self) -> None:
        with self._lock:
            late, self._older, self._newer = self._older, self._newer, {}
            self._is_timed = bool(self._older)
            goes_on = self._is_timed
        if goes_on:
            self._start_timer()
        for waiting in late.values():
            for go in waiting:
                go()
