"""The memory that requests may take, from the first byte of a frame to its answer.

Rules: `queued.max.request.bytes` (KIP-72). As in Kafka a request may have what it needs as long as anything
is left, so the last one may take more than that, and one that is larger than all of it is served, too.
"""

from __future__ import annotations

import threading
from collections.abc import Callable


class MemoryPool:
    """Safe for threads. `on_room` is called, by any thread, when somebody was refused and there is room
    again.
    """

    def __init__(self, size_bytes: int, on_room: Callable[[], None]) -> None:
        self.size_bytes = size_bytes
        self._on_room = on_room
        self._lock = threading.Lock()
        self._available_bytes = size_bytes
        self._refused = False

    def take(self, wanted_bytes: int) -> bool:
        """Whether a frame of this size may be read now."""
        with self._lock:
            if self._available_bytes <= 0:
                self._refused = True
                return False
            self._available_bytes -= wanted_bytes
            return True

    def give_back(self, size_bytes: int) -> None:
        """The request has been answered, or its connection is gone."""
        with self._lock:
            self._available_bytes += size_bytes
            tell = self._refused and self._available_bytes > 0
            if tell:
                self._refused = False
        if tell:
            self._on_room()

    @property
    def available_bytes(self) -> int:
        """What is left; below 0 where the last request took more than there was."""
        return self._available_bytes
