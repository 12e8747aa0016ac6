"""What a leader learns of a follower from its fetches, by Kafka's caught-up rules."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.replication.follower import (
    NEVER_MS,
    FollowerFetch,
    FollowerState,
    after_fetch,
    at_epoch_start,
    is_caught_up,
)

FOLLOWER = 2
MAX_LAG_MS = 30_000
NOW_MS = 1_000_000

OFFSETS = st.integers(0, 20)


def fetch(now_ms: int = NOW_MS) -> FollowerFetch:
    return FollowerFetch(FOLLOWER, 5, now_ms)


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
