"""Limits the bytes a second of all cleaner threads together (`log.cleaner.io.max.bytes.per.second`)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class Throttle:
    """Makes its callers wait so that together they use at most `bytes_per_second`.

    The time for each caller's bytes follows the one before; unused time is not saved up, so the rate holds in
    every second. `wait` sleeps (seconds) and may return early.
    """

    def __init__(
        self,
        bytes_per_second: float,
        wait: Callable[[float], object] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._bytes_per_second = bytes_per_second
        self._wait = wait
        self._clock = clock
        self._lock = threading.Lock()
        self._free_at = clock()

    def take(self, taken_bytes: int) -> None:
        """Wait until that many bytes may have been read or written."""
        seconds = taken_bytes / self._bytes_per_second
        with self._lock:
            now = self._clock()
            self._free_at = max(self._free_at, now) + seconds
            pause = self._free_at - now
        if pause > _SHORTEST_SECONDS:
            self._wait(pause)


_SHORTEST_SECONDS = 0.001
