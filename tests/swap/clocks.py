"""Sets the wall clock of one klog process, by Python code that it runs first."""

from __future__ import annotations

from pathlib import Path

HOUR_S = 3600


def settable(clock: Path) -> str:
    """Python code that moves the wall clock by the number of seconds in the file."""
    return f"""
import pathlib, time
_clock, _time_ns = pathlib.Path({str(clock)!r}), time.time_ns
time.time_ns = lambda: _time_ns() + int(_clock.read_text() or 0) * 1_000_000_000
time.time = lambda: time.time_ns() / 1e9
"""
