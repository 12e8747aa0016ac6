"""A leader proposes its pending ISR; the answer commits it, drops it or leaves it pending."""

from __future__ import annotations

from dataclasses import replace

import pytest

from klog.protocol.error_codes import ErrorCode
from klog.replication.alter_partition import IsrAccepted, IsrProposal, ProposalOutcome, after_answer, proposal
from klog.replication.isr import IsrState
from klog.replication.partition_state import Assignment, PartitionState

LEADER = 1

STATE = PartitionState(
    LEADER, 4, 7, 2, Assignment((1, 2, 3)), IsrState((1, 2), (1, 2, 3)), is_leader=True, epoch_start_offset=5
)
SENT = IsrProposal(4, 7, (1, 2, 3))


def test_a_leader_proposes_its_pending_isr() -> None:
    assert proposal(STATE) == SENT
    assert proposal(replace(STATE, isr=IsrState((1, 2)))) is None
    assert proposal(PartitionState(leader=2)) is None


@pytest.mark.parametrize("partition_epoch", [7, 8])
def test_an_accepted_proposal_is_the_isr_from_then_on(partition_epoch: int) -> None:
    after, outcome = after_answer(STATE, SENT, IsrAccepted(4, partition_epoch, (1, 2, 3)))
    assert outcome is ProposalOutcome.COMMITTED
    assert after == replace(STATE, partition_epoch=partition_epoch, isr=IsrState((1, 2, 3)))


@pytest.mark.parametrize("answer", [IsrAccepted(5, 8, (1, 2, 3)), IsrAccepted(4, 6, (1, 2, 3))])
def test_an_answer_from_another_epoch_leaves_the_proposal_pending(answer: IsrAccepted) -> None:
    assert after_answer(STATE, SENT, answer) == (STATE, ProposalOutcome.WAIT)


@pytest.mark.parametrize("error", [ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INELIGIBLE_REPLICA])
def test_a_proposal_that_was_not_tried_is_dropped(error: ErrorCode) -> None:
    assert after_answer(STATE, SENT, error) == (
        replace(STATE, isr=IsrState((1, 2))),
        ProposalOutcome.ROLLED_BACK,
    )


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (ErrorCode.FENCED_LEADER_EPOCH, ProposalOutcome.WAIT),
        (ErrorCode.INVALID_UPDATE_VERSION, ProposalOutcome.WAIT),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ProposalOutcome.WAIT),
        (ErrorCode.UNKNOWN_TOPIC_ID, ProposalOutcome.WAIT),
        (ErrorCode.INVALID_REQUEST, ProposalOutcome.WAIT),
        (ErrorCode.NOT_CONTROLLER, ProposalOutcome.RETRY),
        (ErrorCode.UNKNOWN_SERVER_ERROR, ProposalOutcome.RETRY),
    ],
)
def test_other_errors_leave_the_proposal_pending(error: ErrorCode, outcome: ProposalOutcome) -> None:
    assert after_answer(STATE, SENT, error) == (STATE, outcome)


@pytest.mark.parametrize(
    "now",
    [
        replace(STATE, leader_epoch=5),
        replace(STATE, partition_epoch=8),
        replace(STATE, isr=IsrState((1, 2), (1,))),
        replace(STATE, isr=IsrState((1, 2))),
        PartitionState(leader=2, leader_epoch=5),
    ],
)
@pytest.mark.parametrize("answer", [IsrAccepted(4, 8, (1, 2, 3)), ErrorCode.INELIGIBLE_REPLICA])
def test_an_answer_to_what_is_no_longer_proposed_changes_nothing(
    now: PartitionState, answer: IsrAccepted | ErrorCode
) -> None:
    assert after_answer(now, SENT, answer) == (now, ProposalOutcome.IGNORED)
