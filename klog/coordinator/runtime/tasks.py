"""Runs tasks in the order in which they were put, one at a time, on the threads that put them.

A state machine puts what it wants done while its lock is held, and runs the queue after leaving the lock. So
records are written in the order in which they were decided, and no lock is held while they are.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager

_log = logging.getLogger(__name__)

Task = Callable[[], object]


class TaskQueue:
    """Tasks of one owner. Safe for threads."""

    def __init__(self) -> None:
        self._tasks: deque[Task] = deque()
        self._running = threading.Lock()

    def put(self, task: Task) -> None:
        """Add a task, to be run by the next `run`."""
        self._tasks.append(task)

    def run(self) -> None:
        """Run all tasks, unless another thread is about it: then that thread runs these, too.

        A task may put more tasks. To be called without any lock that a task needs.
        """
        while self._tasks and self._running.acquire(blocking=False):
            try:
                self._run()
            finally:
                self._running.release()

    @property
    def is_empty(self) -> bool:
        """Whether no task waits to be run."""
        return not self._tasks

    def hold(self) -> None:
        """Wait until no task runs; none runs until `let_go`.

        To be called without any lock that a task needs.
        """
        self._running.acquire()

    def let_go(self) -> None:
        """Undo `hold`, and run the tasks that were put meanwhile."""
        self._running.release()
        self.run()

    def _run(self) -> None:
        while self._tasks:
            task = self._tasks.popleft()
            try:
                task()
            except Exception:
                # The others must not wait for ever because of a defect in one.
                _log.exception("a coordinator's task failed")


class _Held:
    """Holds a lock, and runs tasks after it is left. Every request enters one, so it is no generator."""

    __slots__ = ("_lock", "_tasks")

    def __init__(self, lock: threading.Lock, tasks: TaskQueue) -> None:
        self._lock = lock
        self._tasks = tasks

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_raised: object) -> None:
        self._lock.release()
        self._tasks.run()


class OrderedEffects:
    """A lock, and what was decided under it: the tasks run in order after it is left."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tasks = TaskQueue()
        self._held = _Held(self._lock, self._tasks)

    def lock(self) -> AbstractContextManager[None]:
        """Enter the lock; what was put meanwhile runs after it is left."""
        return self._held

    def put(self, task: Task) -> None:
        """Let a task run when the lock is left."""
        self._tasks.put(task)
