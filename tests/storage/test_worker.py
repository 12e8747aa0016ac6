"""A worker's thread does its work when it is woken, later again if the work says so, and ends when told."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from klog.jobs.worker import Work, Worker
from tests.waiting import eventually

New = Callable[[Work, float | None], Worker]


@pytest.fixture
def new() -> Iterator[New]:
    workers: list[Worker] = []

    def make(work: Work, retry_s: float | None = None) -> Worker:
        workers.append(Worker("test-worker", work, retry_s=retry_s))
        workers[-1].start()
        return workers[-1]

    yield make
    for each in workers:
        each.stop()
    assert all(each.join(60) for each in workers)


def test_the_work_is_done_after_a_wake_only(new: New) -> None:
    done: list[str] = []
    worker = new(lambda: done.append(threading.current_thread().name), None)
    assert not done
    worker.wake()
    eventually(lambda: done == ["test-worker"])


def test_a_wake_during_the_work_lets_it_be_done_once_more(new: New) -> None:
    began, may_end, done = threading.Event(), threading.Event(), []

    def work() -> None:
        began.set()
        assert may_end.wait(60)
        done.append(1)

    worker = new(work, None)
    worker.wake()
    assert began.wait(60)
    for _ in range(3):
        worker.wake()
    may_end.set()
    eventually(lambda: len(done) == 2)
    worker.stop()
    assert worker.join(60)
    assert len(done) == 2


def test_the_work_is_done_again_when_the_time_that_it_names_has_passed(new: New) -> None:
    waits = [0.0, 0.001, None]
    worker = new(lambda: waits.pop(0), None)
    worker.wake()
    eventually(lambda: not waits)


def test_an_error_is_logged_and_the_work_is_tried_again(new: New, caplog: pytest.LogCaptureFixture) -> None:
    done: list[int] = []

    def work() -> None:
        done.append(1)
        if len(done) == 1:
            raise ZeroDivisionError

    worker = new(work, 0.001)
    worker.wake()
    eventually(lambda: len(done) == 2)
    assert "thread test-worker goes on after an unexpected error" in caplog.text


def test_work_may_stop_its_own_worker(new: New) -> None:
    joined: list[bool] = []

    def work() -> None:
        worker.stop()
        joined.append(worker.join())

    worker = new(work, None)
    worker.wake()
    eventually(lambda: joined == [False])
    eventually(lambda: not worker.is_alive)


def test_a_worker_that_was_stopped_before_its_start_does_nothing() -> None:
    done: list[int] = []
    worker = Worker("test-worker", lambda: done.append(1))
    worker.wake()
    worker.stop()
    assert worker.join()
    worker.start()
    eventually(lambda: not worker.is_alive)
    assert not done
