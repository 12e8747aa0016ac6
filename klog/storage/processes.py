"""Worker processes for long work on many segments, which end quietly when the user interrupts it."""

from __future__ import annotations

import signal
import sys
from concurrent.futures import ProcessPoolExecutor
from types import FrameType

INTERRUPTED_STATUS = 128 + signal.SIGINT


def worker_processes(count: int) -> ProcessPoolExecutor:
    """A pool of `count` processes. At Ctrl-C, which reaches them all, each tidies up and says nothing."""
    return ProcessPoolExecutor(count, initializer=_end_quietly)


def _end_quietly() -> None:
    signal.signal(signal.SIGINT, _end)


def _end(_number: int, _frame: FrameType | None) -> None:
    # An exit, not the default's KeyboardInterrupt, which each process would print with a traceback; and no
    # sudden death, which would leave a half-written file behind.
    sys.exit(INTERRUPTED_STATUS)
