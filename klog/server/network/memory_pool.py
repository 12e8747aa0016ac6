"""Bounds the memory of requests, from the first byte of a frame to its answer.

Rules: `queued.max.request.bytes` (KIP-72). As in Kafka a request gets all that it needs as long as anything
is left. So the last one may take more than is left, and a request that is larger than the pool is served,
too.
"""

from __future__ import annotations

import threading
from collections.abc import Callable


class MemoryPool:
    """Safe for threads. After a refusal `on_available` is called, by any thread, once memory is left
    again.
    """

    def __init__(self, size_bytes: int, on_available: Callable[[], None]) -> None:
        self.size_bytes = size_bytes
        self._on_available = on_available
        self._lock = threading.Lock()
        self.available_bytes = size_bytes
        """What is left; below 0 if the last request took more than was left."""
        self._refused = False

    def take(self, wanted_bytes: int) -> bool:
        """Takes memory for a frame of this size; False if it has to wait."""
        with self._lock:
            if self.available_bytes <= 0:
                self._refused = True
                return False
            self.available_bytes -= wanted_bytes
            return True

    def give_back(self, size_bytes: int) -> None:
        """Returns the memory of a request that was answered, or whose connection is gone."""
        with self._lock:
            self.available_bytes += size_bytes
            available_again = self._refused and self.available_bytes > 0
            if available_again:
                self._refused = False
        if available_again:
            self._on_available()
