"""What retention deletes: pure decisions, and the log afterwards."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.storage.log.retention import Extent, apply_retention, deletable
from tests.storage.log.building import NOW_MS, append, batch, config, fill, new_log

DAY_MS = 86_400_000


def extents(*sizes: int, ages_ms: tuple[int, ...] = ()) -> list[Extent]:
    """Segments of ten offsets each."""
    ages = ages_ms or (0,) * len(sizes)
    return [
        Extent(10 * n, 10 * n + 10, size, NOW_MS - age)
        for n, (size, age) in enumerate(zip(sizes, ages, strict=True))
    ]


def decided(found: list[Extent], *, start: int = 0, high_watermark: int = 10**9, **overrides: str) -> int:
    return deletable(
        found, config(**overrides), log_start_offset=start, high_watermark=high_watermark, now_ms=NOW_MS
    )


@pytest.mark.parametrize(("start", "count"), [(0, 0), (9, 0), (10, 1), (29, 2), (30, 2)])
def test_segments_below_the_log_start_are_deleted_but_never_the_last(start: int, count: int) -> None:
    assert decided(extents(5, 5, 5), start=start) == count
    assert decided(extents(5, 5, 5), start=start, cleanup_policy="compact") == count


@pytest.mark.parametrize(("limit", "count"), [(-1, 0), (0, 3), (4, 2), (5, 2), (6, 1), (10, 1), (11, 0)])
def test_size_never_goes_below_its_limit(limit: int, count: int) -> None:
    assert decided(extents(5, 5, 5), retention_bytes=str(limit), retention_ms="-1") == count


def test_time_deletes_what_is_older_oldest_first_until_one_is_not() -> None:
    found = extents(5, 5, 5, 5, ages_ms=(DAY_MS + 1, DAY_MS + 1, DAY_MS, DAY_MS + 1))
    assert decided(found, retention_ms=str(DAY_MS)) == 2
    assert decided(found, retention_ms="-1") == 0


def test_a_compacted_log_keeps_old_and_large_segments() -> None:
    found = extents(5, 5, ages_ms=(10 * DAY_MS, 10 * DAY_MS))
    assert decided(found, cleanup_policy="compact", retention_ms="1", retention_bytes="0") == 0
    assert decided(found, cleanup_policy="compact,delete", retention_ms="1") == 2


@pytest.mark.parametrize(("high_watermark", "count"), [(0, 0), (9, 0), (10, 1), (25, 2), (30, 3)])
def test_nothing_is_deleted_that_is_not_below_the_high_watermark(high_watermark: int, count: int) -> None:
    found = extents(5, 5, 5, ages_ms=(DAY_MS,) * 3)
    assert decided(found, high_watermark=high_watermark, retention_ms="1") == count


def test_an_empty_last_segment_stays() -> None:
    assert decided(extents(5, 0, ages_ms=(DAY_MS, DAY_MS)), retention_ms="1") == 1
    assert decided(extents(0, ages_ms=(DAY_MS,)), retention_ms="1", retention_bytes="0") == 0


@given(sizes=st.lists(st.integers(1, 50), min_size=1, max_size=8), limit=st.integers(0, 200))
def test_at_least_retention_bytes_remain_and_one_segment_more_would_be_too_few(
    sizes: list[int], limit: int
) -> None:
    count = decided(extents(*sizes), retention_bytes=str(limit), retention_ms="-1")
    if count:
        assert sum(sizes[count:]) >= limit
    if count < len(sizes) and sum(sizes) >= limit:
        assert sum(sizes[count + 1 :]) < limit


def test_when_everything_is_too_old_the_log_rolls_and_goes_on_where_it_ended(tmp_path: Path) -> None:
    log = new_log(tmp_path, {"retention.ms": "1000", "segment.bytes": str(2 * len(batch()))})
    fill(log, 5)
    assert apply_retention(log, NOW_MS + 1001) == 3
    assert (log.log_start_offset, log.log_end_offset, log.segments.bases) == (5, 5, [5])
    assert append(log, batch()).first_offset == 5
    assert apply_retention(log, NOW_MS + 1000) == 0


def test_a_segment_without_timestamps_is_as_old_as_its_file(tmp_path: Path) -> None:
    log = new_log(tmp_path, {"retention.ms": "1000"})
    fill(log, 1, timestamp=-1)
    modified_ms = log.segments.active.modified_ms()
    assert apply_retention(log, modified_ms + 1000) == 0
    assert apply_retention(log, modified_ms + 1001) == 1
