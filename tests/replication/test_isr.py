"""The ISR shrinks and grows by Kafka's rules, one proposal at a time."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.protocol.error_codes import ErrorCode
from klog.replication.alter_partition import IsrAccepted, IsrProposal, Outcome, after_answer, proposal
from klog.replication.follower import (
    NEVER_MS,
    FollowerFetch,
    FollowerState,
    after_fetch,
    at_epoch_start,
    is_caught_up,
)
from klog.replication.isr import IsrState, expanded, shrunk
from klog.replication.partition_state import Assignment, PartitionState

LEADER, FOLLOWER = 1, 2
MAX_LAG_MS = 30_000
NOW_MS = 1_000_000

OFFSETS = st.integers(0, 20)
TIMES = st.integers(0, 2 * MAX_LAG_MS)


def fetch(now_ms: int = NOW_MS) -> FollowerFetch:
    return FollowerFetch(FOLLOWER, 5, now_ms)


# -- a follower's progress -----------------------------------------------------------------------------------


def test_a_fetch_from_the_leader_s_end_is_caught_up_now() -> None:
    follower = after_fetch(FollowerState(), fetch(), 10, 3, 10)
    assert follower == FollowerState(10, 3, NOW_MS, 10, NOW_MS, 5)


def test_a_fetch_from_where_the_leader_ended_at_the_fetch_before_was_caught_up_then() -> None:
    first = after_fetch(FollowerState(), fetch(), 5, 0, 10)
    assert first.last_caught_up_ms == NEVER_MS
    second = after_fetch(first, fetch(NOW_MS + 400), 10, 0, 15)
    assert second.last_caught_up_ms == NOW_MS


def test_a_fetch_from_further_behind_changes_nothing_of_when_it_was_caught_up() -> None:
    first = after_fetch(FollowerState(), fetch(), 10, 0, 10)
    later = after_fetch(first, fetch(NOW_MS + 400), 9, 0, 15)
    assert later.last_caught_up_ms == NOW_MS


@given(st.lists(st.tuples(st.integers(0, 1_000), OFFSETS, OFFSETS), max_size=20))
def test_the_time_of_being_caught_up_never_goes_back_nor_ahead(steps: list[tuple[int, int, int]]) -> None:
    follower, now_ms = FollowerState(), NOW_MS
    for passed_ms, offset, leader_end in steps:
        now_ms += passed_ms
        before, follower = follower, after_fetch(follower, fetch(now_ms), offset, 0, leader_end)
        assert before.last_caught_up_ms <= follower.last_caught_up_ms <= now_ms
        assert follower.leader_end_at_last_fetch >= before.leader_end_at_last_fetch


@pytest.mark.parametrize(
    ("end_offset", "silent_ms", "expected"),
    [(10, 10 * MAX_LAG_MS, True), (9, MAX_LAG_MS, True), (9, MAX_LAG_MS + 1, False)],
)
def test_caught_up_is_at_the_end_or_less_than_the_lag_time_ago(
    end_offset: int, silent_ms: int, expected: bool
) -> None:
    follower = FollowerState(end_offset, last_caught_up_ms=NOW_MS - silent_ms)
    assert is_caught_up(follower, 10, NOW_MS, MAX_LAG_MS) == expected


def test_a_follower_that_never_fetched_is_not_caught_up_however_young_the_clock_is() -> None:
    assert not is_caught_up(FollowerState(), 10, 0, MAX_LAG_MS)


def test_an_epoch_starts_with_the_isr_caught_up_and_others_not() -> None:
    followers = at_epoch_start((2, 3), (1, 2), {}, 7, NOW_MS)
    assert followers == {
        2: FollowerState(last_caught_up_ms=NOW_MS),
        3: FollowerState(last_caught_up_ms=NEVER_MS),
    }


def test_a_leader_that_is_elected_again_keeps_its_followers_offsets() -> None:
    known = {2: FollowerState(5, 1, 10, 6, 10, 4), 3: FollowerState(6, 2, 20, 6, 20, 4)}
    followers = at_epoch_start((2, 3, 4), (1, 2), known, 7, NOW_MS)
    assert followers == {
        2: FollowerState(5, 1, NOW_MS, 7, NOW_MS, 4),
        3: FollowerState(6, 2, NEVER_MS, 7, NEVER_MS, 4),
        4: FollowerState(),
    }


# -- shrinking and expanding ---------------------------------------------------------------------------------


def test_all_that_may_be_in_sync_is_what_is_confirmed_and_what_is_proposed() -> None:
    assert IsrState((1, 2)).maximal == (1, 2)
    assert IsrState((1, 2), (1, 2, 3)).maximal == (1, 2, 3)
    assert IsrState((1, 2, 3), (1,)).maximal == (1, 2, 3)


def test_a_member_is_removed_when_it_has_not_caught_up_for_the_lag_time() -> None:
    followers = {
        2: FollowerState(9, last_caught_up_ms=NOW_MS),
        3: FollowerState(9, last_caught_up_ms=NOW_MS - 1),
    }
    isr = IsrState((3, 1, 2))
    assert shrunk(isr, LEADER, followers, 10, NOW_MS + MAX_LAG_MS - 1, MAX_LAG_MS) is None
    assert shrunk(isr, LEADER, followers, 10, NOW_MS + MAX_LAG_MS, MAX_LAG_MS) == IsrState((3, 1, 2), (1, 2))


def test_a_member_that_the_leader_knows_nothing_of_is_removed() -> None:
    assert shrunk(IsrState((1, 2)), LEADER, {}, 10, NOW_MS, MAX_LAG_MS) == IsrState((1, 2), (1,))


FOLLOWERS = st.dictionaries(
    st.integers(2, 5),
    st.builds(FollowerState, end_offset=st.integers(-1, 20), last_caught_up_ms=TIMES),
    max_size=4,
)
ISRS = st.sets(st.integers(2, 5)).map(lambda others: (LEADER, *sorted(others)))


@given(ISRS, FOLLOWERS, OFFSETS, TIMES)
def test_a_shrink_keeps_the_leader_and_all_that_are_caught_up_and_is_proposed_once(
    isr: tuple[int, ...], followers: dict[int, FollowerState], leader_end: int, now_ms: int
) -> None:
    after = shrunk(IsrState(isr), LEADER, followers, leader_end, now_ms, MAX_LAG_MS)
    kept = isr if after is None else after.pending
    assert kept is not None
    assert kept[0] == LEADER
    for replica in isr[1:]:
        known = followers.get(replica)
        in_sync = known is not None and (
            known.end_offset == leader_end or now_ms - known.last_caught_up_ms <= MAX_LAG_MS
        )
        assert (replica in kept) == in_sync
    if after is not None:
        assert after.maximal == isr, "until the controller agrees nobody has left"
        assert shrunk(after, LEADER, followers, leader_end, now_ms, MAX_LAG_MS) is None


def join(
    isr: IsrState, end_offset: int, *, high_watermark=10, epoch_start_offset=5, eligible=(1, 2, 3)
) -> IsrState | None:
    return expanded(
        isr,
        3,
        FollowerState(end_offset),
        high_watermark=high_watermark,
        epoch_start_offset=epoch_start_offset,
        eligible=eligible,
    )


def test_a_follower_joins_when_it_has_all_committed_records() -> None:
    assert join(IsrState((1, 2)), 9) is None
    assert join(IsrState((1, 2)), 10) == IsrState((1, 2), (1, 2, 3))


def test_a_follower_joins_when_it_has_all_that_was_there_when_the_epoch_began() -> None:
    assert join(IsrState((1, 2)), 11, epoch_start_offset=12) is None
    assert join(IsrState((1, 2)), 12, epoch_start_offset=12) is not None


def test_nobody_joins_who_may_not_or_is_there_or_while_a_proposal_is_pending() -> None:
    assert join(IsrState((1, 2)), 10, eligible=(1, 2)) is None
    assert join(IsrState((1, 3)), 10) is None
    assert join(IsrState((1, 2), (1,)), 10) is None


# -- the answer of the controller ----------------------------------------------------------------------------

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
    assert outcome is Outcome.COMMITTED
    assert after == replace(STATE, partition_epoch=partition_epoch, isr=IsrState((1, 2, 3)))


@pytest.mark.parametrize("answer", [IsrAccepted(5, 8, (1, 2, 3)), IsrAccepted(4, 6, (1, 2, 3))])
def test_an_answer_from_another_epoch_leaves_the_proposal_pending(answer: IsrAccepted) -> None:
    assert after_answer(STATE, SENT, answer) == (STATE, Outcome.WAIT)


@pytest.mark.parametrize("error", [ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INELIGIBLE_REPLICA])
def test_a_proposal_that_was_not_tried_is_dropped(error: ErrorCode) -> None:
    assert after_answer(STATE, SENT, error) == (replace(STATE, isr=IsrState((1, 2))), Outcome.ROLLED_BACK)


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (ErrorCode.FENCED_LEADER_EPOCH, Outcome.WAIT),
        (ErrorCode.INVALID_UPDATE_VERSION, Outcome.WAIT),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, Outcome.WAIT),
        (ErrorCode.UNKNOWN_TOPIC_ID, Outcome.WAIT),
        (ErrorCode.INVALID_REQUEST, Outcome.WAIT),
        (ErrorCode.NOT_CONTROLLER, Outcome.RETRY),
        (ErrorCode.UNKNOWN_SERVER_ERROR, Outcome.RETRY),
    ],
)
def test_other_errors_leave_the_proposal_pending(error: ErrorCode, outcome: Outcome) -> None:
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
    assert after_answer(now, SENT, answer) == (now, Outcome.IGNORED)
