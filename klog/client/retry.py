"""Decides how long to pause after a failure, and when to give up.

Everything that is a client of a broker retries by this rule: pauses double from the first to the longest, as
with Kafka's `retry.backoff.ms` and `retry.backoff.max.ms`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

_DOUBLINGS_MAX: Final = 30
_LONG_S: Final = 2.0


class Clock(NamedTuple):
    """The time as clients see it. A simulation passes its own functions."""

    monotonic_s: Callable[[], float]
    sleep_s: Callable[[float], object]
    wall_ms: Callable[[], int]


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How long failures in a row may last, and the pauses between them; `timeout_ms` None sets no limit."""

    timeout_ms: int | None
    first_pause_ms: int = 50
    longest_pause_ms: int = 1_000

    def pause_s(self, failures: int) -> float:
        """The pause in seconds after so many failures in a row, one at least."""
        doublings = min(failures - 1, _DOUBLINGS_MAX)
        return min(self.first_pause_ms << doublings, self.longest_pause_ms) / 1000


def _say_nothing(error: Exception, left_s: float | None) -> None:
    pass


@dataclass(slots=True, eq=False)
class Retry:
    """Counts failures in a row. A success resets the count and the time limit.

    `on_waiting` is called once if failures in a row last longer than 2 seconds, with the last error and for
    how many more seconds it is tried again (None: without limit).
    """

    policy: RetryPolicy
    monotonic_s: Callable[[], float]
    sleep_s: Callable[[float], object]
    on_waiting: Callable[[Exception, float | None], object] = _say_nothing
    failures: int = field(default=0, init=False)
    _first_s: float | None = field(default=None, init=False)
    _has_reported: bool = field(default=False, init=False)

    def succeeded(self) -> None:
        """Reset after a success."""
        self._first_s = None
        self._has_reported = False
        self.failures = 0

    def failed(self, error: Exception) -> None:
        """Pause before the next attempt. Raises `error` if that attempt would start too late."""
        self.failures += 1
        pause_s = self.policy.pause_s(self.failures)
        now_s = self.monotonic_s()
        if self._first_s is None:
            self._first_s = now_s
        timeout_ms = self.policy.timeout_ms
        left_s = None if timeout_ms is None else self._first_s + timeout_ms / 1000 - now_s
        if left_s is not None and pause_s > left_s:
            raise error
        if not self._has_reported and now_s - self._first_s >= _LONG_S:
            self._has_reported = True
            self.on_waiting(error, left_s)
        self.sleep_s(pause_s)
