"""Virtual time. What happens later waits in a queue and runs in the order of its time; nothing sleeps."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable

US_PER_MS = 1000

Call = Callable[[], object]


class Process:
    """A process that may be paused or may have ended. Its calls wait while it is paused."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.alive = True
        self.paused = False
        self.held_back: list[Call] = []
        # What runs when the process ends: others see their connections to it break.
        self.on_end: dict[object, Call] = {}

    def end(self) -> None:
        self.alive = False
        self.held_back.clear()
        calls, self.on_end = list(self.on_end.values()), {}
        for call in calls:
            call()


class Scheduler:
    """Runs calls when they are due. `after_each` is called after each one, with its process."""

    def __init__(self, after_each: Callable[[Process], None]) -> None:
        self.now_us = 1_000_000 * US_PER_MS
        self.now_ms = 1_000_000
        self.calls = 0
        self._after_each = after_each
        self._due: list[tuple[int, int, Process, Call]] = []
        self._cancelled: set[int] = set()
        self._order = 0

    def after(self, delay_us: int, process: Process, call: Call) -> int:
        """Let a call run later. The answer is its number, for `cancel`."""
        self._order += 1
        heapq.heappush(self._due, (self.now_us + delay_us, self._order, process, call))
        return self._order

    def cancel(self, number: int) -> None:
        """Let a call not run that has not run yet."""
        self._cancelled.add(number)

    def run_until(self, end_us: int) -> None:
        """Run everything that is due up to a time. What a paused process misses waits for it."""
        due, cancelled, after_each = self._due, self._cancelled, self._after_each
        while due and due[0][0] <= end_us:
            self.now_us, number, process, call = heapq.heappop(due)
            self.now_ms = self.now_us // US_PER_MS
            if number in cancelled:
                cancelled.discard(number)
            elif not process.alive:
                continue
            elif process.paused:
                process.held_back.append(call)
            else:
                self.calls += 1
                call()
                after_each(process)
        self.now_us = max(self.now_us, end_us)
        self.now_ms = self.now_us // US_PER_MS

    def close(self) -> None:
        """Forget all calls, and what they refer to."""
        self._due.clear()
        self._cancelled.clear()

    def resume(self, process: Process) -> None:
        """Run what a paused process has missed, in its order."""
        process.paused = False
        held_back, process.held_back = process.held_back, []
        for call in held_back:
            self.after(0, process, call)


def stream(seed: int, *names: object) -> random.Random:
    """A source of random numbers of its own, so that one part of a schedule does not disturb the others."""
    return random.Random("/".join(map(str, (seed, *names))))
