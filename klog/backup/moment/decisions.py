"""What `__transaction_state` says about transactions: which were decided, how, and for which partitions.

Rules: Kafka's `TransactionStateManager` (KIP-98). A transaction is decided by its PrepareCommit or
PrepareAbort. Its markers follow, and CompleteCommit or CompleteAbort when all are written. Only then can the
producer's next transaction begin. So the markers of a producer's transactions, with their times, lie in the
same order as the decisions, and none between two of them belongs to a third. This holds as far as the clocks
of brokers differ by less than half the time between two transactions of a producer.

The topic is compacted: of what a producer did before its last record, decisions may be missing. A marker that
is older than the beginning of all transactions that are there belongs to such a decision.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from klog.backup.moment.values import Transaction
from klog.coordinator.transactions.records import TransactionRecord
from klog.coordinator.transactions.values import TransactionState
from klog.formats.names import TopicPartition

TRANSACTION_TOPIC: Final = "__transaction_state"

_PREPARED: Final = {TransactionState.PREPARE_COMMIT: True, TransactionState.PREPARE_ABORT: False}
_COMPLETED: Final = {TransactionState.COMPLETE_COMMIT: True, TransactionState.COMPLETE_ABORT: False}


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision of one transaction: in a batch of `log`, a partition of `__transaction_state`, from
    `offset` to before `end_offset`. `partitions` is None if only its completion is known, which does not name
    them. `completed_ms` is `decided_ms` if the completion is not known, `start_ms` is when it began.
    """

    is_commit: bool
    log: TopicPartition
    offset: int
    end_offset: int
    partitions: frozenset[TopicPartition] | None
    decided_ms: int
    completed_ms: int
    start_ms: int = -1

    def names(self, partition: TopicPartition) -> bool:
        """Whether the transaction may have records in a partition."""
        return self.partitions is None or partition in self.partitions

    def distance_ms(self, at_ms: int) -> int:
        """How far a time is from the time in which the transaction's markers were written."""
        return max(self.decided_ms - at_ms, at_ms - self.completed_ms, 0)


class Decisions:
    """The decisions by producer, from the records of `__transaction_state` in the order of each log."""

    def __init__(self) -> None:
        self._of: dict[int, list[Decision]] = {}
        self._logs: dict[int, TopicPartition] = {}
        self._naming: dict[tuple[int, TopicPartition], list[Decision]] = {}
        self._last_begin_ms: dict[int, int] = {}

    def add(
        self, log: TopicPartition, offset: int, end_offset: int, at_ms: int, record: TransactionRecord
    ) -> None:
        """Take the next record of a log, which is in a batch from `offset` to before `end_offset`.

        `at_ms` is when it was written. The time inside a completion is not used: coordinators take it before
        they send the markers.
        """
        producer_id = record.producer.producer_id
        self._logs[producer_id] = log
        begin_ms = record.start_ms if record.start_ms >= 0 else at_ms
        self._last_begin_ms[producer_id] = max(begin_ms, self._last_begin_ms.get(producer_id, -1))
        found = self._of.setdefault(producer_id, [])
        if record.state in _PREPARED:
            is_commit = _PREPARED[record.state]
            found.append(
                Decision(is_commit, log, offset, end_offset, record.partitions, at_ms, at_ms, record.start_ms)
            )
        elif record.state in _COMPLETED:
            is_commit = _COMPLETED[record.state]
            last = found[-1] if found else None
            if last is not None and last.is_commit == is_commit and last.completed_ms == last.decided_ms:
                found[-1] = replace(last, completed_ms=max(at_ms, last.decided_ms))
            else:
                found.append(
                    Decision(is_commit, log, offset, end_offset, None, at_ms, at_ms, record.start_ms)
                )
        self._naming.clear()

    def log_of(self, producer_id: int) -> TopicPartition | None:
        """The partition of `__transaction_state` with a producer's records; None if there are none."""
        return self._logs.get(producer_id)

    def all(self) -> list[Decision]:
        """All decisions."""
        return [decision for found in self._of.values() for decision in found]

    def decision_of(self, partition: TopicPartition, transaction: Transaction) -> Decision | None:
        """The decision of the transaction that a partition has a part of; None if it is not known.

        It is the next one after the decision of the producer's marker before it in this partition. If only
        the completion of that one is known, it may have been about other partitions: it is passed over if it
        was completed before the transaction's first record. If there is no marker before it, the time of its
        own marker says which one it is, or the time of its first record. One that was open before a gap has
        the first of them that was completed after its first record. (Its producer may have made that record
        before the decision before was completed.)
        """
        found = self._those_naming(partition, transaction.producer_id)
        if not found:
            return None
        before = _before(found, transaction)
        candidates = found[before + 1 :]
        if transaction.gap is not None:
            return next((each for each in candidates if each.completed_ms >= transaction.first_ms), None)
        marker = transaction.marker
        if marker is not None:
            candidates = [
                each
                for each in candidates
                if each.is_commit != marker.aborted and each.start_ms <= marker.timestamp
            ]
            return min(candidates, key=lambda each: each.distance_ms(marker.timestamp), default=None)
        follows_marker = before >= 0 or transaction.previous_ms >= 0
        possible = [
            each
            for each in candidates
            if each.completed_ms >= transaction.first_ms or (follows_marker and each.partitions is not None)
        ]
        return next(iter(possible if follows_marker else reversed(possible)), None)

    def is_forgotten(self, transaction: Transaction) -> bool:
        """Whether the decision behind a transaction's marker is compacted away: there is a later one's."""
        marker = transaction.marker
        return marker is not None and self._last_begin_ms.get(transaction.producer_id, -1) > marker.timestamp

    def _those_naming(self, partition: TopicPartition, producer_id: int) -> list[Decision]:
        key = (producer_id, partition)
        if key not in self._naming:
            self._naming[key] = [each for each in self._of.get(producer_id, ()) if each.names(partition)]
        return self._naming[key]


def _before(found: Sequence[Decision], transaction: Transaction) -> int:
    """The number of the decision whose marker came before the transaction; -1 if it is not among `found`."""
    at_ms = transaction.previous_ms
    if at_ms < 0:
        return -1
    nearest = min(range(len(found)), key=lambda number: found[number].distance_ms(at_ms))
    first = found[0]
    is_older = at_ms < first.start_ms or (
        at_ms < first.decided_ms and transaction.first_ms <= first.decided_ms
    )
    if nearest == 0 and is_older:
        return -1  # the marker's own decision is compacted away
    return nearest
