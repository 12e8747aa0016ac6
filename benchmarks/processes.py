"""Reads from /proc what a process and its children use: CPU time and resident memory (Linux only).

A process that ended still counts: in the times of the parent that waited for it, or, if its parent ended
before, as a child of the process that called `adopt_orphans`.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from pathlib import Path

from benchmarks.measure import BenchmarkError

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PR_SET_CHILD_SUBREAPER = 36
_TRIES = 100


def adopt_orphans() -> None:
    """Make descendants whose parent ends the children of this process, so that their CPU time is not lost.

    They are not waited for: an ended one keeps its times in /proc until this process ends. PySpark's daemon
    ends without waiting for its workers.
    """
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl cannot adopt orphans")


def tree_cpu_s(pid: int) -> float:
    """CPU time so far of a process and its descendants, those that have ended included.

    It is read again if a process began or ended meanwhile. Raises BenchmarkError if that never stops.
    """
    for _ in range(_TRIES):
        pids = process_tree(pid)
        try:
            cpu_s = sum(map(_cpu_s, pids))
        except OSError:
            continue  # one has ended, and its parent has its times now
        if process_tree(pid) == pids:
            return cpu_s
    raise BenchmarkError(f"processes below {pid} begin and end too fast to be measured")


def require_possible(what: str, cpu_s: float, wall_s: float) -> None:
    """Raises BenchmarkError for CPU time below 0, or above what all cores have in that time."""
    most_s = wall_s * (os.cpu_count() or 1) * 1.1 + 1
    if not 0 <= cpu_s <= most_s:
        raise BenchmarkError(f"{what}: {cpu_s:.2f} s of CPU in {wall_s:.2f} s of wall time is impossible")


def tree_rss_bytes(pid: int) -> int:
    """Resident memory now of a process and its descendants."""
    return sum(map(_rss_bytes, process_tree(pid)))


def process_tree(pid: int) -> list[int]:
    """The ids of a process and its descendants that run now."""
    pids = [pid]
    for each in pids:
        for children in Path(f"/proc/{each}/task").glob("*/children"):
            with contextlib.suppress(OSError):  # it has ended, and its children have another parent
                pids += map(int, children.read_text().split())
    return pids


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    # utime, stime, and those of children that have ended.
    return sum(map(int, fields[11:15])) / _TICKS_PER_S


def _rss_bytes(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    return 0
