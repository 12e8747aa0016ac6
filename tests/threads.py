"""Threads of a test: one that hangs fails the test, and does not keep the run from ending."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from typing import Final

_TIMEOUT_S: Final = 120.0


def started(target: Callable[..., object], *arguments: object) -> threading.Thread:
    """A thread that runs `target` and ends with the process at the latest."""
    thread = threading.Thread(target=target, args=arguments, daemon=True)
    thread.start()
    return thread


def join(threads: Iterable[threading.Thread]) -> None:
    """Wait until all have ended; fail where one does not in time."""
    deadline_s = time.monotonic() + _TIMEOUT_S
    for thread in threads:
        thread.join(max(0.0, deadline_s - time.monotonic()))
        assert not thread.is_alive(), f"{thread.name} did not end within {_TIMEOUT_S:.0f} s"
