"""How many tasks that keep a core busy can run at once."""

from __future__ import annotations

import os
import sys


def available_cores() -> int:
    """The cores that this process may use: a container often has fewer than the machine."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def own_cores() -> int:
    """The cores that threads of this process can keep busy: one in a worker process, which is one of many."""
    processes = sys.modules.get("multiprocessing.process")
    is_worker = processes is not None and processes.parent_process() is not None
    return 1 if is_worker else available_cores()
