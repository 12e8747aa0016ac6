"""Reports how far a file was read, for progress bars: in large steps, and its size in all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

STEP_BYTES: Final = 4 << 20

OnBytes = Callable[[int], None]
"""Receives how many bytes more are done."""


class FileProgress:
    """The progress through `size_bytes` of a file from `start_bytes` on.

    Positions may come in any order, and beyond the end: of a gzipped copy they count decompressed bytes.
    """

    __slots__ = ("_done_bytes", "_report", "_size_bytes", "_start_bytes")

    def __init__(self, report: OnBytes, size_bytes: int, start_bytes: int = 0) -> None:
        self._report = report
        self._size_bytes = size_bytes
        self._start_bytes = start_bytes
        self._done_bytes = 0

    def reached(self, position_bytes: int) -> None:
        """The file was read up to this position."""
        done_bytes = min(position_bytes - self._start_bytes, self._size_bytes)
        if done_bytes - self._done_bytes >= STEP_BYTES:
            self._advance(done_bytes)

    def finish(self) -> None:
        """The work on the file is done."""
        if self._done_bytes < self._size_bytes:
            self._advance(self._size_bytes)

    def _advance(self, done_bytes: int) -> None:
        self._report(done_bytes - self._done_bytes)
        self._done_bytes = done_bytes
