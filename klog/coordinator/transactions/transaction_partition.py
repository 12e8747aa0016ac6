"""The transactional ids of one partition of `__transaction_state`, while this broker leads it in one epoch.

It serialises the events of its ids and carries out their effects in order: appends, markers, answers. The
rules are in `transaction`. What comes back after the epoch is over has no effect, and a client that waits is
answered NOT_COORDINATOR.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

from klog.coordinator.runtime.log_reading import no_pause
from klog.coordinator.runtime.ownership import WhenReplicated, always_replicated
from klog.coordinator.runtime.tasks import OrderedEffects
from klog.coordinator.transactions.effects import Reply, SendMarkers, Write
from klog.coordinator.transactions.end_waits import EndWaits, Go
from klog.coordinator.transactions.records import TransactionRecord
from klog.coordinator.transactions.transaction import Transaction, new_transaction
from klog.coordinator.transactions.values import (
    ListedTransaction,
    Marker,
    MarkerSender,
    MarkersToWrite,
    TransactionState,
)
from klog.coordinator.transactions.writing import client_error, record_batch, removal_batches
from klog.formats.errors import FormatError
from klog.formats.names import TopicPartition
from klog.protocol.error_codes import ErrorCode
from klog.replication.internal_append import Appended
from klog.replication.purgatory import Timer
from klog.replication.timing_wheel import TimedCall
from klog.storage.log.built_batch import BuiltBatch

_log = logging.getLogger(__name__)

# How long to wait before a transaction's end is written again.
RETRY_MS: Final = 100

OnAppended = Callable[[Appended], None]


class Append(Protocol):
    """Appends a batch to a partition of `__transaction_state`, in the epoch in which this broker leads it.

    The batch is acknowledged by all in-sync replicas (acks -1).
    """

    def __call__(
        self, partition: int, batch: BuiltBatch, on_done: OnAppended, *, leader_epoch: int, timeout_ms: int
    ) -> None:
        """Calls `on_done` exactly once, now or later, from any thread."""


@dataclass(frozen=True, slots=True)
class TransactionServices:
    """What the ids of all partitions share.

    `clock_ms` is the wall clock, `timer_ms` the timer's. `next_producer_id` gives an id that nobody was given
    before, or raises `MetadataError` if none is ready: the client is answered COORDINATOR_LOAD_IN_PROGRESS
    and tries again. `pause` lets other threads run while ids are loaded. `when_replicated` is that of
    `OwnedTopic`.
    """

    append: Append
    timer: Timer
    clock_ms: Callable[[], int]
    timer_ms: Callable[[], int]
    markers: MarkerSender
    next_producer_id: Callable[[], int]
    waits: EndWaits
    pause: Callable[[], None] = no_pause
    when_replicated: WhenReplicated = always_replicated


class TransactionPartition(OrderedEffects):
    """All transactional ids of one partition. Safe for threads."""

    def __init__(self, number: int, leader_epoch: int, services: TransactionServices) -> None:
        super().__init__()
        self.number = number
        self.leader_epoch = leader_epoch
        self.transactions: dict[str, Transaction] = {}
        self.closed = False
        self.completions_waiting = 0
        """How many transactions are complete, but for a record that is written again after an error."""
        self._services = services
        # Held while markers are handed over, so that none are after the sender was told to forget them.
        self._sending = threading.Lock()

    def __len__(self) -> int:
        """How many transactional ids it has."""
        return len(self.transactions)

    # -- events ----------------------------------------------------------------------------------------------

    def now_ms(self) -> int:
        """The time of an event."""
        return self._services.clock_ms()

    def get(self, transactional_id: str) -> Transaction | None:
        """The transactional id; None if it is not known. The caller holds the lock."""
        return self.transactions.get(transactional_id)

    def create(self, transactional_id: str, producer_id: int, timeout_ms: int) -> Transaction:
        """A new transactional id. The caller holds the lock."""
        transaction = new_transaction(transactional_id, producer_id, timeout_ms, self.now_ms())
        self.transactions[transactional_id] = transaction
        return transaction

    def listed(self, wanted: Callable[[Transaction, int], bool]) -> list[ListedTransaction]:
        """The ids that `wanted` chooses, given the time (ms)."""
        now_ms = self.now_ms()
        return [each.listed() for each in self._snapshot() if wanted(each, now_ms)]

    def wait_for_end(self, transaction: Transaction, go: Go) -> bool:
        """Let `go` be called when a decided transaction is complete, or later; false if nothing may wait.

        The caller holds the lock.
        """
        return self._services.waits.add(transaction, go)

    def put_effects(self, transaction: Transaction) -> None:
        """Let the effects be carried out when the lock is left. The caller holds the lock."""
        for effect in transaction.take_effects():
            if isinstance(effect, Reply):
                self._tasks.put(effect.send)
            elif isinstance(effect, Write):
                self._tasks.put(partial(self._write, transaction, effect))
            else:
                self._tasks.put(partial(self._send_markers, transaction, effect))

    # -- records ---------------------------------------------------------------------------------------------

    def _write(self, transaction: Transaction, wanted: Write) -> None:
        def done(appended: Appended) -> None:
            error = ErrorCode.NOT_COORDINATOR if self.closed else client_error(appended.error)
            if error and not self.closed:
                self._log_failure(transaction.transactional_id, wanted.record.state, appended.error)
            if error and wanted.completes:
                self._complete_later(transaction, wanted, error)
                return
            with self.lock():
                wanted.on_written(error, self.now_ms())
                self.put_effects(transaction)
                if wanted.completes:
                    self._tasks.put(lambda: self._services.waits.let_go(transaction))

        transactional_id = transaction.transactional_id
        try:
            batch = record_batch(transactional_id, wanted.record, self.now_ms())
        except FormatError as refused:
            _log.error("transactional id %r cannot be written: %s", transactional_id, refused)
            done(Appended(ErrorCode.UNKNOWN_SERVER_ERROR))
            return
        self._append(batch, done, wanted.record.timeout_ms)

    def _append(self, batch: BuiltBatch, on_done: OnAppended, timeout_ms: int) -> None:
        if self.closed:
            on_done(Appended(ErrorCode.NOT_COORDINATOR))
            return
        self._services.append(
            self.number, batch, on_done, leader_epoch=self.leader_epoch, timeout_ms=timeout_ms
        )

    def _complete_later(self, transaction: Transaction, wanted: Write, error: ErrorCode) -> None:
        """The markers are written, but not that the transaction is complete.

        If another broker leads the partition now, it finds that out and sends the markers again.
        """
        if error is ErrorCode.NOT_COORDINATOR:
            return

        def again() -> None:
            self.completions_waiting -= 1
            self._tasks.put(lambda: self._write(transaction, wanted))
            self._tasks.run()

        self.completions_waiting += 1
        self._services.timer.add(TimedCall(self._services.timer_ms() + RETRY_MS, again))

    def _log_failure(self, transactional_id: str, state: TransactionState, error: ErrorCode) -> None:
        _log.warning(
            "transactional id %r: the state %s could not be written to __transaction_state-%d: %s",
            transactional_id,
            state.title,
            self.number,
            error.name,
        )

    # -- markers ---------------------------------------------------------------------------------------------

    def _send_markers(self, transaction: Transaction, wanted: SendMarkers) -> None:
        prepared = wanted.prepared

        def written(partitions: Collection[TopicPartition], *, superseded: bool = False) -> None:
            with self.lock():
                if not self.closed:
                    transaction.markers_written(prepared, partitions, superseded=superseded)
                    self.put_effects(transaction)

        committed = prepared.state is TransactionState.PREPARE_COMMIT
        marker = Marker(prepared.producer, self.leader_epoch, committed)
        with self._sending:
            if not self.closed:
                markers = MarkersToWrite(
                    transaction.transactional_id, self.number, marker, prepared.partitions
                )
                self._services.markers.send(markers, written)
        # Without a lock: appends complete what waits, for transactions of other partitions, too.
        self._services.markers.write_own()

    # -- what happens with time ------------------------------------------------------------------------------

    def _snapshot(self) -> list[Transaction]:
        """All ids. Most need nothing, and looking at them all must not hold up requests."""
        with self._lock:
            return list(self.transactions.values())

    def abort_timed_out(self) -> None:
        """Abort the transactions that have been open for longer than their timeout."""
        now_ms = self.now_ms()
        late = [transaction for transaction in self._snapshot() if transaction.is_timed_out(now_ms)]
        with self.lock():
            for transaction in late:
                if transaction.abort_if_timed_out(now_ms):
                    _log.info(
                        "transactional id %r is aborted: its transaction was open for more than %d ms",
                        transaction.transactional_id,
                        transaction.record.timeout_ms,
                    )
                    self.put_effects(transaction)

    def remove_expired(self, expiration_ms: int, max_batch_bytes: int, timeout_ms: int) -> None:
        """Remove the ids that were not used for longer than `expiration_ms`."""
        now_ms = self.now_ms()
        unused = [each for each in self._snapshot() if each.is_expired(now_ms, expiration_ms)]
        with self.lock():
            expired = [each.transactional_id for each in unused if each.expire(now_ms, expiration_ms)]
            for ids, batch in removal_batches(expired, now_ms, max_batch_bytes):
                self._tasks.put(partial(self._remove, ids, batch, timeout_ms))

    def _remove(self, transactional_ids: list[str], batch: BuiltBatch, timeout_ms: int) -> None:
        def done(appended: Appended) -> None:
            if appended.error and not self.closed:
                _log.warning(
                    "%d expired transactional ids could not be removed from __transaction_state-%d: %s",
                    len(transactional_ids),
                    self.number,
                    appended.error.name,
                )
            with self.lock():
                for transactional_id in transactional_ids:
                    if appended.error:
                        self.transactions[transactional_id].expiry_failed()
                    else:
                        del self.transactions[transactional_id]

        self._append(batch, done, timeout_ms)

    # -- leadership ------------------------------------------------------------------------------------------

    def install(self, loaded: Mapping[str, TransactionRecord]) -> None:
        """Take over what was read from the log, and finish the transactions that are decided."""
        with self.lock():
            now_ms = self.now_ms()
            for transactional_id, record in loaded.items():
                transaction = self.transactions[transactional_id] = Transaction(transactional_id, record)
                transaction.resume(now_ms)
                self.put_effects(transaction)

    def close(self) -> None:
        """This broker leads the partition no longer, or in a newer epoch."""
        with self._sending:
            self.closed = True
            self._services.markers.forget(self.number)
        for transaction in self._snapshot():
            self._services.waits.let_go(transaction)
