"""Brings the ISRs that a leader proposes to the controller.

Rules: Kafka's `AlterPartitionManager` (KIP-497). A partition has one proposal at most, and the broker one
request at a time, with all that has gathered. A request that fails as a whole is sent again for ever: until
the controller has answered, a leader cannot know which replicas count.
"""

from __future__ import annotations

import logging
from collections import deque
from dataclasses import dataclass
from functools import partial
from typing import Final

from klog.drivers.driver import FOR_A_CALL, Driver, Send, Wait
from klog.formats.names import TopicPartition
from klog.replication.alter_partition import IsrProposal, ProposalOutcome, proposal
from klog.replication.isr_changes import Answered, IsrAnswers, IsrRequest, take_answer
from klog.replication.replica_manager import ReplicaManager

_log = logging.getLogger(__name__)

RETRY_MS: Final = 50


@dataclass(slots=True)
class IsrCounts:
    """What has become of proposals since the start."""

    expands: int = 0
    shrinks: int = 0
    failures: int = 0


class IsrDriver(Driver[IsrRequest, IsrAnswers]):
    """The ISR changes of a broker. `counts` says what has become of them."""

    def __init__(self, replicas: ReplicaManager) -> None:
        super().__init__()
        self.counts = IsrCounts()
        self._replicas = replicas
        self._waiting: deque[TopicPartition] = deque()
        self._in_flight: IsrRequest | None = None
        self._not_before_ms = 0

    def propose(self, key: TopicPartition) -> None:
        """A partition proposes another ISR. Safe for threads without a lock, as the partition is locked."""
        self._waiting.append(key)
        self.wake()

    def next_step(self, now_ms: int) -> Send[IsrRequest] | Wait:
        if self._in_flight is not None or not self._waiting:
            return FOR_A_CALL
        if now_ms < self._not_before_ms:
            return Wait(self._not_before_ms)
        proposals: dict[TopicPartition, IsrProposal] = {}
        while self._waiting:
            key = self._waiting.popleft()
            partition = self._replicas.partitions.get(key)
            wanted = None if partition is None else proposal(partition.state)
            if wanted is not None:
                proposals[key] = wanted
        if not proposals:
            return FOR_A_CALL
        self._in_flight = IsrRequest(proposals)
        return Send(self._in_flight)

    def answered(self, request: IsrRequest, answer: IsrAnswers, now_ms: int) -> None:  # noqa: ARG002
        """Apply the answers to the request in flight. A partition that they leave out is sent again."""
        if request is not self._in_flight:
            return
        self._in_flight = None
        for key, sent in request.proposals.items():
            partition, each = self._replicas.partitions.get(key), answer.get(key)
            if partition is None:
                continue
            if each is None:
                self._waiting.append(key)
                continue
            done = take_answer(partition, sent, each)
            if done.outcome is ProposalOutcome.COMMITTED:
                self.counts.expands += bool(done.joined)
                self.counts.shrinks += bool(done.left)
                self._effects.append(partial(self._changed, key, done))
            elif done.outcome is not ProposalOutcome.IGNORED:
                self.counts.failures += 1
            if done.outcome is ProposalOutcome.RETRY:
                self._waiting.append(key)

    def failed(self, request: IsrRequest, error: Exception, now_ms: int) -> None:  # noqa: ARG002
        if request is self._in_flight:
            self._in_flight = None
            self._not_before_ms = now_ms + RETRY_MS
            self._waiting.extendleft(reversed([*request.proposals]))

    def _changed(self, key: TopicPartition, done: Answered) -> None:
        partition = self._replicas.partitions.get(key)
        if partition is not None:
            state = partition.state
            _log.info(
                "%s: the in-sync replicas are %s (joined: %s, left: %s), partition epoch %d",
                key,
                list(state.isr.committed),
                sorted(done.joined) or "none",
                sorted(done.left) or "none",
                state.partition_epoch,
            )
        self._replicas.isr_changed(key)
