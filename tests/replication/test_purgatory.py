"""Delayed operations complete once: by their condition, by an event, or by their timeout."""

from __future__ import annotations

import gc
import weakref

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.replication.purgatory import DelayedOperation, Purgatory, Timer
from klog.replication.timing_wheel import TimedCall
from tests.threads import join, started


class Clock:
    def __init__(self) -> None:
        self.now_ms = 1_000_000

    def __call__(self) -> int:
        return self.now_ms


class Countdown(DelayedOperation):
    """Complete when `missing` is empty."""

    __slots__ = ("answers", "expirations", "missing", "tries")

    def __init__(self, due_ms: int, missing: set[str]) -> None:
        super().__init__(due_ms)
        self.missing = missing
        self.answers = 0
        self.expirations = 0
        self.tries = 0

    def try_complete(self, key) -> bool:
        self.tries += 1
        return not self.missing and self.force_complete()

    def on_complete(self) -> None:
        self.answers += 1

    def on_expiration(self) -> None:
        self.expirations += 1


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def timer(clock: Clock) -> Timer:
    return Timer(clock, wake=lambda: None)


class Answer:
    """What an operation holds: a request and its frame."""


class WithAnswer(Countdown):
    """Holds the answer that it gives."""

    def __init__(self, due_ms: int, missing: set[str]) -> None:
        super().__init__(due_ms, missing)
        self.answer = Answer()


def test_what_has_completed_is_freed_without_the_garbage_collector(clock: Clock, timer: Timer) -> None:
    purgatory = Purgatory("fetch", timer)
    operation = WithAnswer(clock.now_ms + 100, {"t-0"})
    answer = weakref.ref(operation.answer)
    gc.disable()
    try:
        purgatory.try_complete_else_watch(operation, ["t-0"])
        operation.missing.clear()
        purgatory.check_and_complete("t-0")
        del operation
        assert answer() is None
    finally:
        gc.enable()


def test_an_operation_whose_condition_holds_completes_at_once(clock: Clock, timer: Timer) -> None:
    purgatory = Purgatory("produce", timer)
    operation = Countdown(clock.now_ms + 100, set())
    assert purgatory.try_complete_else_watch(operation, ["t-0"])
    assert (operation.answers, purgatory.waiting, purgatory.watched, len(timer)) == (1, 0, 0, 0)


def test_an_event_completes_what_waits_on_its_key_and_stops_the_timeout(clock: Clock, timer: Timer) -> None:
    purgatory = Purgatory("produce", timer)
    operation = Countdown(clock.now_ms + 100, {"t-0", "t-1"})
    assert not purgatory.try_complete_else_watch(operation, ["t-0", "t-1"])
    assert (purgatory.waiting, purgatory.watched, len(timer)) == (1, 2, 1)
    operation.missing.discard("t-0")
    assert purgatory.check_and_complete("t-0") == 0
    operation.missing.discard("t-1")
    assert purgatory.check_and_complete("t-1") == 1
    assert (operation.answers, operation.expirations, purgatory.waiting, len(timer)) == (1, 0, 0, 0)


def test_the_timeout_completes_what_nothing_else_did(clock: Clock, timer: Timer) -> None:
    purgatory = Purgatory("fetch", timer)
    operation = Countdown(clock.now_ms + 100, {"bytes"})
    purgatory.try_complete_else_watch(operation, ["t-0"])
    clock.now_ms += 99
    assert timer.advance() == 0
    clock.now_ms += 1
    assert timer.advance() == 1
    assert (operation.answers, operation.expirations, purgatory.waiting) == (1, 1, 0)
    assert purgatory.check_and_complete("t-0") == 1  # complete already: only dropped from the list
    assert (operation.answers, purgatory.watched) == (1, 0)


def test_an_operation_that_fails_at_its_timeout_stops_no_other(clock, timer, caplog) -> None:
    class Broken(Countdown):
        def on_complete(self) -> None:
            raise ArithmeticError("a bug")

    purgatory = Purgatory("fetch", timer)
    kinds = (Countdown, Broken, Countdown)
    operations = [kind(clock.now_ms + 100, {"bytes"}) for kind in kinds]
    for operation in operations:
        purgatory.try_complete_else_watch(operation, ["t-0"])
    clock.now_ms += 100
    assert timer.advance() == len(operations)
    assert [operation.answers for operation in operations] == [1, 0, 1]
    assert "ArithmeticError: a bug" in caplog.text


def test_an_operation_that_fails_at_an_event_stops_no_other(
    clock: Clock, timer: Timer, monkeypatch, caplog
) -> None:
    purgatory = Purgatory("fetch", timer)
    failing, other = (Countdown(clock.now_ms + 100, {"t-0"}) for _ in range(2))
    monkeypatch.setattr(Countdown, "on_complete", lambda each: 1 // int(each is other))
    for each in (failing, other):
        purgatory.try_complete_else_watch(each, ["t-0"])
        each.missing.clear()
    assert purgatory.check_and_complete("t-0") == 2
    assert other.completed
    assert "could not be completed" in caplog.text
    assert (purgatory.waiting, purgatory.watched, len(timer)) == (0, 0, 0)


def test_a_timeout_of_nothing_expires_at_once(clock: Clock, timer: Timer) -> None:
    purgatory = Purgatory("fetch", timer)
    operation = Countdown(clock.now_ms, {"bytes"})
    assert purgatory.try_complete_else_watch(operation, ["t-0"])
    assert (operation.answers, operation.expirations) == (1, 1)


def test_an_event_between_the_first_try_and_the_watching_is_not_missed(clock: Clock, timer: Timer) -> None:
    class Late(Countdown):
        def try_complete(self, key) -> bool:
            done = super().try_complete(key)
            self.missing.clear()  # the event happens right after the first look
            return done

    purgatory = Purgatory("produce", timer)
    operation = Late(clock.now_ms + 100, {"t-0"})
    assert purgatory.try_complete_else_watch(operation, ["t-0"])
    assert (operation.tries, operation.answers, purgatory.waiting, len(timer)) == (2, 1, 0, 0)


def test_lists_stay_bounded_when_operations_complete_through_other_keys(clock: Clock, timer: Timer) -> None:
    purgatory = Purgatory("fetch", timer, purge_interval=10)
    for number in range(1000):
        operation = Countdown(clock.now_ms + 60_000, {"x"})
        purgatory.try_complete_else_watch(operation, ["busy", f"idle-{number % 5}"])
        operation.missing.clear()
        purgatory.check_and_complete("busy")
    assert purgatory.watched <= 20
    assert (purgatory.waiting, len(timer)) == (0, 0)


def test_waiting_operations_are_not_searched_for_completed_ones(clock: Clock, timer: Timer) -> None:
    """Two fetches of many partitions wait in turn, and have more entries than the interval all the time."""
    purgatory = Purgatory("fetch", timer, purge_interval=10)
    searched: list[object] = []
    unlist = purgatory._unlist
    purgatory._unlist = lambda key: (searched.append(key), unlist(key))[1]  # type: ignore[method-assign,func-returns-value]
    keys = [f"t-{number}" for number in range(100)]
    for _ in range(30):
        for _two in range(2):
            purgatory.try_complete_else_watch(Countdown(clock.now_ms + 500, {"x"}), keys)
        clock.now_ms += 500
        timer.advance()
        assert purgatory.waiting == 0
        assert purgatory.watched <= 4 * len(keys)
    assert len(searched) <= 30 * len(keys)


def test_many_threads_complete_each_operation_once(clock: Clock, timer: Timer) -> None:
    purgatory = Purgatory("produce", timer)
    operations = [Countdown(clock.now_ms + 60_000, {"x"}) for _ in range(300)]

    def watch() -> None:
        for operation in operations[::2]:
            purgatory.try_complete_else_watch(operation, ["k"])

    def complete() -> None:
        for operation in operations:
            operation.missing.clear()
            purgatory.check_and_complete("k")

    join([started(watch), *(started(complete) for _ in range(3))])
    purgatory.check_and_complete("k")
    assert [operation.answers for operation in operations[::2]] == [1] * 150
    assert (purgatory.waiting, len(timer)) == (0, 0)


def test_the_thread_is_woken_only_for_what_is_due_before_it_wakes_by_itself(clock: Clock) -> None:
    woken: list[int] = []
    timer = Timer(clock, wake=lambda: woken.append(clock.now_ms))
    first, second = TimedCall(clock.now_ms + 500, lambda: None), TimedCall(clock.now_ms + 600, lambda: None)
    timer.add(first)
    assert len(woken) == 1
    assert timer.wait_ms() is not None
    timer.cancel(first)
    timer.add(second)
    assert len(woken) == 1, "it wakes in time, looks again, and sleeps on"
    timer.add(TimedCall(clock.now_ms + 100, lambda: None))
    assert len(woken) == 2
    timer.add(TimedCall(clock.now_ms + 50, lambda: None))
    assert len(woken) == 3, "it has not looked at the clock since it was woken"


@given(st.lists(st.tuples(st.integers(2, 2000), st.booleans()), max_size=30))
def test_no_task_is_late_although_the_thread_is_woken_seldom(tasks) -> None:
    clock = Clock()
    wakes = [True]
    timer = Timer(clock, wake=lambda: wakes.append(True))
    ran: list[tuple[int, int]] = []
    until_ms: int | None = None
    for duration_ms, is_cancelled in tasks:
        due_ms = clock.now_ms + duration_ms
        task = TimedCall(due_ms, lambda due_ms=due_ms: ran.append((due_ms, clock.now_ms)))
        timer.add(task)
        if is_cancelled:
            timer.cancel(task)
        if wakes or (until_ms is not None and until_ms <= clock.now_ms):
            wakes.clear()
            timer.advance()
            wait_ms = timer.wait_ms()
            until_ms = None if wait_ms is None else clock.now_ms + wait_ms
        clock.now_ms += 1
    while until_ms is not None:
        clock.now_ms = max(clock.now_ms, until_ms)
        timer.advance()
        wait_ms = timer.wait_ms()
        until_ms = None if wait_ms is None else clock.now_ms + wait_ms
    assert len(ran) == sum(not is_cancelled for _, is_cancelled in tasks)
    assert all(at_ms - due_ms <= len(tasks) for due_ms, at_ms in ran)
