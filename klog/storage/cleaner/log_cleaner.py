"""The cleaner of a broker: threads that look for the dirtiest log, have it cleaned and swap the result in.

Rules: Kafka's `LogCleaner` and its `CleanerThread`. What is decided is `manager`'s and `selection`'s; the
work on data is done in worker processes. Retention of compacted logs is applied here too, so that it never
races with a cleaning. A log that cannot be cleaned is set aside until the broker starts anew; a failing disk
is reported.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, Protocol

from klog.config.topic import TopicConfig
from klog.formats.errors import FormatError, KlogError, StorageError, UsageError
from klog.formats.names import TopicPartition
from klog.storage.cleaner.checkpoint_file import CleanerCheckpointFile
from klog.storage.cleaner.cleaning import OnBytes, OnGroup
from klog.storage.cleaner.manager import CleanerManager, Grab
from klog.storage.cleaner.selection import DirtyLog, dirty_log
from klog.storage.cleaner.task import (
    DEFAULT_DEDUPE_BUFFER_BYTES,
    DEFAULT_IO_BUFFER_BYTES,
    DEFAULT_REPORT_BYTES,
    CleanedGroup,
    CleanerSettings,
    CleaningAbortedError,
    CleanResult,
    CleanStats,
    CleanTask,
)
from klog.storage.cleaner.throttle import Throttle
from klog.storage.cleaner.view import LastRecords, LogView
from klog.storage.cleaner.worker import clean_in_worker
from klog.storage.log.disk_guard import LogClosedError

MOST_DEDUPE_BUFFER_BYTES: Final = 2**31 - 1
_JOIN_SECONDS: Final = 30.0
_LEAST_REPORT_BYTES: Final = 64 << 10


class CleanableLog(Protocol):
    """A log as the cleaner uses it; methods are safe for threads and raise `OSError` or `StorageError`."""

    @property
    def partition(self) -> TopicPartition:
        """Which it is."""

    @property
    def log_directory(self) -> str:
        """The log directory that it is in."""

    @property
    def config(self) -> TopicConfig:
        """Its topic's configs, as they are now."""

    def view(self) -> LogView:
        """What it holds now."""

    def last_records(self) -> LastRecords:
        """The last that its active producers wrote."""

    def replace_segments(self, group: CleanedGroup) -> None:
        """Swap a cleaned segment in (`swap.swap_in`) for those it replaces."""

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
        """What each thread may use."""
        return CleanerSettings(
            min(self.dedupe_buffer_bytes // self.threads, MOST_DEDUPE_BUFFER_BYTES),
            self.load_factor,
            self.io_buffer_bytes // self.threads,
            int(min(DEFAULT_REPORT_BYTES, max(_LEAST_REPORT_BYTES, self.io_max_bytes_per_second / 4))),
        )


@dataclass(slots=True)
class CleanerMetrics:
    """What is known of the last cleanings (by thread). Times in ms; the ratio from 0 to 1."""

    last_run_ms: int = 0
    max_dirty_ratio: float = 0.0
    max_delay_ms: int = 0
    last_stats: dict[int, CleanStats] = field(default_factory=dict)


CleanFunction = Callable[[CleanTask, OnGroup, OnBytes], CleanResult]


class LogCleaner:
    """Start it once logs are loaded, stop it before they are closed.

    `logs` gives the logs there are now; `on_directory_failure` is told of a log directory whose disk failed;
    `on_uncleanable` of a log that is set aside, and why. `clean` does the work (in a process of its own).
    """

    def __init__(
        self,
        logs: Callable[[], Iterable[CleanableLog]],
        log_directories: Sequence[str],
        config: CleanerConfig,
        *,
        clock_ms: Callable[[], int],
        on_directory_failure: Callable[[str, Exception], None],
        on_uncleanable: Callable[[TopicPartition, Exception], None] = lambda partition, error: None,  # noqa: ARG005
        on_cleaned: Callable[[TopicPartition, CleanResult], None] = lambda partition, result: None,  # noqa: ARG005
        clean: CleanFunction = clean_in_worker,
    ) -> None:
        self._logs = logs
        self._config = config
        self._clock_ms = clock_ms
        self._on_directory_failure = on_directory_failure
        self._on_uncleanable = on_uncleanable
        self._on_cleaned = on_cleaned
        self._clean = clean
        self._manager = CleanerManager()
        self._files = {directory: CleanerCheckpointFile(directory) for directory in log_directories}
        self._changed = threading.Condition()  # guards manager and checkpoint files
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self._throttle = Throttle(config.io_max_bytes_per_second, self._stop.wait)
        self.metrics = CleanerMetrics(last_run_ms=clock_ms())

    # -- life ------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the threads."""
        self._stop.clear()
        self._threads = [
            threading.Thread(target=self._run, args=(number,), name=f"log-cleaner-{number}", daemon=True)
            for number in range(self._config.threads)
        ]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Stop; a cleaning under way is given up and leaves the log as it is."""
        self._stop.set()
        for thread in self._threads:
            thread.join(_JOIN_SECONDS)
        self._threads = []

    def reconfigure(self, config: CleanerConfig) -> None:
        """Go on with other configs."""
        running = bool(self._threads)
        self.stop()
        self._config = config
        self._throttle = Throttle(config.io_max_bytes_per_second, self._stop.wait)
        if running:
            self.start()

    def _run(self, number: int) -> None:
        while not self._stop.is_set():
            if not self.clean_dirtiest(number) and self._stop.wait(self._config.backoff_ms / 1000):
                return
            with self._changed:
                self._manager.keep_uncleanable([log.partition for log in self._logs()])

    # -- one round -------------------------------------------------------------------------------------------

    def clean_dirtiest(self, thread: int = 0) -> bool:
        """Clean the dirtiest log, if any can be cleaned, and apply retention to the compacted ones.

        Whether a log was cleaned.
        """
        by_partition = {log.partition: log for log in self._logs() if log.config.compact}
        grab = self._grab(by_partition)
        cleaned = False
        if grab.dirty is not None:
            cleaned = self._clean_log(by_partition[grab.dirty.log.partition], grab.dirty, thread)
        if not self._stop.is_set():
            self._delete_old_segments(by_partition.values())
        return cleaned

    def _grab(self, logs: Mapping[TopicPartition, CleanableLog]) -> Grab:
        now_ms = self._clock_ms()
        with self._changed:
            checkpoints = self._checkpoints()
            views = []
            for log in logs.values():
                if self._manager.is_free(log.partition, log.log_directory):
                    with self._watched(log):
                        views.append(log.view())
            grab = self._manager.grab(views, checkpoints, now_ms)
            for partition, offset in grab.resets.items():
                self._update_checkpoint(logs[partition].log_directory, {partition: offset})
            self.metrics.last_run_ms = now_ms
            self.metrics.max_dirty_ratio = grab.max_dirty_ratio
            self.metrics.max_delay_ms = grab.max_delay_ms
        return grab

    def _clean_log(self, log: CleanableLog, dirty: DirtyLog, thread: int) -> bool:
        partition = log.partition
        result: CleanResult | None = None

        def on_bytes(advanced_bytes: int) -> None:
            self._throttle.take(advanced_bytes)
            self._check_still_wanted(log)

        def on_group(group: CleanedGroup) -> None:
            self._check_still_wanted(log)
            log.replace_segments(group)

        try:
            with self._watched(log):
                task = CleanTask.of(dirty, self._clock_ms(), log.last_records(), self._config.of_one_thread)
                result = self._clean(task, on_group, on_bytes)
                self.metrics.last_stats[thread] = result.stats
                self._on_cleaned(partition, result)
        finally:
            with self._changed:
                end_offset = dirty.first_dirty_offset if result is None else result.end_offset
                if self._manager.done(partition):
                    self._update_checkpoint(log.log_directory, {partition: end_offset})
                self._changed.notify_all()
        return result is not None

    def _check_still_wanted(self, log: CleanableLog) -> None:
        with self._changed:
            if self._stop.is_set() or self._manager.aborted(log.partition) or not log.config.compact:
                raise CleaningAbortedError(f"cleaning of {log.partition} was aborted")

    def _delete_old_segments(self, logs: Iterable[CleanableLog]) -> None:
        with self._changed:
            free = [
                log
                for log in logs
                if log.config.compact and self._manager.is_free(log.partition, log.log_directory)
            ]
            self._manager.begin_deleting([log.partition for log in free])
        try:
            for log in free:
                with self._watched(log):
                    log.delete_old_segments(self._clock_ms())
        finally:
            with self._changed:
                for log in free:
                    self._manager.done(log.partition)
                self._changed.notify_all()

    @contextmanager
    def _watched(self, log: CleanableLog) -> Iterator[None]:
        """Sets the log aside, or reports its disk, where what is inside fails."""
        try:
            yield
        except (CleaningAbortedError, LogClosedError):
            return  # the log is wanted for something else, or is gone
        except OSError as error:
            self._on_directory_failure(log.log_directory, error)
        except StorageError as error:
            if isinstance(error.__cause__, OSError):
                self._on_directory_failure(log.log_directory, error)
            else:
                self._set_aside(log, error)
        except (KlogError, MemoryError) as error:
            self._set_aside(log, error)

    def _set_aside(self, log: CleanableLog, error: Exception) -> None:
        with self._changed:
            self._manager.mark_uncleanable(log.partition, log.log_directory)
        self._on_uncleanable(log.partition, error)

    # -- checkpoints -----------------------------------------------------------------------------------------

    def _checkpoints(self) -> dict[TopicPartition, int]:
        found: dict[TopicPartition, int] = {}
        for directory, file in list(self._files.items()):
            try:
                found |= file.read()
            except StorageError as error:
                self._on_directory_failure(directory, error)
            except FormatError:
                continue  # as good as none: all is dirty
        return found

    def _update_checkpoint(
        self, directory: str, changes: Mapping[TopicPartition, int], removed: Sequence[TopicPartition] = ()
    ) -> None:
        file = self._files.get(directory)
        if file is None:
            return
        existing = {log.partition for log in self._logs()} | changes.keys()
        try:
            file.update(changes, existing=existing, removed=removed)
        except FormatError:
            file.write(changes)
        except StorageError as error:
            self._on_directory_failure(directory, error)

    def forget(self, partitions: Sequence[TopicPartition], log_directory: str) -> None:
        """The logs are deleted: drop their checkpoints."""
        with self._changed:
            self._update_checkpoint(log_directory, {}, removed=partitions)

    def truncated(self, partition: TopicPartition, log_directory: str, offset: int) -> None:
        """The log was truncated to `offset`: what will be written there is dirty."""
        with self._changed:
            if log_directory in self._files:
                self._files[log_directory].lower(partition, offset)

    def moved(self, partition: TopicPartition, source: str, target: str) -> None:
        """The log has moved to another log directory: its checkpoint goes with it."""
        with self._changed:
            offset = self._files[source].read().get(partition) if source in self._files else None
            if offset is not None:
                self._update_checkpoint(source, {}, removed=(partition,))
                self._update_checkpoint(target, {partition: offset})
            self._manager.move(partition, source, target)

    def directory_failed(self, log_directory: str) -> None:
        """A log directory is offline: its checkpoints are not written any more."""
        with self._changed:
            self._files.pop(log_directory, None)

    # -- holding back ----------------------------------------------------------------------------------------

    def abort_and_pause(self, partition: TopicPartition) -> None:
        """Stop cleaning the log and keep off it; returns when nothing is under way any more."""
        with self._changed:
            self._manager.abort_and_pause(partition)
            self._changed.wait_for(lambda: self._manager.paused(partition))

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Undo one pause of each log."""
        with self._changed:
            self._manager.resume(partitions)

    def abort(self, partition: TopicPartition) -> None:
        """Stop cleaning the log; it may be cleaned again."""
        with self._changed:
            self.abort_and_pause(partition)
            self.resume([partition])

    @contextmanager
    def paused(self, partition: TopicPartition) -> Iterator[None]:
        """Keep off the log while it is truncated, moved or deleted."""
        self.abort_and_pause(partition)
        try:
            yield
        finally:
            self.resume([partition])

    @contextmanager
    def retention_of_others(self) -> Iterator[list[TopicPartition]]:
        """Retention of logs that are not compacted: they are paused in the block, lest the policy changes."""
        with self._changed:
            candidates = [log.partition for log in self._logs() if not log.config.compact]
            partitions = self._manager.pause_if_idle(candidates)
        try:
            yield partitions
        finally:
            self.resume(partitions)

    # -- metrics ---------------------------------------------------------------------------------------------

    def uncleanable_count(self, log_directory: str) -> int:
        """How many logs are set aside (`uncleanable-partitions-count`)."""
        with self._changed:
            return len(self._manager.uncleanable.get(log_directory, ()))

    def uncleanable_bytes(self, log_directory: str) -> int:
        """Bytes that could be cleaned if their logs were not set aside (`uncleanable-bytes`)."""
        now_ms = self._clock_ms()
        with self._changed:
            aside = self._manager.uncleanable.get(log_directory, set())
            checkpoints = self._checkpoints()
            return sum(
                dirty_log(log.view(), checkpoints.get(log.partition), now_ms).cleanable_bytes
                for log in self._logs()
                if log.partition in aside
            )

    def gauges(self) -> dict[str, int]:
        """Kafka's gauges of the cleaner, by Kafka's names."""
        stats = list(self.metrics.last_stats.values())
        read = sum(one.bytes_read for one in stats)
        return {
            "max-dirty-percent": int(100 * self.metrics.max_dirty_ratio),
            "time-since-last-run-ms": self._clock_ms() - self.metrics.last_run_ms,
            "max-compaction-delay-secs": self.metrics.max_delay_ms // 1000,
            "max-buffer-utilization-percent": int(
                100 * max((one.map_utilization for one in stats), default=0.0)
            ),
            "cleaner-recopy-percent": int(100 * sum(one.bytes_written for one in stats) / max(read, 1)),
            "max-clean-time-secs": int(max((one.seconds for one in stats), default=0.0)),
            "DeadThreadCount": sum(not thread.is_alive() for thread in self._threads),
        }

    def require_threads(self, wanted: int) -> None:
        """Raises `UsageError` where Kafka refuses to go from the threads there are to so many at once."""
        current = self._config.threads
        if wanted < 1:
            raise UsageError("Log cleaner threads should be at least 1")
        if wanted < current // 2:
            raise UsageError(
                f"Log cleaner threads cannot be reduced to less than half the current value {current}"
            )
        if wanted > current * 2:
            raise UsageError(
                f"Log cleaner threads cannot be increased to more than double the current value {current}"
            )
