"""The ISR shrinks and grows by Kafka's rules, one proposal at a time."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from klog.replication.follower import (
    FollowerState,
)
from klog.replication.isr import IsrState, expanded, shrunk

LEADER = 1
MAX_LAG_MS = 30_000
NOW_MS = 1_000_000

OFFSETS = st.integers(0, 20)
TIMES = st.integers(0, 2 * MAX_LAG_MS)


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
