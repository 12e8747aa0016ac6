"""Tracks the producers of a log: duplicates, sequences, epochs and open transactions.

Rules: KIP-98 and Kafka's `ProducerStateManager`, `ProducerStateEntry`, `ProducerAppendInfo`. The last five
batches of a producer are remembered, so that a retried batch is recognised. A snapshot keeps them, too.
`klog.storage.reading.producer_state` replays a log in recovery without checks, and provides the first state.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Iterable
from typing import Final, NamedTuple

from klog.formats.constants import NO_SEQUENCE
from klog.formats.wrapping import sequence_after
from klog.kernel.markers import Marker, marker_of_batch
from klog.storage.log.append_values import AppendError, BatchInfo, Origin, run_batch
from klog.storage.log.batch_run import ProducerRun
from klog.storage.log.built_batch import BuiltBatch
from klog.storage.log.verification import UNCHECKED, Verification
from klog.storage.reading.producer_history import BATCHES_REMEMBERED, History, SentBatch
from klog.storage.reading.producer_state import AbortedTxn, ProducerEntry

_NONE: Final = -1


class Producer:
    """The state of one producer id. `txn_first_offset` is -1 if no transaction is open."""

    __slots__ = ("batches", "coordinator_epoch", "epoch", "last_timestamp", "producer_id", "txn_first_offset")

    def __init__(self, producer_id: int, epoch: int = _NONE) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.coordinator_epoch = _NONE
        self.txn_first_offset = _NONE
        self.last_timestamp = _NONE
        self.batches: deque[SentBatch] = deque(maxlen=BATCHES_REMEMBERED)

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record, -1 if none is known."""
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    def duplicate_of(self, batch: BatchInfo, last_sequence: int) -> SentBatch | None:
        """The remembered batch that this one repeats."""
        if batch.producer_epoch == self.epoch:
            for sent in self.batches:
                if sent.first_sequence == batch.base_sequence and sent.last_sequence == last_sequence:
                    return sent
        return None

    def entry(self) -> ProducerEntry:
        """The producer's entry in a snapshot."""
        last = self.batches[-1] if self.batches else SentBatch(_NONE, _NONE, _NONE, _NONE, _NONE)
        return ProducerEntry(
            self.producer_id,
            self.epoch,
            last.last_sequence,
            last.last_offset,
            last.last_offset - last.first_offset,
            self.last_timestamp,
            self.coordinator_epoch,
            self.txn_first_offset,
        )


def last_sequence_of(batch: BatchInfo) -> int:
    """The sequence of the batch's last record; -1 if it has none (coordinators do not count)."""
    if batch.base_sequence < 0:
        return NO_SEQUENCE
    return sequence_after(batch.base_sequence, batch.last_offset - batch.first_offset)


class EndedTxn(NamedTuple):
    """A transaction that a marker, at `last_offset`, has ended."""

    first_offset: int
    last_offset: int


def _old_epoch(batch: BatchInfo, known: Producer) -> AppendError:
    what = f"producer epoch {batch.producer_epoch}, the log knows {known.epoch}"
    return AppendError("INVALID_PRODUCER_EPOCH", what)


class Producers:
    """All producers of one log. Not safe for threads: the log's lock guards it.

    `end_offset` is the offset up to which they are known; `first_unstable_offset` the first one whose
    transaction is open, or ended by a marker that is not replicated yet (None: there is none).
    """

    def __init__(
        self,
        entries: Iterable[ProducerEntry] = (),
        end_offset: int = 0,
        history: History | None = None,
    ) -> None:
        """`history` is what else the log says about the producers (None: nothing)."""
        self.by_id: dict[int, Producer] = {}
        # By producer id. Not a part of a snapshot.
        self.verifying: dict[int, Verification] = {}
        self.end_offset = end_offset
        self._open: list[int] = []  # first offsets of open transactions, ascending
        # Transactions that have ended, but whose markers are not below the high watermark.
        history = History() if history is None else history
        self._unreplicated = deque(EndedTxn(*txn) for txn in history.ended)
        self.first_unstable_offset: int | None = None
        for entry in entries:
            self._seed(entry, history.batches(entry.producer_id, entry.epoch))
        self._find_first_unstable()

    def _seed(self, entry: ProducerEntry, batches: Iterable[SentBatch]) -> None:
        producer = Producer(entry.producer_id, entry.epoch)
        producer.coordinator_epoch = entry.coordinator_epoch
        producer.txn_first_offset = entry.txn_first_offset
        producer.last_timestamp = entry.timestamp
        producer.batches.extend(batches)
        if entry.txn_first_offset >= 0:
            insort(self._open, entry.txn_first_offset)
        self.by_id[entry.producer_id] = producer

    @property
    def is_empty(self) -> bool:
        """Whether there is no producer, and no transaction whose marker is not replicated yet."""
        return not self.by_id and not self._unreplicated

    def __len__(self) -> int:
        return len(self.by_id)

    def entries(self) -> dict[int, ProducerEntry]:
        """The last entry of each producer in a snapshot."""
        return {producer_id: producer.entry() for producer_id, producer in self.by_id.items()}

    def batches(self, producer_id: int, epoch: int) -> Iterable[SentBatch]:
        """The last batches that a known producer has written in its epoch, oldest first."""
        producer = self.by_id[producer_id]
        return producer.batches if producer.epoch == epoch else ()

    def has_open_transaction(self, producer_id: int, epoch: int) -> bool:
        """Whether the producer has begun a transaction in this epoch that no marker has ended."""
        known = self.by_id.get(producer_id)
        return known is not None and known.txn_first_offset >= 0 and known.epoch == epoch

    def begin_verification(self, producer_id: int, epoch: int, sequence: int, now_ms: int) -> object | None:
        """Note that the coordinator is asked about a batch; returns the guard for its append.

        None if the producer's transaction is open here: then there is nothing to ask.
        """
        if self.has_open_transaction(producer_id, epoch):
            return None
        known = self.verifying.get(producer_id)
        entry = Verification(object(), sequence, epoch, now_ms) if known is None else known
        self.verifying[producer_id] = entry = entry.seen(sequence, epoch)
        return entry.guard

    def _require_verified(self, batch: BatchInfo, guard: object | None) -> None:
        entry = self.verifying.get(batch.producer_id)
        if (guard is None or entry is None or entry.guard is not guard) and not self.has_open_transaction(
            batch.producer_id, batch.producer_epoch
        ):
            raise AppendError(
                "INVALID_TXN_STATE", f"producer {batch.producer_id} has no transaction open in this partition"
            )

    def check(self, batch: BatchInfo, origin: Origin, guard: object | None = UNCHECKED) -> SentBatch | None:
        """Check a data batch before it is written; returns the batch that it repeats, None if it is new.

        `guard` is that of the batch's verification. Raises `AppendError` for a fenced epoch, a sequence out
        of order, data outside of the open transaction, or the begin of a transaction that is not verified.
        Coordinators keep no sequences.
        """
        known = self.by_id.get(batch.producer_id)
        if known is None:
            if batch.producer_epoch < _NONE:
                raise _old_epoch(batch, Producer(batch.producer_id))
            if guard is not UNCHECKED and batch.is_transactional:
                self._require_verified(batch, guard)
            if self.verifying and origin is Origin.CLIENT:
                self._require_lowest(batch)
            return None
        if origin is Origin.CLIENT:
            duplicate = known.duplicate_of(batch, last_sequence_of(batch))
            if duplicate is not None:
                return duplicate
        if batch.producer_epoch < known.epoch:
            raise _old_epoch(batch, known)
        if guard is not UNCHECKED and batch.is_transactional:
            self._require_verified(batch, guard)
        if origin is Origin.CLIENT:
            if self.verifying:
                self._require_lowest(batch)
            self._check_sequence(known, batch)
        if known.txn_first_offset >= 0 and not batch.is_transactional:
            raise AppendError(
                "INVALID_TXN_STATE", f"producer {batch.producer_id} writes outside of its open transaction"
            )
        return None

    def is_next(self, batch: BatchInfo, guard: object) -> bool:
        """Whether `check` would let a client's batch pass as a new one."""
        try:
            return self.check(batch, Origin.CLIENT, guard) is None
        except AppendError:
            return False

    def _require_lowest(self, batch: BatchInfo) -> None:
        """A batch after the lowest sequence that was seen came before its predecessor."""
        entry = self.verifying.get(batch.producer_id)
        if entry is not None and batch.base_sequence > entry.lowest_sequence:
            raise AppendError(
                "OUT_OF_ORDER_SEQUENCE_NUMBER",
                f"sequence {batch.base_sequence} of producer {batch.producer_id}, and the partition has seen"
                f" {entry.lowest_sequence} without writing it",
            )

    def _check_sequence(self, known: Producer, batch: BatchInfo) -> None:
        if batch.producer_epoch != known.epoch:
            # A new epoch starts at 0, unless only the producer's epoch was known.
            if batch.base_sequence != 0 and known.epoch != _NONE:
                raise AppendError(
                    "OUT_OF_ORDER_SEQUENCE_NUMBER",
                    f"sequence {batch.base_sequence} cannot be the first of epoch {batch.producer_epoch}",
                )
            return
        last = known.last_sequence
        if batch.base_sequence != sequence_after(last, 1) and known.epoch != _NONE:
            raise AppendError(
                "OUT_OF_ORDER_SEQUENCE_NUMBER",
                f"sequence {batch.base_sequence} of producer {batch.producer_id} after {last}",
            )

    def check_marker(self, batch: BatchInfo, marker: Marker) -> None:
        """Check a transaction marker before it is written.

        Raises `AppendError` for an epoch of the producer or of the coordinator below the known one.
        """
        known = self.by_id.get(batch.producer_id)
        if known is None:
            return
        if batch.producer_epoch < known.epoch:
            raise _old_epoch(batch, known)
        if marker.coordinator_epoch < known.coordinator_epoch:
            raise AppendError(
                "TRANSACTION_COORDINATOR_FENCED",
                f"coordinator epoch {marker.coordinator_epoch}, the log knows {known.coordinator_epoch}",
            )

    def _producer_of(self, batch: BatchInfo) -> Producer:
        """The batch's producer, in the batch's epoch. A new epoch clears the remembered batches.

        Its verification is over, because something of it is written.
        """
        if self.verifying:
            self.verifying.pop(batch.producer_id, None)
        producer = self.by_id.get(batch.producer_id)
        if producer is None:
            producer = self.by_id[batch.producer_id] = Producer(batch.producer_id, batch.producer_epoch)
        elif producer.epoch != batch.producer_epoch:
            producer.epoch = batch.producer_epoch
            producer.batches.clear()
        return producer

    def written(self, batch: BatchInfo) -> None:
        """Remember a data batch that has been written."""
        producer = self._producer_of(batch)
        sent = SentBatch(
            batch.base_sequence,
            last_sequence_of(batch),
            batch.first_offset,
            batch.last_offset,
            batch.max_timestamp,
        )
        producer.batches.append(sent)
        producer.last_timestamp = batch.max_timestamp
        if batch.is_transactional and producer.txn_first_offset < 0:
            producer.txn_first_offset = batch.first_offset
            insort(self._open, batch.first_offset)
            self._find_first_unstable()

    def follow(self, batch: BatchInfo, data: memoryview | bytearray) -> AbortedTxn | None:
        """Remember a batch of records or a marker that has been written; returns the transaction it aborted.

        `data` is what was appended, with the batch at its position.
        """
        if not batch.is_control:
            self.written(batch)
            return None
        marker = marker_of_batch(memoryview(data)[batch.position :])
        return None if marker is None else self.marker_written(batch, marker)

    def follow_run(self, run: ProducerRun, first_offset: int, leader_epoch: int, guard: object) -> bool:
        """Remember the batches of a run that is about to be written at `first_offset`.

        The run is cut before the first batch that is refused or a duplicate; False if none is left. `guard`
        is that of the verification of a transaction, or `OPEN`.
        """
        if isinstance(run, BuiltBatch):
            batch = run_batch(run, 0, first_offset, leader_epoch)
            return run.marker is not None and self._follow_commit(batch, run.marker)
        for number in range(run.frames):
            batch = run_batch(run, number, first_offset, leader_epoch)
            if batch.producer_id >= 0:
                if not self.is_next(batch, guard):
                    run.keep(number)
                    return number > 0
                self.written(batch)
            first_offset = batch.last_offset + 1
        return True

    def _follow_commit(self, batch: BatchInfo, marker: Marker) -> bool:
        """Remember a marker that is about to be written; false if it is refused, or if it aborts: then the
        transaction index may need an entry.
        """
        if marker.aborted:
            return False
        try:
            self.check_marker(batch, marker)
        except AppendError:
            return False
        self.marker_written(batch, marker)
        return True

    def marker_written(self, batch: BatchInfo, marker: Marker) -> AbortedTxn | None:
        """Remember a marker that has been written; returns the transaction that it aborted, if any."""
        producer = self._producer_of(batch)
        producer.coordinator_epoch = marker.coordinator_epoch
        producer.last_timestamp = marker.timestamp
        first_offset, producer.txn_first_offset = producer.txn_first_offset, _NONE
        if first_offset < 0:
            return None
        last_offset = batch.first_offset
        self._open.remove(first_offset)
        self._unreplicated.append(EndedTxn(first_offset, last_offset))
        self._find_first_unstable()
        if not marker.aborted:
            return None
        stable = self._open[0] if self._open else last_offset + 1
        return AbortedTxn(batch.producer_id, first_offset, last_offset, stable)

    def high_watermark_moved(self, high_watermark: int) -> None:
        """Forget ended transactions whose markers are replicated."""
        if self._unreplicated and self._unreplicated[0].last_offset < high_watermark:
            while self._unreplicated and self._unreplicated[0].last_offset < high_watermark:
                self._unreplicated.popleft()
            self._find_first_unstable()

    def _find_first_unstable(self) -> None:
        """The first offset whose transaction is open, or ended by a marker that is not replicated yet."""
        first = self._open[0] if self._open else None
        for txn in self._unreplicated:
            if first is None or txn.first_offset < first:
                first = txn.first_offset
        self.first_unstable_offset = first

    def remove_expired(self, now_ms: int, expiration_ms: int) -> int:
        """Forget producers idle for `expiration_ms` with no open transaction; returns how many.

        Verifications that began so long ago are forgotten, too.
        """
        idle = [
            producer_id
            for producer_id, producer in self.by_id.items()
            if producer.txn_first_offset < 0 and now_ms - producer.last_timestamp >= expiration_ms
        ]
        for producer_id in idle:
            del self.by_id[producer_id]
        for producer_id, entry in list(self.verifying.items()):
            if now_ms - entry.began_ms >= expiration_ms:
                del self.verifying[producer_id]
        return len(idle)
