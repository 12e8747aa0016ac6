"""The high watermark of a leader waits for every replica that counts and never goes back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.replication.follower import FollowerState, is_caught_up
from klog.replication.high_watermark import low_watermark, next_high_watermark
from klog.replication.isr import IsrState

MAX_LAG_MS = 30_000
NOW_MS = 1_000_000
ALIVE = (1, 2, 3)


def move(
    followers: dict[int, FollowerState],
    isr: IsrState,
    *,
    high_watermark=0,
    leader_end_offset=10,
    min_in_sync_replicas=1,
    alive=ALIVE,
) -> int:
    return next_high_watermark(
        high_watermark,
        leader_end_offset,
        isr,
        followers,
        min_in_sync_replicas=min_in_sync_replicas,
        alive=alive,
        now_ms=NOW_MS,
        max_lag_ms=MAX_LAG_MS,
    )


def test_it_is_the_smallest_end_of_the_in_sync_replicas() -> None:
    followers = {2: FollowerState(7), 3: FollowerState(4)}
    assert move(followers, IsrState((1, 2, 3))) == 4
    assert move(followers, IsrState((1, 2))) == 7
    assert move(followers, IsrState((1,))) == 10


def test_it_waits_for_a_member_that_was_never_heard_of() -> None:
    assert move({2: FollowerState()}, IsrState((1, 2)), high_watermark=3) == 3


def test_it_waits_for_a_replica_that_may_have_joined_and_one_that_may_not_have_left() -> None:
    followers = {2: FollowerState(7)}
    assert move(followers, IsrState((1,), (1, 2))) == 7
    assert move(followers, IsrState((1, 2), (1,))) == 7


@pytest.mark.parametrize(
    ("silent_ms", "alive", "expected"), [(MAX_LAG_MS, ALIVE, 7), (MAX_LAG_MS + 1, ALIVE, 10), (0, (1,), 10)]
)
def test_it_waits_for_a_live_follower_that_is_about_to_join(
    silent_ms: int, alive: tuple[int, ...], expected: int
) -> None:
    followers = {2: FollowerState(7, last_caught_up_ms=NOW_MS - silent_ms)}
    assert move(followers, IsrState((1,)), alive=alive) == expected


def test_it_stays_while_too_few_replicas_are_in_sync() -> None:
    followers = {2: FollowerState(9)}
    assert move(followers, IsrState((1,)), high_watermark=3, min_in_sync_replicas=2) == 3
    assert move(followers, IsrState((1,), (1, 2)), high_watermark=3, min_in_sync_replicas=2) == 3
    assert move(followers, IsrState((1, 2)), high_watermark=3, min_in_sync_replicas=2) == 9


MEMBERS = st.sets(st.integers(2, 5)).map(lambda others: (1, *sorted(others)))


@given(
    followers=st.dictionaries(
        st.integers(2, 5),
        st.builds(
            FollowerState,
            end_offset=st.integers(-1, 20),
            last_caught_up_ms=st.integers(NOW_MS - 2 * MAX_LAG_MS, NOW_MS),
        ),
        max_size=4,
    ),
    committed=MEMBERS,
    pending=st.none() | MEMBERS,
    high_watermark=st.integers(0, 20),
    leader_end_offset=st.integers(0, 20),
    min_in_sync_replicas=st.integers(1, 3),
    alive=st.sets(st.integers(1, 5)),
)
def test_it_never_goes_back_and_never_passes_anybody_who_counts(
    followers, committed, pending, high_watermark, leader_end_offset, min_in_sync_replicas, alive
) -> None:
    isr = IsrState(committed, pending)
    after = move(
        followers,
        isr,
        high_watermark=high_watermark,
        leader_end_offset=leader_end_offset,
        min_in_sync_replicas=min_in_sync_replicas,
        alive=alive,
    )
    assert after >= high_watermark
    if after == high_watermark:
        return
    assert len(committed) >= min_in_sync_replicas
    assert after <= leader_end_offset
    for replica, follower in followers.items():
        joins = replica in alive and is_caught_up(follower, leader_end_offset, NOW_MS, MAX_LAG_MS)
        if replica in committed or replica in (pending or ()) or joins:
            assert follower.end_offset >= after


def test_the_low_watermark_is_the_smallest_start_of_the_leader_and_live_followers() -> None:
    followers = {2: FollowerState(start_offset=3), 3: FollowerState(start_offset=1)}
    assert low_watermark(5, followers, (1, 2, 3)) == 1
    assert low_watermark(5, followers, (1, 2)) == 3
    assert low_watermark(2, followers, (1, 2)) == 2
    assert low_watermark(2, {2: FollowerState()}, (2,)) == -1
