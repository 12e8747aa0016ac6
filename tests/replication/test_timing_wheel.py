"""A task expires once, in the tick of its due time, whichever wheel it started in."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from klog.replication.timing_wheel import TimerTask, TimingWheel


def test_a_task_runs_in_the_tick_of_its_due_time() -> None:
    wheel = TimingWheel(now_ms=1000)
    task = TimerTask(1007)
    assert wheel.add(task)
    assert wheel.advance(1006) == []
    assert wheel.advance(1007) == [task]
    assert wheel.next_due_ms() is None


def test_a_task_that_is_due_already_is_not_started() -> None:
    wheel = TimingWheel(now_ms=1000)
    assert not wheel.add(TimerTask(1000))
    assert not wheel.add(TimerTask(3))


def test_a_task_of_a_higher_wheel_moves_down_to_its_tick() -> None:
    wheel = TimingWheel(now_ms=0)
    task = TimerTask(123_456)  # four wheels up
    assert wheel.add(task)
    seen = 0
    while (due := wheel.next_due_ms()) is not None and due < 123_456:
        assert wheel.advance(due) == []
        seen += 1
    assert 1 <= seen <= 4
    assert wheel.advance(123_456) == [task]


def test_a_cancelled_task_never_runs_and_leaves_nothing_to_wait_for() -> None:
    wheel = TimingWheel(now_ms=0)
    task = TimerTask(500)
    wheel.add(task)
    task.unlink()
    assert wheel.next_due_ms() is None
    assert wheel.advance(10_000) == []


@given(
    start=st.integers(0, 10_000),
    delays=st.lists(st.integers(1, 200_000), min_size=1, max_size=60),
    steps=st.lists(st.integers(1, 50_000), min_size=1, max_size=60),
    cancelled=st.sets(st.integers(0, 59)),
)
def test_every_task_expires_once_at_the_first_advance_that_reaches_it(
    start, delays, steps, cancelled
) -> None:
    wheel = TimingWheel(now_ms=start)
    tasks = [TimerTask(start + delay) for delay in delays]
    assert all(wheel.add(task) for task in tasks)
    for number in cancelled:
        if number < len(tasks):
            tasks[number].unlink()
    live = [task for number, task in enumerate(tasks) if number not in cancelled]
    now = start
    for step in [*steps, 400_000]:
        due_before = sorted(task.due_ms for task in live if now < task.due_ms <= now + step)
        assert (wheel.next_due_ms() or now + step + 1) <= min(
            due_before, default=now + step + 1
        ) or not due_before
        now += step
        assert sorted(task.due_ms for task in wheel.advance(now)) == due_before
    assert wheel.next_due_ms() is None
