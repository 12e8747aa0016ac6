"""How many tasks that keep a core busy can run at once."""

from __future__ import annotations

import os


def available_cores() -> int:
    """The cores that this process may use: a container often has fewer than the machine."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
