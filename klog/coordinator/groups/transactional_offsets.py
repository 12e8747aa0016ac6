"""TxnOffsetCommit: offsets of a group that count when a producer's transaction is committed.

Rules: Kafka's `GroupCoordinator.handleTxnCommitOffsets`; KIP-98, KIP-447 (the member is checked), KIP-890
(nothing is written before the transaction coordinator says that the transaction has the partition).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from klog.coordinator.groups.group_partition import GroupPartition
from klog.coordinator.groups.requests import CommitErrors, GroupRequests
from klog.coordinator.groups.services import Transactional
from klog.coordinator.groups.values import CommittedOffset, Identity
from klog.coordinator.groups.writing import commit_error
from klog.coordinator.transactions.values import NO_PRODUCER_ID, Producer
from klog.formats.names import PartitionKey
from klog.protocol.error_codes import ErrorCode

OnVerified = Callable[[ErrorCode, object | None], None]
"""Takes the error of a verification, and the guard that lets the append pass."""


class VerifyOffsets(Protocol):
    """Asks whether a partition of `__consumer_offsets` is in a producer's open transaction."""

    def __call__(
        self, partition: int, transactional_id: str, producer: Producer, on_done: OnVerified
    ) -> None:
        """`on_done` is called once, from any thread, maybe before this returns."""


@dataclass(frozen=True, slots=True)
class TransactionalCommit:
    """The offsets of one request, and who sends them."""

    group_id: str
    identity: Identity
    transactional_id: str
    producer: Producer
    commits: Mapping[PartitionKey, CommittedOffset]


@dataclass(frozen=True, slots=True)
class TransactionalCommits:
    """Commits offsets within transactions. Safe for threads."""

    groups: GroupRequests
    verify: VerifyOffsets

    def commit(self, asked: TransactionalCommit, reply: Callable[[CommitErrors], None]) -> None:
        """TxnOffsetCommit: `reply` gets the error of each partition when the offsets are replicated."""

        def refuse(error: ErrorCode) -> None:
            reply(dict.fromkeys(asked.commits, error))

        owner = self.groups.owner(asked.group_id)
        if isinstance(owner, ErrorCode):
            refuse(owner)
            return
        if asked.producer.producer_id <= NO_PRODUCER_ID:
            # Without verification, its records would open a transaction that nobody can end.
            refuse(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
            return

        def verified(error: ErrorCode, guard: object | None) -> None:
            if error:
                refuse(commit_error(error))
            else:
                self._store(owner, asked, guard, reply)

        self.verify(owner.number, asked.transactional_id, asked.producer, verified)

    def _store(
        self,
        owner: GroupPartition,
        asked: TransactionalCommit,
        guard: object | None,
        reply: Callable[[CommitErrors], None],
    ) -> None:
        with owner.lock():
            if owner.closed:
                owner.put(lambda: reply(dict.fromkeys(asked.commits, ErrorCode.NOT_COORDINATOR)))
                return
            entry, writer = owner.get_or_create(asked.group_id), Transactional(asked.producer, guard)
            error = entry.group.transactional_commit_error(asked.identity)
            if error:
                owner.put(lambda: reply(dict.fromkeys(asked.commits, error)))
                return
            self.groups.store(
                owner,
                asked.commits,
                reply,
                lambda stored, done: owner.put_transactional_commits(entry, writer, stored, done),
            )
