"""One transactional id: a state machine that decides what its requests are answered and what is written.

Rules: Kafka's `TransactionCoordinator` and `TransactionMetadata`; KIP-98, KIP-360 (a producer keeps its id
when its epoch is raised), KIP-447. A change is *pending* from the request until its record is replicated;
until then the id is in its old state, and nearly every request is answered CONCURRENT_TRANSACTIONS.

Fencing raises the epoch and aborts in one step here, so the state PrepareEpochFence is never seen.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final, TypeAlias

from klog.coordinator.transactions.effects import Done, Effect, Reply, SendMarkers, Write
from klog.coordinator.transactions.records import TransactionRecord
from klog.coordinator.transactions.values import (
    NO_PRODUCER,
    NO_PRODUCER_EPOCH,
    NO_TIMESTAMP,
    DescribedTransaction,
    InitResult,
    ListedTransaction,
    Producer,
    TransactionState,
    VerifyErrors,
)
from klog.formats.constants import INT16_MAX
from klog.formats.names import TopicPartition
from klog.protocol.error_codes import ErrorCode

Partitions: TypeAlias = frozenset[TopicPartition]

# The epoch after it is for fencing only: no producer is ever given it.
LAST_EPOCH: Final = INT16_MAX - 1
_FIRST_EPOCH: Final = 0
_NO_PARTITIONS: Final[Partitions] = frozenset()

_EMPTY: Final = TransactionState.EMPTY
_ONGOING: Final = TransactionState.ONGOING
_PREPARED: Final = frozenset((TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT))
_RESTING: Final = frozenset((_EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT))
_COMPLETED: Final = {
    TransactionState.PREPARE_COMMIT: TransactionState.COMPLETE_COMMIT,
    TransactionState.PREPARE_ABORT: TransactionState.COMPLETE_ABORT,
}


class Transaction:
    """The state of a transactional id. `record` is the last one that was written, `pending` the next one."""

    def __init__(self, transactional_id: str, record: TransactionRecord) -> None:
        self.transactional_id = transactional_id
        self.record = record
        self.pending: TransactionRecord | None = None
        # If the transaction is decided: the partitions whose marker is missing.
        self.unmarked: Partitions = record.partitions if record.state in _PREPARED else _NO_PARTITIONS
        # The producer before the last change. It is not written: after a load it is not known.
        self._last = NO_PRODUCER
        self._fence_failed = False
        # The partitions that know a newer epoch of the producer than the decided transaction has.
        self._superseded: Partitions = _NO_PARTITIONS
        self._effects: list[Effect] = []

    def take_effects(self) -> list[Effect]:
        """What is to be done since the last call, in order."""
        effects = self._effects
        self._effects = []
        return effects

    def _reply(self, done: Done, error: ErrorCode) -> None:
        self._effects.append(Reply(lambda: done(error)))

    # -- InitProducerId --------------------------------------------------------------------------------------

    def needs_producer_id(self, expected: Producer) -> bool:
        """Whether `init` needs a new producer id, because the epochs of the present one are used up."""
        return self._init_error(expected) is ErrorCode.NONE and self._is_exhausted(expected)

    def _is_exhausted(self, expected: Producer) -> bool:
        epoch = self.record.producer.epoch
        return (
            self.record.state in _RESTING
            and epoch >= LAST_EPOCH
            and (expected == NO_PRODUCER or expected.epoch == epoch)
        )

    def init(
        self,
        timeout_ms: int,
        expected: Producer,
        reply: Callable[[InitResult], None],
        now_ms: int,
        new_producer_id: int | None = None,
    ) -> None:
        """InitProducerId. `expected` is what the client has, or NO_PRODUCER.

        An open transaction is aborted first; the client tries again meanwhile.
        """

        def refuse(error: ErrorCode) -> None:
            self._effects.append(Reply(lambda: reply(InitResult(error))))

        error = self._init_error(expected)
        if error:
            refuse(error)
            return
        if self.record.state is _ONGOING:

            def fenced(error: ErrorCode) -> None:
                reply(InitResult(error or ErrorCode.CONCURRENT_TRANSACTIONS))

            self._fence(fenced, now_ms)
            return
        following = self._following(expected, new_producer_id)
        if following is None:
            refuse(ErrorCode.PRODUCER_FENCED)
            return
        producer, last_epoch = following

        def written(error: ErrorCode) -> None:
            reply(InitResult(error) if error else InitResult(error, producer))

        self._write(
            TransactionRecord(producer, timeout_ms, _EMPTY, _NO_PARTITIONS, now_ms), written, last_epoch
        )

    def _init_error(self, expected: Producer) -> ErrorCode:
        if self.pending is not None:
            return ErrorCode.CONCURRENT_TRANSACTIONS
        current = self.record.producer
        if not (
            expected == NO_PRODUCER
            or current.epoch == NO_PRODUCER_EPOCH
            or expected.producer_id == current.producer_id
            or (expected.producer_id == self._last.producer_id and expected.epoch >= LAST_EPOCH)
        ):
            return ErrorCode.PRODUCER_FENCED
        if self.record.state in _PREPARED:
            return ErrorCode.CONCURRENT_TRANSACTIONS
        return ErrorCode.NONE

    def _following(self, expected: Producer, new_producer_id: int | None) -> tuple[Producer, int] | None:
        """The next producer and the last epoch to remember; None if the client is fenced."""
        current = self.record.producer
        is_new = expected == NO_PRODUCER
        if self._is_exhausted(expected):
            if new_producer_id is None:
                raise ValueError("the epochs are used up: a new producer id is needed")
            return Producer(new_producer_id, _FIRST_EPOCH), NO_PRODUCER_EPOCH if is_new else current.epoch
        raised = Producer(current.producer_id, current.epoch + 1)
        if is_new:
            return raised, NO_PRODUCER_EPOCH
        if current.epoch in (NO_PRODUCER_EPOCH, expected.epoch):
            return raised, current.epoch
        if expected.epoch == self._last.epoch:
            return current, self._last.epoch  # the client has not got the last answer
        return None

    # -- partitions ------------------------------------------------------------------------------------------

    def _producer_error(self, producer: Producer) -> ErrorCode:
        current = self.record.producer
        if producer.producer_id != current.producer_id:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        if producer.epoch != current.epoch:
            return ErrorCode.PRODUCER_FENCED
        return ErrorCode.NONE

    def add(
        self, producer: Producer, partitions: Collection[TopicPartition], done: Done, now_ms: int
    ) -> None:
        """AddPartitionsToTxn and AddOffsetsToTxn; the first partitions start the transaction."""
        record = self.record
        error = self._producer_error(producer)
        if not error and (self.pending is not None or record.state in _PREPARED):
            error = ErrorCode.CONCURRENT_TRANSACTIONS
        is_open = record.state is _ONGOING
        if error or (is_open and record.partitions.issuperset(partitions)):
            self._reply(done, error)
            return
        start_ms = record.start_ms if is_open else now_ms
        together = record.partitions.union(partitions)
        self._write(
            TransactionRecord(record.producer, record.timeout_ms, _ONGOING, together, now_ms, start_ms), done
        )

    def verify(self, producer: Producer, partitions: Collection[TopicPartition]) -> ErrorCode | VerifyErrors:
        """AddPartitionsToTxn with verifyOnly: whether the transaction has the partitions."""
        error = self._producer_error(producer)
        if error:
            return error
        if self.record.state in _PREPARED:
            return ErrorCode.CONCURRENT_TRANSACTIONS
        added = self.record.partitions
        return {
            partition: ErrorCode.NONE if partition in added else ErrorCode.TRANSACTION_ABORTABLE
            for partition in partitions
        }

    # -- the end ---------------------------------------------------------------------------------------------

    def is_ending(self, producer: Producer) -> bool:
        """Whether the transaction of this producer is decided and not complete: its markers are missing."""
        return self.record.state in _PREPARED and not self._producer_error(producer)

    def end(self, producer: Producer, committed: bool, done: Done, now_ms: int) -> None:
        """EndTxn: `done` is called when the decision is written; then the markers are sent."""
        error = self._producer_error(producer) or self._end_error(committed)
        if error or self.record.state is not _ONGOING:
            self._reply(done, error)
            return
        self._prepare(self.record, committed, done, now_ms)

    def _end_error(self, committed: bool) -> ErrorCode:
        """Why a transaction cannot be ended so. If it has ended so, that is no error."""
        if self.pending is not None:
            return ErrorCode.CONCURRENT_TRANSACTIONS
        state = self.record.state
        wanted = TransactionState.PREPARE_COMMIT if committed else TransactionState.PREPARE_ABORT
        if state is wanted:
            return ErrorCode.CONCURRENT_TRANSACTIONS
        if state is _ONGOING or state is _COMPLETED[wanted]:
            return ErrorCode.NONE
        return ErrorCode.INVALID_TXN_STATE

    def _fence(self, done: Done, now_ms: int) -> None:
        """Abort in a higher epoch, so that the producer cannot go on.

        If the record cannot be written the epoch stays raised, and the next attempt does not raise it again:
        attempts would use up the epochs.
        """
        record = self.record
        producer_id, epoch = record.producer
        if not self._fence_failed and epoch < INT16_MAX:
            epoch += 1
        self.record = record._replace(producer=Producer(producer_id, epoch))
        self._last = self._last._replace(epoch=NO_PRODUCER_EPOCH)

        def written(error: ErrorCode) -> None:
            if error:
                self._fence_failed = True
            done(error)

        self._prepare(self.record, False, written, now_ms)

    def _prepare(self, record: TransactionRecord, committed: bool, done: Done, now_ms: int) -> None:
        state = TransactionState.PREPARE_COMMIT if committed else TransactionState.PREPARE_ABORT
        producer, timeout_ms, _, partitions, _, start_ms = record
        self._write(TransactionRecord(producer, timeout_ms, state, partitions, now_ms, start_ms), done)

    def is_timed_out(self, now_ms: int) -> bool:
        """Whether the transaction has been open for longer than its timeout."""
        record = self.record
        return (
            record.state is _ONGOING and record.start_ms + record.timeout_ms < now_ms and self.pending is None
        )

    def abort_if_timed_out(self, now_ms: int) -> bool:
        """Abort the transaction if it has been open for longer than its timeout."""
        if not self.is_timed_out(now_ms):
            return False
        self._fence(lambda error: None, now_ms)  # noqa: ARG005 (the next check tries again)
        return True

    # -- markers ---------------------------------------------------------------------------------------------

    def resume(self, now_ms: int) -> None:
        """After a load: send the markers of a decided transaction (again)."""
        if self.record.state in _PREPARED:
            self._send_markers(now_ms)

    def _send_markers(self, now_ms: int) -> None:
        record = self.record
        self.unmarked, self._superseded = record.partitions, _NO_PARTITIONS
        producer, timeout_ms, state, partitions, _, start_ms = record
        self.pending = TransactionRecord(
            producer, timeout_ms, _COMPLETED[state], _NO_PARTITIONS, now_ms, start_ms
        )
        if partitions:
            self._effects.append(SendMarkers(record))
        else:
            self._complete()

    def markers_written(
        self,
        prepared: TransactionRecord,
        partitions: Collection[TopicPartition],
        *,
        superseded: bool = False,
    ) -> None:
        """Markers of the transaction with this record are written, or their partitions are gone.

        Partitions are `superseded` if they know a newer epoch of the producer, so the transaction has ended
        there long since. What is reported of an earlier transaction, or again, has no effect.
        """
        if self.record is not prepared or not self.unmarked:
            return
        if superseded:
            self._superseded |= self.unmarked.intersection(partitions)
        self.unmarked = self.unmarked.difference(partitions)
        if not self.unmarked:
            if self._superseded and prepared.producer.epoch < INT16_MAX:
                self._abort_all()
            self._complete()

    def _abort_all(self) -> None:
        """Complete by aborting what the producer has open in partitions that know a newer epoch of it.

        The log of the coordinator has lost records of the id, and cannot tell what they were. The last epoch
        fences all others, and the id gets a new producer id after it. Kafka waits for ever.
        """
        producer, timeout_ms, _, _, last_update_ms, start_ms = self.record
        self._last = self._last._replace(epoch=NO_PRODUCER_EPOCH)
        self.pending = TransactionRecord(
            Producer(producer.producer_id, INT16_MAX),
            timeout_ms,
            TransactionState.PREPARE_ABORT,
            self._superseded,
            last_update_ms,
            start_ms,
        )

    def _complete(self) -> None:
        if self.pending is not None:
            self._effects.append(Write(self.pending, self._written(self.pending, None, None), completes=True))

    # -- records ---------------------------------------------------------------------------------------------

    def _write(self, record: TransactionRecord, done: Done, last_epoch: int | None = None) -> None:
        self.pending = record
        self._effects.append(Write(record, self._written(record, done, last_epoch)))

    def _written(
        self, record: TransactionRecord, done: Done | None, last_epoch: int | None
    ) -> Callable[[ErrorCode, int], None]:
        def on_written(error: ErrorCode, now_ms: int) -> None:
            self.pending = None
            if not error:
                self._become(record, last_epoch)
            if done is not None:
                self._reply(done, error)
            if not error and record.state in _PREPARED:
                self._send_markers(now_ms)

        return on_written

    def _become(self, record: TransactionRecord, last_epoch: int | None) -> None:
        before = self.record
        epoch = self._last.epoch if last_epoch is None else last_epoch
        self._last = Producer(before.producer.producer_id, epoch)
        if record.state is _EMPTY:
            # Kafka describes the start of the previous transaction until the next one starts.
            record = record._replace(start_ms=before.start_ms)
        elif record.state in _PREPARED:
            self._fence_failed = False
        self.record = record

    # -- the end of the id -----------------------------------------------------------------------------------

    def is_expired(self, now_ms: int, expiration_ms: int) -> bool:
        """Whether the id was not used for so long that it is to be removed."""
        record = self.record
        return (
            record.last_update_ms <= now_ms - expiration_ms
            and record.state in _RESTING
            and self.pending is None
        )

    def expire(self, now_ms: int, expiration_ms: int) -> bool:
        """Whether the id is to be removed; then that is pending."""
        if not self.is_expired(now_ms, expiration_ms):
            return False
        self.pending = self.record._replace(state=TransactionState.DEAD)
        return True

    def expiry_failed(self) -> None:
        """The id could not be removed: it stays as it was."""
        self.pending = None

    # -- inspection ------------------------------------------------------------------------------------------

    def described(self) -> DescribedTransaction:
        """As DescribeTransactions shows it: of a decided transaction what has no marker yet."""
        record = self.record
        partitions = self.unmarked if record.state in _PREPARED else record.partitions
        return DescribedTransaction(
            ErrorCode.NONE,
            self.transactional_id,
            record.state.title,
            record.timeout_ms,
            record.start_ms,
            record.producer,
            partitions,
        )

    def listed(self) -> ListedTransaction:
        """As ListTransactions shows it."""
        return ListedTransaction(
            self.transactional_id, self.record.producer.producer_id, self.record.state.title
        )


def new_transaction(transactional_id: str, producer_id: int, timeout_ms: int, now_ms: int) -> Transaction:
    """An id of which nothing is known yet; its first epoch is 0."""
    producer = Producer(producer_id, NO_PRODUCER_EPOCH)
    record = TransactionRecord(producer, timeout_ms, _EMPTY, _NO_PARTITIONS, now_ms, NO_TIMESTAMP)
    return Transaction(transactional_id, record)
