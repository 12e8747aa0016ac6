"""The cleaner of a broker: threads that find the dirtiest log, have it cleaned and swap the result in.

Rules: Kafka's `LogCleaner` and its `CleanerThread`. `manager` and `selection` decide; worker processes work
on the data. Retention of compacted logs is applied here too, so that it never races with a cleaning. A log
that cannot be cleaned is set aside until the broker restarts. A failing disk is reported.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from klog.formats.errors import StorageError
from klog.formats.names import TopicPartition
from klog.storage.cleaner.checkpoint_file import CleanerCheckpointFile
from klog.storage.cleaner.cleaner_values import CleanerConfig, CleanerMetrics, CleanFunction
from klog.storage.cleaner.manager import CleanerManager, Grab
from klog.storage.cleaner.open_log import OpenLog
from klog.storage.cleaner.selection import DirtyLog, dirty_log
from klog.storage.cleaner.task import (
    CleanedGroup,
    CleaningAbortedError,
    CleanResult,
    CleanTask,
)
from klog.storage.cleaner.throttle import Throttle
from klog.storage.cleaner.worker import clean_in_worker
from klog.storage.log.disk_guard import LogClosedError

_JOIN_SECONDS: Final = 30.0


class LogCleaner:
    """Start it after logs are loaded, stop it before they are closed.

    `logs` returns the present logs. `on_directory_failure` is called with a log directory whose disk failed,
    `on_uncleanable` with a log that is set aside and the reason. `clean` does the work, in its own process.
    """

    def __init__(
        self,
        logs: Callable[[], Iterable[OpenLog]],
        log_directories: Sequence[str],
        config: CleanerConfig,
        *,
        clock_ms: Callable[[], int],
        on_directory_failure: Callable[[str, Exception], None],
        on_uncleanable: Callable[[TopicPartition, Exception], None] = lambda partition, error: None,  # noqa: ARG005
        clean: CleanFunction = clean_in_worker,
    ) -> None:
        self._logs = logs
        self._config = config
        self._clock_ms = clock_ms
        self._on_directory_failure = on_directory_failure
        self._on_uncleanable = on_uncleanable
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
        """Stop the threads. A running cleaning is aborted and leaves the log as it is."""
        self._stop.set()
        for thread in self._threads:
            thread.join(_JOIN_SECONDS)
        self._threads = []

    def reconfigure(self, config: CleanerConfig) -> None:
        """Continue with other configs."""
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
        """Clean the dirtiest log, if one can be cleaned, and apply retention to the compacted logs.

        Returns whether a log was cleaned.
        """
        by_partition = {log.partition: log for log in self._logs() if log.config.compact}
        grab = self._grab(by_partition)
        cleaned = False
        if grab.dirty is not None:
            cleaned = self._clean_log(by_partition[grab.dirty.log.partition], grab.dirty, thread)
        if not self._stop.is_set():
            self._delete_old_segments(by_partition.values())
        return cleaned

    def _grab(self, logs: Mapping[TopicPartition, OpenLog]) -> Grab:
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

    def _clean_log(self, log: OpenLog, dirty: DirtyLog, thread: int) -> bool:
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
        finally:
            with self._changed:
                end_offset = dirty.first_dirty_offset if result is None else result.end_offset
                if self._manager.done(partition):
                    self._update_checkpoint(log.log_directory, {partition: end_offset})
                self._changed.notify_all()
        return result is not None

    def _check_still_wanted(self, log: OpenLog) -> None:
        with self._changed:
            if self._stop.is_set() or self._manager.aborted(log.partition) or not log.config.compact:
                raise CleaningAbortedError(f"cleaning of {log.partition} was aborted")

    def _delete_old_segments(self, logs: Iterable[OpenLog]) -> None:
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
    def _watched(self, log: OpenLog) -> Iterator[None]:
        """Sets the log aside, or reports its disk, if the block fails."""
        try:
            yield
        except (CleaningAbortedError, LogClosedError):
            return  # the log is paused, or is gone
        except OSError as error:
            self._on_directory_failure(log.log_directory, error)
        except Exception as error:
            if log.was_truncated:
                return  # what was read is not in the log any more
            self._cleaning_failed(log, error)

    def _cleaning_failed(self, log: OpenLog, error: Exception) -> None:
        """Report the disk, or set the log aside: whatever it is, the thread goes on with the others, as in
        Kafka.
        """
        if isinstance(error, StorageError) and isinstance(error.__cause__, OSError):
            self._on_directory_failure(log.log_directory, error)
        else:
            self._set_aside(log, error)

    def _set_aside(self, log: OpenLog, error: Exception) -> None:
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
        except StorageError as error:
            self._on_directory_failure(directory, error)

    def forget(self, partitions: Sequence[TopicPartition], log_directory: str) -> None:
        """The logs are deleted: remove their checkpoints."""
        with self._changed:
            self._update_checkpoint(log_directory, {}, removed=partitions)

    def truncated(self, partition: TopicPartition, log_directory: str, offset: int) -> None:
        """The log was truncated to `offset`: what is written there is dirty."""
        with self._changed:
            file = self._files.get(log_directory)
            if file is None:
                return
            try:
                file.lower(partition, offset)
            except StorageError as error:
                self._on_directory_failure(log_directory, error)

    def moved(self, partition: TopicPartition, source: str, target: str) -> None:
        """The log has moved to another log directory: move its checkpoint."""
        with self._changed:
            offset = self._files[source].read().get(partition) if source in self._files else None
            if offset is not None:
                self._update_checkpoint(source, {}, removed=(partition,))
                self._update_checkpoint(target, {partition: offset})
            self._manager.move(partition, source, target)

    def directory_failed(self, log_directory: str) -> None:
        """A log directory is offline: its checkpoint is no longer written."""
        with self._changed:
            self._files.pop(log_directory, None)

    # -- holding back ----------------------------------------------------------------------------------------

    def abort_and_pause(self, partition: TopicPartition) -> None:
        """Abort a cleaning of the log and pause the log. Returns when nothing is in progress any more."""
        with self._changed:
            self._manager.abort_and_pause(partition)
            self._changed.wait_for(lambda: self._manager.paused(partition))

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Undo one pause of each log."""
        with self._changed:
            self._manager.resume(partitions)

    @contextmanager
    def paused(self, partition: TopicPartition) -> Iterator[None]:
        """Do not clean the log in the block, in which it is truncated, moved or deleted."""
        self.abort_and_pause(partition)
        try:
            yield
        finally:
            self.resume([partition])

    @contextmanager
    def retention_of_others(self) -> Iterator[list[TopicPartition]]:
        """The logs that are not compacted, for retention. They are paused in the block, because their policy
        may change.
        """
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
