"""What a network thread has to do at a later time, without a thread or a clock."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from klog.server.network.connection import Connection

_PUT_OFF_MS: Final = 1


class Task(NamedTuple):
    """Something that a network thread does in a turn of its loop. If it raises, `connection` is closed."""

    run: Callable[[], None]
    connection: Connection | None = None


class Deadlines:
    """Tasks by the time at which they are due. Used by one thread."""

    def __init__(self) -> None:
        # The number keeps tasks of the same time in the order in which they were scheduled.
        self._heap: list[tuple[int, int, Task]] = []
        self._number = 0

    def __len__(self) -> int:
        return len(self._heap)

    def schedule(self, at_ms: int, task: Task) -> None:
        """Adds a task that is due at `at_ms`."""
        self._number += 1
        heapq.heappush(self._heap, (at_ms, self._number, task))

    def wait_ms(self, now_ms: int, most_ms: int) -> int:
        """How long until the next task is due, from 0 to `most_ms`."""
        if not self._heap:
            return most_ms
        return max(0, min(most_ms, self._heap[0][0] - now_ms))

    def take_due(self, now_ms: int) -> list[Task]:
        """Removes the tasks that are due, and returns them in the order of their times."""
        due = []
        while self._heap and self._heap[0][0] <= now_ms:
            due.append(heapq.heappop(self._heap)[2])
        return due


class PutOffTasks:
    """Tasks to be done when no connection has anything to be read, or 1 to 2 ms after the first was added.

    A fetch that has waited for records is one. Clients whose requests are answered together send the next
    ones together: the fetch then has the records of all of them, not those of the first. Any thread may add.
    """

    def __init__(self) -> None:
        self._tasks: deque[Task] = deque()
        self._since_ms = 0

    def __len__(self) -> int:
        return len(self._tasks)

    def add(self, task: Task, now_ms: int) -> None:
        """Adds a task."""
        if not self._tasks:
            self._since_ms = now_ms
        self._tasks.append(task)

    def take(self, now_ms: int, *, is_idle: bool) -> list[Task]:
        """Removes the tasks that are to be done now, and returns them in the order of `add`."""
        if not self._tasks or not (is_idle or now_ms > self._since_ms + _PUT_OFF_MS):
            return []
        return [self._tasks.popleft() for _ in range(len(self._tasks))]
