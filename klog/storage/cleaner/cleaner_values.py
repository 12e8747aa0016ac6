"""The configs, the numbers and the interfaces of the cleaner of a broker."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Protocol

from klog.config.topic import TopicConfig
from klog.formats.names import TopicPartition
from klog.storage.cleaner.cleaning import OnBytes, OnGroup
from klog.storage.cleaner.task import (
    DEFAULT_DEDUPE_BUFFER_BYTES,
    DEFAULT_IO_BUFFER_BYTES,
    DEFAULT_REPORT_BYTES,
    CleanedGroup,
    CleanerSettings,
    CleanResult,
    CleanStats,
    CleanTask,
)
from klog.storage.cleaner.view import LastRecords, LogView

MOST_DEDUPE_BUFFER_BYTES: Final = 2**31 - 1
_LEAST_REPORT_BYTES: Final = 64 << 10


class CleanableLog(Protocol):
    """A log as the cleaner uses it. Methods may be called by any thread; they raise `OSError` or
    `StorageError`.
    """

    @property
    def partition(self) -> TopicPartition:
        """The partition."""

    @property
    def log_directory(self) -> str:
        """The log directory that contains it."""

    @property
    def config(self) -> TopicConfig:
        """The present configs of its topic."""

    def view(self) -> LogView:
        """Its present segments and offsets."""

    @property
    def was_truncated(self) -> bool:
        """Whether the log was truncated since it was viewed."""

    def last_records(self) -> LastRecords:
        """The last records of its active producers."""

    def replace_segments(self, group: CleanedGroup) -> None:
        """Replace segments by a cleaned one (`swap.swap_in`)."""

    def delete_old_segments(self, now_ms: int) -> None:
        """Apply retention."""


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
