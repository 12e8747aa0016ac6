"""Several things are worked on at a time, and their results keep their order."""

from __future__ import annotations

import threading

import pytest

from klog.jobs.threads import side_by_side


@pytest.mark.parametrize("threads", [0, 1, 2, 5])
def test_results_keep_the_order_of_their_items(threads: int) -> None:
    assert list(side_by_side(threads, str, range(7))) == ["0", "1", "2", "3", "4", "5", "6"]


def test_as_many_items_are_worked_on_at_a_time_as_there_are_threads() -> None:
    both = threading.Barrier(2)
    assert sorted(side_by_side(2, lambda _: both.wait(timeout=30), "ab")) == [0, 1]


@pytest.mark.parametrize(("threads", "items"), [(1, "ab"), (4, "a")])
def test_what_needs_no_other_thread_runs_in_that_of_the_caller(threads: int, items: str) -> None:
    assert set(side_by_side(threads, lambda _: threading.get_ident(), items)) == {threading.get_ident()}


@pytest.mark.parametrize("threads", [1, 2])
def test_an_error_is_raised_at_its_item(threads: int) -> None:
    results = side_by_side(threads, int, ["1", "x", "3"])
    assert next(results) == 1
    with pytest.raises(ValueError, match="x"):
        next(results)
