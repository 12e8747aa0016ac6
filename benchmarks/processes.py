"""Reads from /proc what a process and its children use: CPU time and resident memory (Linux only)."""

from __future__ import annotations

import os
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def tree_cpu_s(pid: int) -> float:
    """CPU time so far of a process and its descendants, those that have ended included."""
    return sum(map(_cpu_s, process_tree(pid)))


def tree_rss_bytes(pid: int) -> int:
    """Resident memory now of a process and its descendants."""
    return sum(map(_rss_bytes, process_tree(pid)))


def process_tree(pid: int) -> list[int]:
    """The ids of a process and its descendants that run now."""
    pids = [pid]
    for each in pids:
        for children in Path(f"/proc/{each}/task").glob("*/children"):
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
