"""Bounds what the second opinion on checksums costs a broker.

Before a broker calls the records of a producer damaged, crcmod computes their checksum again, which is slow
and holds the interpreter lock. A client that sends nothing but damaged records must not slow down the others.
So crcmod reads at most so many bytes of producers' records in a second, in one broker; one append a second is
always read, whatever its size is. Records that fail their checksum beyond that are not called damaged: they
are not written, and the producer is told to send them again.
"""

from __future__ import annotations

import threading
from typing import Final

from klog.storage.log.append_values import AppendError

MOST_BYTES_A_SECOND: Final = 1 << 20
"""crcmod takes 20 ms for them, and without its C part some tenths of a second."""


class SecondOpinions:
    """Counts the bytes of each second of the wall clock. Safe for threads."""

    def __init__(self, most_bytes: int = MOST_BYTES_A_SECOND) -> None:
        self._most_bytes = most_bytes
        self._lock = threading.Lock()
        self._second = 0
        self._read_bytes = 0

    def require(self, size_bytes: int, now_ms: int) -> None:
        """Counts bytes that crcmod is to read. Raises `AppendError` if it may not read them now."""
        if not size_bytes:
            return
        second = now_ms // 1000
        with self._lock:
            if second != self._second:
                self._second, self._read_bytes = second, 0
            if self._read_bytes and self._read_bytes + size_bytes > self._most_bytes:
                raise AppendError(
                    "REQUEST_TIMED_OUT",
                    "the checksum does not match, and too many of this second do not for a second opinion",
                )
            self._read_bytes += size_bytes
