"""A hierarchical timing wheel: starting and cancelling a timeout costs the same however many there are.

Design: Kafka's request purgatory ("Apache Kafka, Purgatory, and Hierarchical Timing Wheels") after
Varghese and Lauck. A wheel has `wheel_size` buckets of `tick_ms` each. A timeout beyond its span goes to the
next wheel, whose tick is the span of this one; it is created when it is first needed. A heap of the filled
buckets' due times says when something is due, so an idle wheel costs nothing. Not safe for threads:
`purgatory.Timer` guards it.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from typing import Final

TICK_MS: Final = 1
WHEEL_SIZE: Final = 20


class TimerTask:
    """A task for the time `due_ms`, unless it is cancelled before. It refers to nothing once it has run."""

    __slots__ = ("bucket", "due_ms")

    def __init__(self, due_ms: int) -> None:
        self.due_ms = due_ms
        self.bucket: _Bucket | None = None

    def run(self) -> None:
        """Do the task. Called once, when it is due."""
        raise RuntimeError(f"{type(self).__name__} does not say what to do when it is due")

    def unlink(self) -> None:
        """Leave the bucket; the task can be started again."""
        if self.bucket is not None:
            del self.bucket.tasks[self]
            self.bucket = None


class TimedCall(TimerTask):
    """A call at the time `due_ms`."""

    __slots__ = ("_call",)

    def __init__(self, due_ms: int, call: Callable[[], object]) -> None:
        super().__init__(due_ms)
        self._call = call

    def run(self) -> None:
        self._call()


class _Bucket:
    """The tasks of one tick of one wheel, in the order in which they were added."""

    __slots__ = ("due_ms", "tasks")

    def __init__(self) -> None:
        self.tasks: dict[TimerTask, None] = {}
        self.due_ms = -1  # -1: not in the heap

    def add(self, task: TimerTask) -> None:
        self.tasks[task] = None
        task.bucket = self

    def drain(self) -> Iterable[TimerTask]:
        tasks, self.tasks = self.tasks, {}
        for task in tasks:
            task.bucket = None
        return tasks


class _Wheel:
    __slots__ = ("buckets", "now_ms", "overflow", "span_ms", "tick_ms")

    def __init__(self, tick_ms: int, wheel_size: int, now_ms: int) -> None:
        self.tick_ms = tick_ms
        self.span_ms = tick_ms * wheel_size
        self.buckets = [_Bucket() for _ in range(wheel_size)]
        self.now_ms = now_ms - now_ms % tick_ms
        self.overflow: _Wheel | None = None


class TimingWheel:
    """Tasks by due time. The time comes from the caller."""

    def __init__(self, now_ms: int, tick_ms: int = TICK_MS, wheel_size: int = WHEEL_SIZE) -> None:
        self._lowest = _Wheel(tick_ms, wheel_size, now_ms)
        self._wheel_size = wheel_size
        self._due: list[tuple[int, int, _Bucket]] = []
        self._sequence = 0  # orders the heap's entries of one time: buckets cannot be compared

    def add(self, task: TimerTask) -> bool:
        """Start a task; False if it is due already, and then it is not started."""
        wheel = self._lowest
        if task.due_ms < wheel.now_ms + wheel.tick_ms:
            return False
        while task.due_ms >= wheel.now_ms + wheel.span_ms:
            if wheel.overflow is None:
                wheel.overflow = _Wheel(wheel.span_ms, self._wheel_size, wheel.now_ms)
            wheel = wheel.overflow
        slot = task.due_ms // wheel.tick_ms
        bucket = wheel.buckets[slot % self._wheel_size]
        bucket.add(task)
        due_ms = slot * wheel.tick_ms
        if bucket.due_ms != due_ms:
            bucket.due_ms = due_ms
            self._sequence += 1
            heapq.heappush(self._due, (due_ms, self._sequence, bucket))
        return True

    def next_due_ms(self) -> int | None:
        """The earliest time at which `advance` may have something to do; None if no task is waiting."""
        while self._due and not self._due[0][2].tasks:
            _, _, bucket = heapq.heappop(self._due)
            bucket.due_ms = -1
        return self._due[0][0] if self._due else None

    def advance(self, now_ms: int) -> list[TimerTask]:
        """Move the clock to `now_ms`; returns the tasks that have become due, in the order of their ticks."""
        expired: list[TimerTask] = []
        while self._due and self._due[0][0] <= now_ms:
            due_ms, _, bucket = heapq.heappop(self._due)
            bucket.due_ms = -1
            self._move_clock(due_ms)
            # A task that is not due yet comes from a higher wheel and goes to a lower one.
            expired.extend(task for task in bucket.drain() if not self.add(task))
        self._move_clock(now_ms)
        return expired

    def _move_clock(self, now_ms: int) -> None:
        wheel: _Wheel | None = self._lowest
        while wheel is not None and now_ms >= wheel.now_ms + wheel.tick_ms:
            wheel.now_ms = now_ms - now_ms % wheel.tick_ms
            wheel = wheel.overflow
