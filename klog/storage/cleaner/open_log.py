"""A log that a broker serves, as the cleaner reads and changes it."""

from __future__ import annotations

import os
from collections.abc import Callable

from klog.config.topic import TopicConfig
from klog.formats.errors import StorageError
from klog.formats.names import FileKind, TopicPartition
from klog.storage.cleaner.swap import discard, swap_in
from klog.storage.cleaner.task import CleanedGroup, CleaningAbortedError
from klog.storage.cleaner.view import LastRecord, LastRecords, LogView, SegmentView
from klog.storage.log.disk_guard import LogClosedError, all_or_nothing
from klog.storage.log.log_values import Background
from klog.storage.log.partition_log import PartitionLog
from klog.storage.log.retention import apply_retention
from klog.storage.log.segment import LogSegment

_NS_PER_MS = 1_000_000


class OpenLog:
    """A `PartitionLog` as the cleaner uses it. It is cheap to create. Methods may be called by any thread;
    they raise `OSError` or `StorageError`.
    """

    def __init__(self, log: PartitionLog, background: Background, clock_ms: Callable[[], int]) -> None:
        self._log = log
        self._background = background
        self._clock_ms = clock_ms
        self._cuts = log.cuts

    @property
    def partition(self) -> TopicPartition:
        """The partition."""
        return self._log.partition

    @property
    def log_directory(self) -> str:
        """The log directory that contains it."""
        return os.path.dirname(self._log.directory)

    @property
    def config(self) -> TopicConfig:
        """The present configs of its topic."""
        return self._log.config

    def view(self) -> LogView:
        """Its present segments and offsets. Raises `LogClosedError`, `OSError`."""
        log = self._log
        with log.lock:
            self._require_open()
            self._cuts = log.cuts
            active = log.segments.active
            return LogView(
                log.partition,
                log.directory,
                log.config,
                tuple(_segment_view(segment, active=segment is active) for segment in log.segments),
                log.log_start_offset,
                log.log_end_offset,
                log.last_stable_offset,
            )

    @property
    def was_truncated(self) -> bool:
        """Whether the log was truncated since it was viewed."""
        return self._log.cuts != self._cuts

    def last_records(self) -> LastRecords:
        """The last records of its active producers."""
        with self._log.lock:
            entries = self._log.producers.entries()
        return {pid: LastRecord(entry.last_offset, entry.epoch) for pid, entry in entries.items()}

    def replace_segments(self, group: CleanedGroup) -> None:
        """Swap a cleaned segment in. Fetches that are sending from an old one continue; its files are deleted
        later.

        Raises `LogClosedError`, and `CleaningAbortedError` if the log was truncated since it was viewed: a
        follower may have dropped what was cleaned. If the disk fails, the log is closed and `OSError` or
        `StorageError` is raised.
        """
        log = self._log

        def let_go() -> None:
            self._require_open()
            if self.was_truncated:
                raise CleaningAbortedError(f"{log.partition} was truncated while it was cleaned")
            old = [segment for segment in log.segments if segment.base_offset in group.replaces]
            log.segments.remove(old)
            for segment in old:
                segment.release()

        def take_up() -> None:
            log.segments.add(LogSegment(log.directory, group.base_offset, log.config, self._clock_ms()))

        try:
            self._require_open()
            with all_or_nothing(log.directory):
                gone = swap_in(log.directory, group, held=log.lock, let_go=let_go, take_up=take_up)
        except CleaningAbortedError:
            # Otherwise the next start would complete the swap.
            discard(log.directory, group)
            raise
        except (OSError, StorageError) as error:
            log.fail(error)
            raise
        if gone:
            self._background.delete_later(log, gone, log.config.file_delete_delay_ms)

    def delete_old_segments(self, now_ms: int) -> None:
        """Apply retention."""
        apply_retention(self._log, now_ms)

    def _require_open(self) -> None:
        if self._log.closed:
            raise LogClosedError("the log is closed", file=self._log.directory)


def _segment_view(segment: LogSegment, *, active: bool) -> SegmentView:
    modified_ms = os.stat(segment.path(FileKind.LOG)).st_mtime_ns // _NS_PER_MS
    return SegmentView(
        segment.base_offset,
        segment.size,
        modified_ms,
        segment.largest_timestamp(),
        segment.first_timestamp(),
        # Only closed segments are cleaned. Their index files have no pre-allocated part.
        0 if active else _size(segment, FileKind.OFFSET_INDEX),
        0 if active else _size(segment, FileKind.TIME_INDEX),
    )


def _size(segment: LogSegment, kind: FileKind) -> int:
    try:
        return os.stat(segment.path(kind)).st_size
    except FileNotFoundError:  # it is created when it is first used
        return 0
