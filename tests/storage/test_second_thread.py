"""A second thread does what it is given in order, and its results are those of the work."""

from __future__ import annotations

import threading

import pytest

from klog.jobs.second_thread import SecondThread


def test_work_is_done_in_order_in_one_other_thread() -> None:
    done: list[tuple[int, str]] = []
    with SecondThread("aside") as second:
        results = [
            second.give(lambda n=each: done.append((n, threading.current_thread().name)) or n)
            for each in range(5)
        ]
        assert [result() for result in reversed(results)] == [4, 3, 2, 1, 0]
    assert done == [(each, "aside") for each in range(5)]


def test_an_error_is_raised_where_the_result_is_asked_for_and_the_thread_goes_on() -> None:
    with SecondThread("aside") as second:
        bad, good = second.give(int, "x"), second.give(int, "3")
        assert good() == 3
        with pytest.raises(ValueError, match="x"):
            bad()


def test_the_end_of_the_block_waits_for_what_was_given() -> None:
    may_go_on = threading.Event()
    done: list[int] = []
    with SecondThread("aside") as second:
        second.give(may_go_on.wait, 30)
        second.give(done.append, 1)
        may_go_on.set()
    assert done == [1]
    assert "aside" not in [thread.name for thread in threading.enumerate()]
