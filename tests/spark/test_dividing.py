"""Splits to tasks: neighbours share one until it is full, and the tasks are even."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from klog.replicas.splits import Split
from klog.spark.dividing import OPENING_BYTES, cost_bytes, divide_splits

TARGET_BYTES = 64 << 20


def splits_of(lengths: list[int]) -> list[Split]:
    return [
        Split(number, "t", 0, "f", number, 0, length, number, number + 1)
        for number, length in enumerate(lengths)
    ]


@given(
    st.lists(st.integers(0, 90 << 20), max_size=60),
    st.none() | st.integers(1, 80),
    st.integers(1 << 20, 128 << 20),
)
def test_every_split_is_in_one_task_and_in_order(lengths: list[int], least: int | None, target: int) -> None:
    splits = splits_of(lengths)
    tasks = divide_splits(reversed(splits), target, least)
    assert [split for task in tasks for split in task] == splits
    assert all(tasks)
    assert len(tasks) >= min(least or 0, len(splits))


@given(st.lists(st.integers(0, TARGET_BYTES), min_size=1, max_size=200))
def test_no_task_is_more_than_half_a_split_beyond_the_target(lengths: list[int]) -> None:
    for task in divide_splits(splits_of(lengths), TARGET_BYTES):
        assert sum(map(cost_bytes, task)) <= 1.5 * (TARGET_BYTES + OPENING_BYTES)


def test_a_thousand_tiny_segments_are_a_few_tasks_and_not_one() -> None:
    tasks = divide_splits(splits_of([100] * 1000), TARGET_BYTES)
    sizes = [len(task) for task in tasks]
    assert len(sizes) == 16
    assert max(sizes[:-1]) - min(sizes[:-1]) <= 1


def test_splits_of_the_target_size_have_a_task_each() -> None:
    assert len(divide_splits(splits_of([TARGET_BYTES] * 7), TARGET_BYTES)) == 7


def test_no_splits_are_no_tasks() -> None:
    assert divide_splits([], TARGET_BYTES, 4) == []
