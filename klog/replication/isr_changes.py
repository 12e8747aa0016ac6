"""The proposals of a broker to change ISRs, on their way to the controller. Pure: no threads, no clock.

Rules: Kafka's `AlterPartitionManager` (KIP-497). A partition has one proposal at most, and the broker one
request at a time, with all that has gathered. A request that fails as a whole is sent again for ever: until
the controller has answered, a leader cannot know which replicas count.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from klog.formats.names import TopicPartition
from klog.protocol.error_codes import ErrorCode
from klog.replication.alter_partition import IsrAccepted, IsrProposal, ProposalOutcome, after_answer, proposal
from klog.replication.isr import shrunk
from klog.replication.partition import Partition, Replicas

RETRY_MS: Final = 50

IsrAnswers: TypeAlias = Mapping[TopicPartition, IsrAccepted | ErrorCode]


@dataclass(frozen=True, slots=True, eq=False)
class IsrRequest:
    """The content of one AlterPartition request."""

    proposals: Mapping[TopicPartition, IsrProposal]


class IsrChange(NamedTuple):
    """A change of an ISR that is in force: the replicas that joined and those that left."""

    partition: TopicPartition
    joined: frozenset[int]
    left: frozenset[int]


class IsrOutcome(NamedTuple):
    """What the answers to a request have done: the changes, and how many proposals were refused."""

    changes: tuple[IsrChange, ...] = ()
    failures: int = 0


class IsrChanges:
    """The proposals that wait, and the request in flight. `propose` is safe for threads, the rest is not."""

    def __init__(self, replicas: Replicas) -> None:
        self._replicas = replicas
        self._waiting: deque[TopicPartition] = deque()
        self._in_flight: IsrRequest | None = None
        self._not_before_ms: int | None = None

    def propose(self, key: TopicPartition) -> None:
        """A partition proposes another ISR: send what it proposes when its turn comes."""
        self._waiting.append(key)

    def idle_ms(self, now_ms: int) -> int | None:
        """The milliseconds until there is something to send; None if only an event changes that."""
        if self._in_flight is not None or not self._waiting:
            return None
        return 0 if self._not_before_ms is None else max(0, self._not_before_ms - now_ms)

    def next_request(self, now_ms: int) -> IsrRequest | None:
        """What is to be sent now, which then is in flight; None if there is nothing."""
        if self.idle_ms(now_ms) != 0:
            return None
        self._not_before_ms = None
        proposals: dict[TopicPartition, IsrProposal] = {}
        while self._waiting:
            key = self._waiting.popleft()
            partition = self._replicas.partitions.get(key)
            wanted = None if partition is None else proposal(partition.state)
            if wanted is not None:
                proposals[key] = wanted
        if not proposals:
            return None
        self._in_flight = IsrRequest(proposals)
        return self._in_flight

    def answered(self, request: IsrRequest, answers: IsrAnswers) -> IsrOutcome:
        """Apply the answers to the request in flight. A partition that they leave out is sent again."""
        if request is not self._in_flight:
            return IsrOutcome()
        self._in_flight = None
        changes: list[IsrChange] = []
        failures = 0
        for key, sent in request.proposals.items():
            partition, answer = self._replicas.partitions.get(key), answers.get(key)
            if partition is None:
                continue
            if answer is None:
                self.propose(key)
                continue
            done = take_answer(partition, sent, answer)
            if done.outcome is ProposalOutcome.COMMITTED:
                changes.append(IsrChange(key, done.joined, done.left))
            elif done.outcome is not ProposalOutcome.IGNORED:
                failures += 1
            if done.outcome is ProposalOutcome.RETRY:
                self.propose(key)
        return IsrOutcome(tuple(changes), failures)

    def failed(self, request: IsrRequest, now_ms: int) -> None:
        """The request in flight has failed as a whole: all of it is sent again, after a pause."""
        if request is not self._in_flight:
            return
        self._in_flight = None
        self._not_before_ms = now_ms + RETRY_MS
        self._waiting.extendleft(reversed([*request.proposals]))


def check_isr(replicas: Replicas, now_ms: int) -> None:
    """Let every partition that this broker leads propose to remove the followers that are not caught up.

    To be called every half of `replica.lag.time.max.ms`.
    """
    for partition in replicas.partitions.values():
        propose_shrink(partition, now_ms)


# Changes of a partition's ISR by its leader: proposes a shrink, and applies an answer of the controller.
# Rules: Kafka's `Partition.maybeShrinkIsr` and `handleAlterPartitionUpdate`. `isr` and `alter_partition`
# decide, and this applies their decisions to a `Partition` under its locks. `Partition.record_fetch` proposes
# expansions.


class Answered(NamedTuple):
    """What an answer of the controller has done: the outcome, and which replicas joined and left."""

    outcome: ProposalOutcome
    joined: frozenset[int] = frozenset()
    left: frozenset[int] = frozenset()


def propose_shrink(partition: Partition, now_ms: int) -> None:
    """Propose to remove the followers that are not caught up, if there are any.

    `now_ms` is the time of the replicas' clock.
    """
    if len(partition.state.isr.committed) < 2:  # without followers in it
        return
    context = partition.context
    with partition.lock:
        log, isr = partition.log, partition.state.isr
        if log.closed:
            return  # its directory has failed
        end_offset, lag_ms = log.log_end_offset, context.max_lag_ms
        proposed = shrunk(isr, context.broker_id, partition.followers, end_offset, now_ms, lag_ms)
        if proposed is not None:
            partition.propose_isr(proposed)


def take_answer(partition: Partition, sent: IsrProposal, answer: IsrAccepted | ErrorCode) -> Answered:
    """Apply the controller's answer to a proposal. If the ISR changes, the high watermark may move."""
    with partition.lock, partition.log.lock:
        before = partition.state
        state, outcome = after_answer(before, sent, answer)
        partition.state = state
        if outcome is not ProposalOutcome.COMMITTED:
            return Answered(outcome)
        partition.advance_high_watermark()
    old, new = frozenset(before.isr.committed), frozenset(state.isr.committed)
    return Answered(outcome, new - old, old - new)
