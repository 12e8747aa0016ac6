"""Runs tasks when they are due, in one thread: a broker's periodic tasks and the delayed work of its logs.

Rules: Kafka's `KafkaScheduler`, but with one thread: tasks are short, and disks do not get faster by more
threads. A task reports errors of the disk itself. Any other error is a defect: it is logged and ends that run
of that task only, because without the thread no log would be flushed or deleted any more.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import threading
import time
from collections.abc import Callable
from typing import Final

from klog.jobs.worker import Worker

_log = logging.getLogger(__name__)

_MS_PER_S: Final = 1000


def monotonic_ms() -> int:
    """Milliseconds of a clock that is never set back."""
    return time.monotonic_ns() // 1_000_000


def wall_clock_ms() -> int:
    """Milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


class Scheduler:
    """Tasks by the time when they are due. Safe for threads; runs nothing before `start`."""

    def __init__(self, clock_ms: Callable[[], int] = monotonic_ms) -> None:
        self._clock_ms = clock_ms
        self._due: list[tuple[int, int, Callable[[], object]]] = []
        self._order = itertools.count()
        self._lock = threading.Lock()
        self._worker = Worker("klog-scheduler", self._run)

    def start(self) -> None:
        """Start the thread."""
        self._worker.start()
        self._worker.wake()

    def after(self, delay_ms: int, task: Callable[[], object]) -> None:
        """Run `task` once, after `delay_ms`."""
        with self._lock:
            heapq.heappush(self._due, (self._clock_ms() + delay_ms, next(self._order), task))
        self._worker.wake()

    def every(self, period_ms: int, task: Callable[[], object], *, first_after_ms: int | None = None) -> None:
        """Run `task` again and again, each time `period_ms` after the last run has ended."""

        def repeat() -> None:
            try:
                task()
            finally:
                self.after(period_ms, repeat)

        self.after(period_ms if first_after_ms is None else first_after_ms, repeat)

    def run_due(self) -> int | None:
        """Run all tasks that are due; the milliseconds until the next task, None if there is none."""
        while True:
            with self._lock:
                if self._worker.is_stopping or not self._due:
                    return None
                wait_ms = self._due[0][0] - self._clock_ms()
                if wait_ms > 0:
                    return wait_ms
                task = heapq.heappop(self._due)[2]
            try:
                task()
            except Exception:
                _log.exception("a task of the scheduler failed")

    def stop(self) -> None:
        """Stop after the task that is running; tasks that are not due are dropped."""
        self._worker.stop()
        self._worker.join()

    def _run(self) -> float | None:
        wait_ms = self.run_due()
        return None if wait_ms is None else wait_ms / _MS_PER_S
