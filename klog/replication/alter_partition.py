"""The change that a leader proposes with AlterPartition, and the effect of the answer on the ISR.

Rules: Kafka's `Partition.submitAlterPartition` and `handleAlterPartitionUpdate`. These are pure functions of
`PartitionState`; sending and retrying is left to the caller.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from klog.protocol.error_codes import ErrorCode
from klog.replication.isr import IsrState
from klog.replication.partition_state import PartitionState


@dataclass(frozen=True, slots=True)
class IsrProposal:
    """An ISR that the leader of an epoch proposes; it replaces the state with this partition epoch."""

    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class IsrAccepted:
    """The partition's state at the controller, in an answer without an error."""

    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]


class ProposalOutcome(Enum):
    """What an answer means for the proposal."""

    COMMITTED = "the controller has this ISR"
    ROLLED_BACK = "the proposal is dropped, the ISR is as it was"
    WAIT = "the proposal stays pending until a LeaderAndIsr request replaces the state"
    RETRY = "the same proposal is sent again"
    IGNORED = "the answer is about a proposal that is not the present one"


_ROLLED_BACK: Final = frozenset((ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INELIGIBLE_REPLICA))
_WAIT: Final = frozenset(
    (
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INVALID_REQUEST,
    )
)


def proposal(state: PartitionState) -> IsrProposal | None:
    """What the leader has to send; None if no change of the ISR is pending."""
    if not state.is_leader or state.isr.pending is None:
        return None
    return IsrProposal(state.leader_epoch, state.partition_epoch, state.isr.pending)


def after_answer(
    state: PartitionState, sent: IsrProposal, answer: IsrAccepted | ErrorCode
) -> tuple[PartitionState, ProposalOutcome]:
    """The state after the answer to `sent`, which is an accepted state or the partition's error.

    A LeaderAndIsr request that came in between has replaced the proposal; then the answer changes nothing.
    """
    if proposal(state) != sent:
        return state, ProposalOutcome.IGNORED
    if isinstance(answer, ErrorCode):
        if answer in _ROLLED_BACK:
            return replace(state, isr=IsrState(state.isr.committed)), ProposalOutcome.ROLLED_BACK
        return state, ProposalOutcome.WAIT if answer in _WAIT else ProposalOutcome.RETRY
    if answer.leader_epoch != state.leader_epoch or answer.partition_epoch < state.partition_epoch:
        return state, ProposalOutcome.WAIT
    committed = replace(state, partition_epoch=answer.partition_epoch, isr=IsrState(answer.isr))
    return committed, ProposalOutcome.COMMITTED
