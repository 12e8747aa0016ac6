"""The rate at which replicas are copied is measured over windows and compared with a limit."""

from __future__ import annotations

from klog.replication.quota import ReplicationQuota

START_MS = 5_000_000


def test_without_a_limit_nothing_exceeds_it() -> None:
    quota = ReplicationQuota(lambda: None)
    quota.record(10**12, START_MS)
    assert not quota.exceeded(START_MS)


def test_the_first_window_counts_whole() -> None:
    quota = ReplicationQuota(lambda: 1000)
    quota.record(1000, START_MS)
    assert not quota.exceeded(START_MS)
    quota.record(1, START_MS + 10)
    assert quota.rate(START_MS + 10) == 1001
    assert quota.exceeded(START_MS + 10)


def test_the_rate_falls_with_time_and_old_windows_are_forgotten() -> None:
    quota = ReplicationQuota(lambda: 1000, windows=3)
    quota.record(4000, START_MS)
    assert quota.exceeded(START_MS + 2000)
    assert quota.rate(START_MS + 2500) == 1600
    quota.record(500, START_MS + 2500)
    assert quota.rate(START_MS + 2999) == 4500 * 1000 / 2999
    assert quota.rate(START_MS + 3000) == 500
    assert quota.rate(START_MS + 9000) == 0


def test_a_limit_may_change_at_any_time() -> None:
    limit = [100.0]
    quota = ReplicationQuota(lambda: limit[0])
    quota.record(500, START_MS)
    assert quota.exceeded(START_MS)
    limit[0] = 600
    assert not quota.exceeded(START_MS)


def test_the_limit_holds_for_listed_partitions() -> None:
    quota = ReplicationQuota(lambda: 1, {("t", 0)}.__contains__)
    assert (quota.is_throttled(("t", 0)), quota.is_throttled(("t", 1))) == (True, False)
