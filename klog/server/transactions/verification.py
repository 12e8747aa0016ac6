"""Verifies that partitions are in a producer's transaction before its records may open one in their logs.

Rules: Kafka's `ReplicaManager.maybeStartTransactionVerificationForPartitions` and the callers of it (KIP-890,
part 1). Produce asks for the partitions of a request, TxnOffsetCommit for the partition of its group. If the
transaction is open in a partition, nothing is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from klog.coordinator.transactions.values import PartitionVerifier, Producer, VerifyErrors
from klog.formats.names import TopicPartition
from klog.protocol.error_codes import ErrorCode
from klog.replication.partition import Partition, PartitionError, Replicas
from klog.storage.log.verification import OPEN, UNCHECKED

# A passing fault of the verification. Clients that do not know the real error retry this one without looking
# up the leader again.
_PASSING: Final = frozenset(
    (
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    )
)
_PRODUCE_KNOWS_ABORTABLE_FROM: Final = 11
_COMMIT_KNOWS_ABORTABLE_FROM: Final = 4


class Verified(NamedTuple):
    """The partitions that may not be written, with the coordinator's error, and the guards of the others.

    A partition without a guard has an open transaction, or its append fails for another reason.
    """

    errors: VerifyErrors
    guards: Mapping[tuple[str, int], object]


OnVerified = Callable[[Verified], None]


@dataclass(slots=True, eq=False)
class Verification:
    """Asks for the partitions of one request. Safe for threads.

    `is_enabled` is `transaction.partition.verification.enable`; `clock_ms` is the wall clock.
    """

    replicas: Replicas
    verifier: PartitionVerifier
    is_enabled: Callable[[], bool]
    clock_ms: Callable[[], int]

    def begin(
        self,
        transactional_id: str,
        producer: Producer,
        sequences: Mapping[tuple[str, int], int],
        on_done: OnVerified,
    ) -> None:
        """Verify the partitions to which a producer writes; `sequences` has the first sequence for each.

        `on_done` is called once: before this returns if nothing has to be asked over the wire, else from
        another thread. Call it without any lock that `on_done` takes.
        """
        if not self.is_enabled():
            on_done(Verified({}, dict.fromkeys(sequences, UNCHECKED)))
            return
        guards: dict[tuple[str, int], object] = {}
        partitions, now_ms = self.replicas.partitions, self.clock_ms()
        for key, sequence in sequences.items():
            partition = partitions.get(key)
            # The append says why a partition cannot be written.
            if partition is None:
                continue
            try:
                guard = partition.begin_verification(*producer, sequence, now_ms)
            except PartitionError:
                continue
            if guard is not None:
                guards[key] = guard
        if not guards:
            on_done(Verified({}, guards))
            return

        def answered(errors: VerifyErrors) -> None:
            refused = {key: error for key, error in errors.items() if error is not ErrorCode.NONE}
            on_done(Verified(refused, guards))

        asked = [TopicPartition(*key) for key in guards]
        self.verifier.verify(transactional_id, producer, asked, answered)

    def guard_here(
        self, transactional_id: str, producer: Producer, sequence: int, partition: Partition
    ) -> object | None:
        """The guard for records that a producer writes to one partition, from `sequence` on.

        It is `OPEN` if their transaction is open there. None if they must not be written, or if that has to
        be asked over the wire: `begin` finds out.
        """
        if not self.is_enabled():
            return UNCHECKED
        try:
            guard = partition.begin_verification(*producer, sequence, self.clock_ms())
        except PartitionError:
            return None
        if guard is None:
            return OPEN
        key = partition.topic_partition
        return guard if self.verifier.is_verified_here(transactional_id, producer, key) else None


def produce_refusal(error: ErrorCode, version: int) -> tuple[ErrorCode, str | None]:
    """What a Produce request of this version is answered for a verification error, and why."""
    if error in _PASSING:
        what = f"the coordinator did not say whether the partition is in the transaction: {error.name}"
        return ErrorCode.NOT_ENOUGH_REPLICAS, what
    known = error
    if error is ErrorCode.TRANSACTION_ABORTABLE and version < _PRODUCE_KNOWS_ABORTABLE_FROM:
        known = ErrorCode.INVALID_TXN_STATE
    if known is ErrorCode.INVALID_TXN_STATE:
        return known, "Partition was not added to the transaction"
    return known, None


def offset_commit_refusal(error: ErrorCode, version: int) -> ErrorCode:
    """What a TxnOffsetCommit request of this version is answered for a verification error."""
    if error is ErrorCode.NETWORK_EXCEPTION:
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    if error is ErrorCode.TRANSACTION_ABORTABLE and version < _COMMIT_KNOWS_ABORTABLE_FROM:
        return ErrorCode.INVALID_TXN_STATE
    return error
