"""Which part of a log can be cleaned, which log to clean next, which segments belong together."""

from __future__ import annotations

import pytest

from klog.config.topic import default_topic_config
from klog.formats.names import TopicPartition
from klog.storage.cleaner.selection import Limit, Reason, dirtiest, dirty_log, group_segments
from klog.storage.cleaner.view import LogView, SegmentView

NOW_MS = 1_000_000


def segment(base: int, size: int = 100, *, newest_ms: int = 0, first_ms: int = 0, **more: int) -> SegmentView:
    return SegmentView(base, size, 0, newest_ms, first_ms, **more)


def log(
    *segments: SegmentView, start: int = 0, end: int = 100, stable: int | None = None, **config: str
) -> LogView:
    configs = {"cleanup.policy": "compact"} | {
        name.replace("_", "."): value for name, value in config.items()
    }
    return LogView(
        TopicPartition("t", 0),
        "t-0",
        default_topic_config(configs),
        segments,
        start,
        end,
        end if stable is None else stable,
    )


FOUR = (segment(0), segment(10), segment(20), segment(30))


def test_without_a_checkpoint_all_is_dirty_up_to_the_active_segment() -> None:
    dirty = dirty_log(log(*FOUR), None, NOW_MS)
    assert (dirty.first_dirty_offset, dirty.first_uncleanable_offset) == (0, 30)
    assert (dirty.clean_bytes, dirty.cleanable_bytes, dirty.ratio) == (0, 300, 1.0)
    assert dirty.limit is Limit.ACTIVE_SEGMENT
    assert dirty.reason is None


def test_segments_below_the_checkpoint_are_clean() -> None:
    dirty = dirty_log(log(*FOUR), 20, NOW_MS)
    assert (dirty.clean_bytes, dirty.cleanable_bytes) == (200, 100)
    assert dirty.ratio == pytest.approx(1 / 3)
    assert dirty.reason is Reason.BELOW_RATIO


def test_a_partly_dirty_segment_counts_as_both() -> None:
    dirty = dirty_log(log(*FOUR), 15, NOW_MS)
    assert (dirty.clean_bytes, dirty.cleanable_bytes) == (200, 200)


def test_the_ratio_must_be_above_the_minimum() -> None:
    assert dirty_log(log(*FOUR[1:]), 20, NOW_MS).reason is Reason.BELOW_RATIO
    assert dirty_log(log(*FOUR[1:], min_cleanable_dirty_ratio="0.49"), 20, NOW_MS).reason is None


@pytest.mark.parametrize(("checkpoint", "start"), [(5, 10), (101, 10)])
def test_a_checkpoint_outside_of_the_log_is_reset_to_its_start(checkpoint: int, start: int) -> None:
    dirty = dirty_log(log(*FOUR[1:], start=start), checkpoint, NOW_MS)
    assert (dirty.first_dirty_offset, dirty.reset_checkpoint) == (start, True)


def test_a_checkpoint_at_the_end_is_not_reset() -> None:
    assert not dirty_log(log(*FOUR), 100, NOW_MS).reset_checkpoint


def test_nothing_beyond_the_last_stable_offset_is_cleaned_and_whole_segments_are() -> None:
    dirty = dirty_log(log(*FOUR, stable=25), None, NOW_MS)
    assert (dirty.first_uncleanable_offset, dirty.limit) == (20, Limit.LAST_STABLE_OFFSET)
    assert dirty.cleanable_bytes == 200


def test_the_minimum_lag_holds_back_from_the_first_segment_with_a_younger_record() -> None:
    segments = (segment(0, newest_ms=100), segment(10, newest_ms=999_900), segment(20), segment(30))
    dirty = dirty_log(log(*segments, min_compaction_lag_ms="200"), None, NOW_MS)
    assert (dirty.first_uncleanable_offset, dirty.limit) == (10, Limit.MIN_COMPACTION_LAG)
    at_the_lag = dirty_log(log(*segments, min_compaction_lag_ms="100"), None, NOW_MS)
    assert at_the_lag.first_uncleanable_offset == 30


def test_a_log_that_cannot_be_cleaned_has_a_reason() -> None:
    assert dirty_log(log(*FOUR, stable=5), None, NOW_MS).reason is Reason.HELD_BACK
    assert dirty_log(log(*FOUR), 30, NOW_MS).reason is Reason.NOTHING_DIRTY
    assert dirty_log(log(segment(0, 0)), None, NOW_MS).reason is Reason.EMPTY
    assert dirty_log(log(*FOUR, cleanup_policy="delete"), None, NOW_MS).reason is Reason.NOT_COMPACTED


def test_an_exceeded_maximum_lag_cleans_at_any_ratio() -> None:
    segments = (segment(0, 10_000), segment(10, first_ms=500_000), segment(20))
    overdue = dirty_log(log(*segments, max_compaction_lag_ms="400000"), 10, NOW_MS)
    assert (overdue.compaction_delay_ms, overdue.reason) == (100_000, None)
    in_time = dirty_log(log(*segments, max_compaction_lag_ms="500000"), 10, NOW_MS)
    assert (in_time.compaction_delay_ms, in_time.reason) == (0, Reason.BELOW_RATIO)


def test_the_dirtiest_log_comes_first_of_those_that_can_be_cleaned() -> None:
    half = dirty_log(log(*FOUR, min_cleanable_dirty_ratio="0.1"), 20, NOW_MS)
    full = dirty_log(log(*FOUR), None, NOW_MS)
    held = dirty_log(log(*FOUR, stable=0), None, NOW_MS)
    assert dirtiest([half, held, full]) is full
    assert dirtiest([held]) is None


def groups(*segments: SegmentView, size: int = 1000, index: int = 1000, end: int = 100) -> list[list[int]]:
    found = group_segments(segments, segment_bytes=size, index_bytes=index, first_uncleanable_offset=end)
    return [[one.base_offset for one in group] for group in found]


def test_neighbours_are_grouped_up_to_the_segment_size() -> None:
    assert groups(*FOUR, size=250) == [[0, 10], [20, 30]]
    assert groups(*FOUR, size=400) == [[0, 10, 20, 30]]
    assert groups(*FOUR, size=1) == [[0], [10], [20], [30]]


def test_each_index_limits_a_group_too() -> None:
    offsets = [segment(base, offset_index_bytes=40) for base in (0, 10, 20)]
    times = [segment(base, time_index_bytes=60) for base in (0, 10, 20)]
    assert groups(*offsets, index=80) == [[0, 10], [20]]
    assert groups(*times, index=119) == [[0], [10], [20]]


def test_offsets_of_a_group_must_fit_one_index() -> None:
    far = 2**31
    assert groups(segment(0), segment(10), segment(far), end=far + 5) == [[0, 10], [far]]
    assert groups(segment(0), segment(10), segment(far - 5), end=far) == [[0, 10, far - 5]]
    assert groups(segment(0), segment(far, 0), end=far + 5) == [[0, far]]
