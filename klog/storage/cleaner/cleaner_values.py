"""The configs and the numbers of the cleaner of a broker."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from klog.storage.cleaner.cleaning import OnBytes, OnGroup
from klog.storage.cleaner.task import (
    DEFAULT_DEDUPE_BUFFER_BYTES,
    DEFAULT_IO_BUFFER_BYTES,
    DEFAULT_REPORT_BYTES,
    CleanerSettings,
    CleanResult,
    CleanStats,
    CleanTask,
)

MOST_DEDUPE_BUFFER_BYTES: Final = 2**31 - 1
_LEAST_REPORT_BYTES: Final = 64 << 10


@dataclass(frozen=True, slots=True)
class CleanerConfig:
    """The broker's `log.cleaner.*`."""

    threads: int = 1
    dedupe_buffer_bytes: int = DEFAULT_DEDUPE_BUFFER_BYTES
    load_factor: float = 0.9
    io_buffer_bytes: int = DEFAULT_IO_BUFFER_BYTES
    io_max_bytes_per_second: float = float("inf")
    backoff_ms: int = 15_000

    @property
    def of_one_thread(self) -> CleanerSettings:
        """The part of each thread."""
        return CleanerSettings(
            min(self.dedupe_buffer_bytes // self.threads, MOST_DEDUPE_BUFFER_BYTES),
            self.load_factor,
            self.io_buffer_bytes // self.threads,
            int(min(DEFAULT_REPORT_BYTES, max(_LEAST_REPORT_BYTES, self.io_max_bytes_per_second / 4))),
        )


@dataclass(slots=True)
class CleanerMetrics:
    """Numbers of the last cleanings (by thread). Times are in ms, the ratio is from 0 to 1."""

    last_run_ms: int = 0
    max_dirty_ratio: float = 0.0
    max_delay_ms: int = 0
    last_stats: dict[int, CleanStats] = field(default_factory=dict)


CleanFunction = Callable[[CleanTask, OnGroup, OnBytes], CleanResult]
