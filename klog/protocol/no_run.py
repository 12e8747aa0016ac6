"""Stands for the compiled readers of runs where there is no compiled module: the general readers take all."""

from __future__ import annotations


class NoRun:
    """A run that no frame belongs to."""

    def read(self, _buffer: bytearray, _start: int, _end: int) -> int:
        """Read nothing."""
        return 0


ProduceRun = CommitRun = NoRun
