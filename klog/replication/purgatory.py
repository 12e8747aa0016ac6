"""Requests that wait for an event or for their timeout: for acknowledgements, for bytes, for a topic.

Rules: Kafka's `DelayedOperationPurgatory`. A `DelayedOperation` completes exactly once: by its own first try,
by an event of one of its keys, or by the timer. It is tried, then watched under every key, then tried again
(the event may have come in between), and only then the timer is started. Completed operations that are still
listed under other keys are removed when they have more entries there than `purge_interval`, and more than
those that wait. So memory is bounded by what waits.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Hashable, Iterable
from typing import Final

from klog.replication.timing_wheel import TimerTask, TimingWheel

_log = logging.getLogger(__name__)

PURGE_INTERVAL: Final = 1000


class DelayedOperation(TimerTask):
    """Something that completes later. A subclass says when (`try_complete`) and how (`on_complete`).

    `try_complete` is called with the operation's lock held, and calls `force_complete` if the condition
    holds. `on_expiration` runs after `on_complete` if the timeout completed the operation.
    """

    __slots__ = ("completed", "listed", "lock", "on_left")

    def __init__(self, due_ms: int) -> None:
        super().__init__(due_ms)
        self.completed = False
        # Set by the purgatory in which the operation waits: in how many lists it is, and what to call.
        self.listed = 0
        self.on_left: Callable[[DelayedOperation], None] | None = None
        self.lock = threading.RLock()

    def try_complete(self, key: Hashable | None) -> bool:  # noqa: ARG002 (some check the key's partition only)
        """Complete if the condition holds now; whether this call did it. `key` is the event's, if any."""
        raise RuntimeError(f"{type(self).__name__} does not say when it is complete")

    def on_complete(self) -> None:
        """Answer the request. Called exactly once."""
        raise RuntimeError(f"{type(self).__name__} does not say how it completes")

    def on_expiration(self) -> None:
        """Count that the timeout has completed the operation."""

    def force_complete(self) -> bool:
        """Complete without a condition; whether this call did it."""
        with self.lock:
            if self.completed:
                return False
            self.completed = True
            on_left = self.on_left
        if on_left is not None:
            on_left(self)
        self.on_complete()
        return True

    def safe_try_complete(self, key: Hashable | None = None) -> bool:
        """`try_complete` under the lock; whether the operation is complete now."""
        with self.lock:
            return self.completed or self.try_complete(key)

    def run(self) -> None:
        """Complete because of the timeout."""
        if self.force_complete():
            self.on_expiration()


class Timer:
    """A timing wheel behind a lock, driven by a thread that calls `advance` when something is due.

    `wake` is called when a task is due before the time until which the thread sleeps, which `wait_ms` has
    told it, so that it never sleeps too long. Most tasks are cancelled before they are due: the thread then
    wakes up in vain at most once, which costs less than to wake it for each task that is added.
    """

    def __init__(self, clock_ms: Callable[[], int], wake: Callable[[], None]) -> None:
        self._clock_ms = clock_ms
        self._wake = wake
        self._lock = threading.Lock()
        self._wheel = TimingWheel(clock_ms())
        self._waiting = 0
        self._sleeps_until_ms: int | None = None  # None: until it is woken

    def __len__(self) -> int:
        return self._waiting

    def add(self, task: TimerTask) -> None:
        """Start a task; a task that is due already runs at once."""
        with self._lock:
            started = self._wheel.add(task)
            if started:
                self._waiting += 1
            until_ms = self._sleeps_until_ms
            earlier = started and (until_ms is None or task.due_ms < until_ms)
            if earlier:
                self._sleeps_until_ms = task.due_ms
        if not started:
            task.run()
        elif earlier:
            self._wake()

    def cancel(self, task: TimerTask) -> None:
        """Stop a task; nothing happens if it has run or was never started."""
        with self._lock:
            if task.bucket is not None:
                task.unlink()
                self._waiting -= 1

    def wait_ms(self) -> int | None:
        """The milliseconds until the next task is due; None if there is none."""
        with self._lock:
            due_ms = self._sleeps_until_ms = self._wheel.next_due_ms()
        return None if due_ms is None else max(0, due_ms - self._clock_ms())

    def advance(self) -> int:
        """Run all tasks that are due; returns how many there were."""
        with self._lock:
            expired = self._wheel.advance(self._clock_ms())
            self._waiting -= len(expired)
        for task in expired:
            try:
                task.run()
            except Exception:
                # One thread runs the timeouts of all requests: a defect in one must not end it.
                _log.exception("%r could not be completed", task)
        return len(expired)


class Purgatory:
    """Waiting operations of one kind, by the keys of the events that may complete them. Safe for threads."""

    def __init__(self, name: str, timer: Timer, purge_interval: int = PURGE_INTERVAL) -> None:
        self.name = name
        self._timer = timer
        self._purge_interval = purge_interval
        self._lock = threading.Lock()
        self._watchers: dict[Hashable, list[DelayedOperation]] = {}
        self.waiting = 0
        """How many operations wait."""
        self.watched = 0
        """Kafka's PurgatorySize: entries in the lists of all keys, completed operations included."""
        self._left_over = 0  # those of completed operations

    def try_complete_else_watch(self, operation: DelayedOperation, keys: Iterable[Hashable]) -> bool:
        """Complete the operation now, or let it wait for its keys and its timeout; whether it is complete."""
        return operation.safe_try_complete() or self.watch(operation, keys)

    def watch(self, operation: DelayedOperation, keys: Iterable[Hashable]) -> bool:
        """Let an operation that has just been tried wait; whether it is complete."""
        operation.on_left = self._left
        with self._lock:
            self.waiting += 1
            for key in keys:
                self._watchers.setdefault(key, []).append(operation)
                operation.listed += 1
            self.watched += operation.listed
        # An event after the first try and before the watching would otherwise be missed.
        if operation.safe_try_complete():
            return True
        self._timer.add(operation)
        if operation.completed:
            self._timer.cancel(operation)
        self._sweep()
        return operation.completed

    def check_and_complete(self, key: Hashable) -> int:
        """Try all operations that wait for this key; returns how many are complete now.

        Must not be called with a lock held that an `on_complete` needs.
        """
        if key not in self._watchers:
            return 0  # no lock needed: an operation that is added now is tried again after that
        with self._lock:
            waiting = list(self._watchers.get(key, ()))
        completed = 0
        for operation in waiting:
            try:
                completed += operation.safe_try_complete(key)
            except Exception:
                # One operation must not fail the thread that brings the event, nor the operations after it.
                _log.exception("%r could not be completed", operation)
                completed += operation.completed
        if completed:
            self._unlist(key)
        return completed

    def _left(self, operation: DelayedOperation) -> None:
        self._timer.cancel(operation)
        with self._lock:
            self.waiting -= 1
            self._left_over += operation.listed

    def _unlist(self, key: Hashable) -> None:
        with self._lock:
            operations = self._watchers.get(key)
            if operations is None:
                return
            kept = [operation for operation in operations if not operation.completed]
            self.watched -= len(operations) - len(kept)
            self._left_over -= len(operations) - len(kept)
            if kept:
                self._watchers[key] = kept
            else:
                del self._watchers[key]

    def _sweep(self) -> None:
        if self._left_over <= max(self._purge_interval, self.watched - self._left_over):
            return
        with self._lock:
            keys = list(self._watchers)
        for key in keys:
            self._unlist(key)
