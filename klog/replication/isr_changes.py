"""Changes of a partition's ISR by its leader: proposes a shrink, and applies an answer of the controller.

Rules: Kafka's `Partition.maybeShrinkIsr` and `handleAlterPartitionUpdate`. `isr` and `alter_partition`
decide, and this applies their decisions to a `Partition` under its locks. `Partition.record_fetch` proposes
expansions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from klog.formats.names import TopicPartition
from klog.protocol.error_codes import ErrorCode
from klog.replication.alter_partition import IsrAccepted, IsrProposal, ProposalOutcome, after_answer
from klog.replication.isr import shrunk
from klog.replication.partition import Partition, Replicas

IsrAnswers: TypeAlias = Mapping[TopicPartition, IsrAccepted | ErrorCode]


@dataclass(frozen=True, slots=True, eq=False)
class IsrRequest:
    """The content of one AlterPartition request."""

    proposals: Mapping[TopicPartition, IsrProposal]


def check_isr(replicas: Replicas, now_ms: int) -> None:
    """Let every partition that this broker leads propose to remove the followers that are not caught up.

    To be called every half of `replica.lag.time.max.ms`.
    """
    for partition in replicas.partitions.values():
        propose_shrink(partition, now_ms)


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
