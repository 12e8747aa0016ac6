"""Brings the ISRs that a leader proposes to the controller: drives `IsrChanges`, one request at a time.

Rules: Kafka's `AlterPartitionManager` (KIP-497).
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import partial

from klog.drivers.driver import FOR_A_CALL, Driver, Send, Wait
from klog.formats.names import TopicPartition
from klog.replication.isr_changes import IsrAnswers, IsrChange, IsrChanges, IsrOutcome, IsrRequest
from klog.replication.replica_manager import ReplicaManager

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class IsrCounts:
    """What has become of proposals since the start."""

    expands: int = 0
    shrinks: int = 0
    failures: int = 0

    def add(self, outcome: IsrOutcome) -> None:
        """Count what the answers to one request have done."""
        self.expands += sum(bool(change.joined) for change in outcome.changes)
        self.shrinks += sum(bool(change.left) for change in outcome.changes)
        self.failures += outcome.failures


class IsrDriver(Driver[IsrRequest, IsrAnswers]):
    """The ISR changes of a broker. `counts` says what has become of them."""

    def __init__(self, replicas: ReplicaManager) -> None:
        super().__init__()
        self.counts = IsrCounts()
        self._replicas = replicas
        self._changes = IsrChanges(replicas)

    def propose(self, key: TopicPartition) -> None:
        """A partition proposes another ISR. Safe for threads without a lock, as the partition is locked."""
        self._changes.propose(key)
        self.wake()

    def next_step(self, now_ms: int) -> Send[IsrRequest] | Wait:
        request = self._changes.next_request(now_ms)
        if request is not None:
            return Send(request)
        idle_ms = self._changes.idle_ms(now_ms)
        return FOR_A_CALL if idle_ms is None else Wait(now_ms + idle_ms)

    def answered(self, request: IsrRequest, answer: IsrAnswers, now_ms: int) -> None:  # noqa: ARG002
        outcome = self._changes.answered(request, answer)
        self.counts.add(outcome)
        self._effects += [partial(self._changed, change) for change in outcome.changes]

    def failed(self, request: IsrRequest, error: Exception, now_ms: int) -> None:  # noqa: ARG002
        self._changes.failed(request, now_ms)

    def _changed(self, change: IsrChange) -> None:
        key, joined, left = change
        partition = self._replicas.partitions.get(key)
        if partition is not None:
            state = partition.state
            _log.info(
                "%s: the in-sync replicas are %s (joined: %s, left: %s), partition epoch %d",
                key,
                list(state.isr.committed),
                sorted(joined) or "none",
                sorted(left) or "none",
                state.partition_epoch,
            )
        self._replicas.isr_changed(key)
