"""A limit on bytes a second, shared by all cleaner threads (`log.cleaner.io.max.bytes.per.second`)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class Throttle:
    """Makes its callers wait so that together they take no more than `bytes_per_second`.

    Each caller's bytes have a stretch of time of their own, one after the other's: nobody saves up, so the
    rate holds over every second. `wait` sleeps (seconds) and may return early.
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
        """Wait until so many bytes may have been read or written."""
        seconds = taken_bytes / self._bytes_per_second
        with self._lock:
            now = self._clock()
            self._free_at = max(self._free_at, now) + seconds
            pause = self._free_at - now
        if pause > _SHORTEST_SECONDS:
            self._wait(pause)


_SHORTEST_SECONDS = 0.001
