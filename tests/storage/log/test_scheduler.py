"""The scheduler runs tasks when they are due, in order, by the clock that it is given."""

from __future__ import annotations

import threading

from klog.storage.log.scheduler import Scheduler
from tests.storage.log.building import Clock


def test_tasks_run_when_they_are_due_and_in_their_order() -> None:
    clock, done = Clock(0), []
    scheduler = Scheduler(clock)
    for delay, name in ((20, "late"), (10, "first"), (10, "second")):
        scheduler.after(delay, lambda name=name: done.append(name))
    assert scheduler.run_due() == 10
    clock.now_ms = 10
    assert (scheduler.run_due(), done) == (10, ["first", "second"])
    clock.now_ms = 25
    assert (scheduler.run_due(), done) == (None, ["first", "second", "late"])


def test_a_periodic_task_waits_its_period_after_it_has_ended() -> None:
    clock, times = Clock(0), []
    scheduler = Scheduler(clock)
    scheduler.every(10, lambda: times.append(clock.now_ms), first_after_ms=3)
    for clock.now_ms in range(40):
        scheduler.run_due()
    assert times == [3, 13, 23, 33]


def test_the_thread_wakes_for_a_task_that_is_due_before_what_it_waits_for() -> None:
    scheduler = Scheduler()
    done = threading.Event()
    scheduler.after(60_000, lambda: None)
    scheduler.start()
    scheduler.after(1, done.set)
    assert done.wait(30)
    scheduler.stop()


def test_a_task_with_a_defect_stops_no_other_and_runs_again(caplog) -> None:
    clock, times = Clock(0), []
    scheduler = Scheduler(clock)

    def broken() -> None:
        times.append(clock.now_ms)
        raise KeyError("a defect")

    scheduler.every(10, broken)
    scheduler.after(10, lambda: times.append("other"))
    for clock.now_ms in range(25):
        scheduler.run_due()
    assert times == [10, "other", 20]
    assert [record.exc_info[0] for record in caplog.records] == [KeyError, KeyError]


def test_a_stopped_scheduler_does_nothing_more() -> None:
    clock, done = Clock(0), []
    scheduler = Scheduler(clock)
    scheduler.after(0, lambda: done.append(1))
    scheduler.stop()
    scheduler.run_due()
    assert done == []
