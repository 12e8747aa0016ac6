"""Requests that wait: for acknowledgements, for bytes, for a topic to appear; or for their timeout.

A `DelayedOperation` completes once, by whoever gets there first: the request's own first try, an event
that its watch keys announce, or the timer. The rules are those of Kafka's purgatory: try, watch every
key, try again (the event may have come in between), and only then start the timer. Completed operations
that other keys still list are swept once they outnumber `purge_interval`: memory is bounded by what waits.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Hashable, Iterable
from typing import Final, Generic, TypeVar

from klog.replication.timing_wheel import TimerTask, TimingWheel

_log = logging.getLogger(__name__)

PURGE_INTERVAL: Final = 1000


class DelayedOperation(TimerTask):
    """Something that completes later. A subclass says when (`try_complete`) and how (`on_complete`).

    `try_complete` is called with the operation's lock held and calls `force_complete` when the time has come;
    `on_expiration` runs after `on_complete` where the timeout ended the waiting.
    """

    __slots__ = ("_completed", "lock", "on_left")

    def __init__(self, due_ms: int, lock: threading.RLock | None = None) -> None:
        super().__init__(due_ms)
        self._completed = False
        self.on_left: Callable[[DelayedOperation], None] | None = (
            None  # the purgatory's, while it waits there
        )
        self.lock = lock if lock is not None else threading.RLock()

    @property
    def completed(self) -> bool:
        """Whether it is over."""
        return self._completed

    def try_complete(self, key: Hashable | None) -> bool:  # noqa: ARG002 (some look at their own key only)
        """Complete if the condition holds now; whether this call did it. `key`: the event, if any."""
        raise RuntimeError(f"{type(self).__name__} does not say when it is complete")

    def on_complete(self) -> None:
        """What completing means: answer the request. Called exactly once."""
        raise RuntimeError(f"{type(self).__name__} does not say what completing means")

    def on_expiration(self) -> None:
        """What is counted where the timeout ended the waiting."""

    def force_complete(self) -> bool:
        """Complete, whatever the condition; whether this call was the first."""
        with self.lock:
            if self._completed:
                return False
            self._completed = True
            on_left = self.on_left
        if on_left is not None:
            on_left(self)
        self.on_complete()
        return True

    def safe_try_complete(self, key: Hashable | None = None) -> bool:
        """`try_complete` under the lock; whether the operation is complete now."""
        with self.lock:
            return self._completed or self.try_complete(key)

    def run(self) -> None:
        """The timeout."""
        if self.force_complete():
            self.on_expiration()


class Timer:
    """The timing wheel behind a lock, with a thread-safe wake-up for whoever drives it.

    `wake` is called when a task is due earlier than anything before it, so that the driver sleeps exactly as
    long as it may. The driver calls `advance` and runs what it returns.
    """

    def __init__(self, clock_ms: Callable[[], int], wake: Callable[[], None]) -> None:
        self._clock_ms = clock_ms
        self._wake = wake
        self._lock = threading.Lock()
        self._wheel = TimingWheel(clock_ms())
        self._waiting = 0

    def __len__(self) -> int:
        return self._waiting

    def add(self, task: TimerTask) -> None:
        """Start a task; one that is due already runs at once."""
        with self._lock:
            before = self._wheel.next_due_ms()
            started = self._wheel.add(task)
            if started:
                self._waiting += 1
            earlier = started and (before is None or task.due_ms < before)
        if not started:
            task.run()
        elif earlier:
            self._wake()

    def cancel(self, task: TimerTask) -> None:
        """Stop a task; nothing happens where it has run or was never started."""
        with self._lock:
            if task.bucket is not None:
                task.unlink()
                self._waiting -= 1

    def wait_ms(self) -> int | None:
        """How long nothing will be due; None when nothing waits."""
        with self._lock:
            due_ms = self._wheel.next_due_ms()
        return None if due_ms is None else max(0, due_ms - self._clock_ms())

    def advance(self) -> int:
        """Run all that is due; returns how many."""
        with self._lock:
            expired = self._wheel.advance(self._clock_ms())
            self._waiting -= len(expired)
        for task in expired:
            try:
                task.run()
            except Exception:
                # The boundary of the one thread that ends all waiting: a bug costs the operation that met it.
                _log.exception("%r could not be ended", task)
        return len(expired)


Operation = TypeVar("Operation", bound=DelayedOperation)


class Purgatory(Generic[Operation]):
    """The operations of one kind that wait, by the keys of the events that may complete them."""

    def __init__(self, name: str, timer: Timer, purge_interval: int = PURGE_INTERVAL) -> None:
        self.name = name
        self._timer = timer
        self._purge_interval = purge_interval
        self._lock = threading.Lock()
        self._watchers: dict[Hashable, list[Operation]] = {}
        self._waiting = 0
        self._listed = 0  # entries in the lists of all keys

    @property
    def waiting(self) -> int:
        """Operations that wait."""
        return self._waiting

    @property
    def watched(self) -> int:
        """Entries in the lists of all keys, completed ones not swept yet included (Kafka's PurgatorySize)."""
        return self._listed

    def try_complete_else_watch(self, operation: Operation, keys: Iterable[Hashable]) -> bool:
        """Complete it now, or leave it waiting on every key and on its timeout; whether it is complete."""
        return operation.safe_try_complete() or self.watch(operation, keys)

    def watch(self, operation: Operation, keys: Iterable[Hashable]) -> bool:
        """The same for an operation that has just been tried."""
        operation.on_left = self._left
        with self._lock:
            self._waiting += 1
            for key in keys:
                self._watchers.setdefault(key, []).append(operation)
                self._listed += 1
        # An event between the first try and the watching would otherwise be missed.
        if operation.safe_try_complete():
            return True
        self._timer.add(operation)
        if operation.completed:
            self._timer.cancel(operation)
        self._sweep()
        return operation.completed

    def check_and_complete(self, key: Hashable) -> int:
        """An event of this key: try all that wait on it; returns how many are complete now.

        Must not be called with a lock held that `on_complete` needs.
        """
        if key not in self._watchers:
            return 0  # no lock needed: who begins to watch now tries once more after that
        with self._lock:
            waiting = list(self._watchers.get(key, ()))
        completed = 0
        for operation in waiting:
            completed += operation.safe_try_complete(key)
        if completed:
            self._unlist(key)
        return completed

    def cancel_for_key(self, key: Hashable) -> list[Operation]:
        """Stop watching a key; returns what waited on it and is not complete."""
        with self._lock:
            operations = self._watchers.pop(key, [])
            self._listed -= len(operations)
        return [operation for operation in operations if not operation.completed]

    def _left(self, operation: DelayedOperation) -> None:
        self._timer.cancel(operation)
        with self._lock:
            self._waiting -= 1

    def _unlist(self, key: Hashable) -> None:
        with self._lock:
            operations = self._watchers.get(key)
            if operations is None:
                return
            kept = [operation for operation in operations if not operation.completed]
            self._listed -= len(operations) - len(kept)
            if kept:
                self._watchers[key] = kept
            else:
                del self._watchers[key]

    def _sweep(self) -> None:
        if self._listed - self._waiting <= self._purge_interval:
            return
        with self._lock:
            keys = list(self._watchers)
        for key in keys:
            self._unlist(key)
