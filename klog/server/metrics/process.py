"""Metrics of the process, under the names of Prometheus' own clients, and of the build."""

from __future__ import annotations

import os
import platform
import resource
import threading
from collections.abc import Iterator
from importlib.metadata import version
from typing import Final

from klog.server.metrics.exposition import Metric, Sample, counter, gauge

_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_STATM: Final = "/proc/self/statm"
_DESCRIPTORS: Final = "/proc/self/fd"


def build_info() -> Metric:
    """The versions of klog and Python."""
    labels = {"version": version("klog"), "python": platform.python_version()}
    return Metric("klog_build_info", "gauge", "what runs here", (Sample(labels, 1),))


def process_metrics(start_time_s: float) -> Iterator[Metric]:
    """CPU, memory, descriptors and threads. Metrics that need /proc are left out if there is none."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    yield counter("process_cpu_seconds_total", "CPU seconds of this process", used.ru_utime + used.ru_stime)
    yield gauge("process_start_time_seconds", "when it started, since the epoch", start_time_s)
    yield gauge("process_max_fds", "how many it may have open", resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    yield gauge("process_threads", "threads of Python", threading.active_count())
    if os.path.exists(_STATM):
        with open(_STATM, encoding="ascii") as statm:
            virtual, resident = (int(pages) * _PAGE_BYTES for pages in statm.read().split()[:2])
        yield gauge("process_virtual_memory_bytes", "virtual memory", virtual)
        yield gauge("process_resident_memory_bytes", "resident memory", resident)
        yield gauge("process_open_fds", "open file descriptors", len(os.listdir(_DESCRIPTORS)))
