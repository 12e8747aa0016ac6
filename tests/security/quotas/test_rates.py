"""Windowed rates, token buckets, and the times for which they throttle."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from klog.security.quotas.rates import (
    MOST_THROTTLE_MS,
    TokenBucket,
    WindowedSamples,
    bucket_throttle_ms,
    rate_throttle_ms,
)

START_MS = 1_700_000_000_000

# Waiting times and values of a history.
events = st.lists(st.tuples(st.integers(0, 15_000), st.integers(0, 10**9)), min_size=1, max_size=30)


def samples(*recorded: tuple[int, float], windows: int = 11, window_ms: int = 1000) -> WindowedSamples:
    """Samples with values recorded at times after the start."""
    found = WindowedSamples(windows, window_ms)
    for after_ms, value in recorded:
        found.record(value, START_MS + after_ms)
    return found


def test_a_first_value_is_spread_over_all_windows_but_one() -> None:
    assert samples((0, 30112)).rate(START_MS) == 3011.2


def test_the_throttle_time_of_a_first_value_is_what_kafka_gave_for_it() -> None:
    # Seen on a broker: 30,112 bytes at a limit of 1,024 bytes a second.
    assert rate_throttle_ms(samples((0, 30112)), 1024, START_MS) == 19406


def test_the_time_since_the_oldest_sample_counts_beside_the_windows_that_are_missing() -> None:
    # Half a window has gone by, and ten whole ones are assumed.
    assert samples((0, 2100)).rate(START_MS + 500) == 200
    # Ten whole windows have gone by, so none is missing.
    assert samples((0, 5000), (10_200, 100)).rate(START_MS + 10_200) == 500


def test_a_sample_is_forgotten_when_its_last_value_is_as_old_as_all_windows() -> None:
    recorded = samples((0, 8000), (900, 4000))
    assert recorded.total(START_MS + 11_899) == 12_000
    assert recorded.total(START_MS + 11_900) == 0


def test_a_rate_that_equals_the_limit_is_not_throttled() -> None:
    assert rate_throttle_ms(samples((0, 10_000)), 1000, START_MS) == 0
    assert rate_throttle_ms(samples((0, 10_001)), 1000, START_MS) == 1


def test_a_bounded_throttle_time_is_one_window_however_large_the_violation() -> None:
    assert rate_throttle_ms(samples((0, 10**9)), 1, START_MS, 1000) == 1000


def test_a_byte_rate_of_zero_throttles_nobody_and_a_bounded_one_always() -> None:
    assert rate_throttle_ms(samples((0, 10**9)), 0, START_MS) == 0
    assert rate_throttle_ms(samples((0, 1)), 0, START_MS, 1000) == 1000


def test_the_average_is_over_the_values_that_are_kept() -> None:
    recorded = samples((0, 10), (1000, 20), (31_000, 60), windows=2, window_ms=30_000)
    assert recorded.average(START_MS + 31_000) == 30
    assert recorded.average(START_MS + 61_000) == 60
    assert math.isnan(recorded.average(START_MS + 200_000))


@given(events, st.integers(0, 10**9))
def test_what_is_taken_back_leaves_the_rate_as_it_was(history: list[tuple[int, int]], value: int) -> None:
    recorded, now_ms = _played(history)
    before = recorded.rate(now_ms)
    recorded.record(value, now_ms)
    recorded.record(-value, now_ms)
    assert recorded.rate(now_ms) == before


@given(events, st.integers(1, 10**6), st.integers(0, 10**9))
def test_more_is_never_throttled_for_less(history: list[tuple[int, int]], limit: int, more: int) -> None:
    recorded, now_ms = _played(history)
    before = rate_throttle_ms(recorded, limit, now_ms)
    recorded.record(more, now_ms)
    assert before <= rate_throttle_ms(recorded, limit, now_ms) <= MOST_THROTTLE_MS


@given(events, st.integers(1, 10**6))
def test_without_new_values_the_limit_holds_again_when_all_is_forgotten(
    history: list[tuple[int, int]], limit: int
) -> None:
    recorded, now_ms = _played(history)
    assert rate_throttle_ms(recorded, limit, now_ms + 11_000) == 0


def _played(history: list[tuple[int, int]]) -> tuple[WindowedSamples, int]:
    recorded, now_ms = WindowedSamples(11, 1000), START_MS
    for wait_ms, value in history:
        now_ms += wait_ms
        recorded.record(value, now_ms)
    return recorded, now_ms


# -- token buckets -------------------------------------------------------------------------------------------


def test_a_bucket_begins_full() -> None:
    assert TokenBucket(11, 1000).tokens(2, START_MS) == 22


def test_a_bucket_may_be_overdrawn_and_pays_back_at_its_rate() -> None:
    bucket = TokenBucket(11, 1000)
    assert bucket.take(15, 1, START_MS) == -4
    assert bucket.tokens(1, START_MS + 3000) == -1
    assert bucket.tokens(1, START_MS + 4500) == 0.5
    assert bucket.tokens(1, START_MS + 100_000) == 11


def test_a_bucket_throttles_until_its_debt_is_paid() -> None:
    assert bucket_throttle_ms(-4, 1) == 4000
    assert bucket_throttle_ms(-1, 3) == 333
    assert bucket_throttle_ms(0, 1) == 0
    assert bucket_throttle_ms(-1, 0) == 0


@given(events, st.integers(1, 1000))
def test_a_bucket_gives_no_more_than_what_came_and_its_burst(
    history: list[tuple[int, int]], limit: int
) -> None:
    bucket, now_ms, taken = TokenBucket(11, 1000), START_MS, 0
    for wait_ms, count in history:
        now_ms += wait_ms
        if bucket.tokens(limit, now_ms) >= count:
            bucket.take(count, limit, now_ms)
            taken += count
    assert taken <= limit * (11 + (now_ms - START_MS) / 1000)
