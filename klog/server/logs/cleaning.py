"""The cleaner inside the broker: its configs, and the deletion of logs that it may be cleaning."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

from klog.config.broker import BrokerConfig
from klog.formats.errors import KlogError, StorageError
from klog.formats.names import TopicPartition
from klog.storage.cleaner.cleaner_values import CleanerConfig, CleanFunction
from klog.storage.cleaner.log_cleaner import LogCleaner
from klog.storage.cleaner.open_log import OpenLog
from klog.storage.cleaner.worker import clean_in_worker
from klog.storage.log.log_manager import LogManager
from klog.storage.log.log_map import parent_of
from klog.storage.log.partition_log import PartitionLog

_log = logging.getLogger(__name__)


def cleaner_config(config: BrokerConfig) -> CleanerConfig:
    """The cleaner's settings from the configs `log.cleaner.*`."""

    def real(name: str) -> float:
        value = config[name]
        return float(value) if isinstance(value, int | float) else 0.0

    return CleanerConfig(
        threads=config.number("log.cleaner.threads"),
        dedupe_buffer_bytes=config.number("log.cleaner.dedupe.buffer.size"),
        load_factor=real("log.cleaner.io.buffer.load.factor"),
        io_buffer_bytes=config.number("log.cleaner.io.buffer.size"),
        io_max_bytes_per_second=real("log.cleaner.io.max.bytes.per.second"),
        backoff_ms=config.number("log.cleaner.backoff.ms"),
    )


def open_cleaner(
    logs: LogManager,
    directories: Sequence[str],
    config: BrokerConfig,
    clock_ms: Callable[[], int],
    clean: CleanFunction = clean_in_worker,
) -> LogCleaner:
    """The cleaner of a broker's logs, not started."""

    def disk_failed(directory: str, error: Exception) -> None:
        found = error if isinstance(error, OSError | KlogError) else StorageError(str(error), file=directory)
        # A deletion waits for the cleaning to end, with locks held that the failure's listeners need.
        logs.background.fails_soon(directory, found)

    def set_aside(partition: TopicPartition, error: Exception) -> None:
        _log.error("%s is not cleaned any more until the broker restarts: %s", partition, error)

    return LogCleaner(
        lambda: [OpenLog(log, logs.background, clock_ms) for log in logs.logs() if log.is_confirmed],
        directories,
        cleaner_config(config),
        clock_ms=clock_ms,
        on_directory_failure=disk_failed,
        on_uncleanable=set_aside,
        clean=clean,
    )


class ServedLogs:
    """The log manager as the replica manager uses it.

    Before a log is created, `read_configs` reads its topic's configs: those of a new topic are not announced.
    Before a log is renamed, deleted or truncated, its cleaning is stopped.
    """

    def __init__(self, logs: LogManager, cleaner: LogCleaner, read_configs: Callable[[str], None]) -> None:
        self._logs = logs
        self._cleaner = cleaner
        self._read_configs = read_configs
        # In `creating`: the topics whose configs have been read.
        self._configured: set[str] | None = None

    def get(self, partition: TopicPartition) -> PartitionLog | None:
        """The log that serves a replica, if there is one."""
        return self._logs.get(partition)

    def get_or_create(self, partition: TopicPartition, topic_id: str | None, *, is_new: bool) -> PartitionLog:
        """The log of a replica; created if there is none. Raises `StorageError`, `OSError`."""
        if self._logs.get(partition) is None and partition.topic not in (self._configured or ()):
            self._read_configs(partition.topic)
            if self._configured is not None:
                self._configured.add(partition.topic)
        return self._logs.get_or_create(partition, topic_id, is_new=is_new)

    @contextmanager
    def creating(self) -> Iterator[None]:
        """Logs that are created inside are forced to disk together, and configs are read once a topic."""
        self._configured = set()
        try:
            with self._logs.creating():
                yield
        finally:
            self._configured = None

    def delete(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Exception]:
        """Delete logs; the cleaner's checkpoints forget them. Returns the errors of those that failed."""
        return self._remove(partitions, self._logs.delete)

    def set_aside_strays(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Exception]:
        """Rename logs to `-stray`; the cleaner's checkpoints forget them. Returns the errors of those that
        failed.
        """
        return self._remove(partitions, self._logs.set_aside_strays)

    def _remove(
        self,
        partitions: Iterable[TopicPartition],
        remove: Callable[[Iterable[TopicPartition]], dict[TopicPartition, Exception]],
    ) -> dict[TopicPartition, Exception]:
        wanted = dict.fromkeys(partitions)
        with self._not_cleaned(wanted) as directories:
            failed = remove(wanted)
        by_directory: dict[str, list[TopicPartition]] = {}
        for partition, directory in directories.items():
            if partition not in failed:
                by_directory.setdefault(directory, []).append(partition)
        for directory, deleted in by_directory.items():
            self._cleaner.forget(deleted, directory)
        return failed

    def truncate_to(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, Exception]:
        """Drop the records at and above each offset. Returns the errors of those logs that failed."""
        return self._truncate(offsets, self._logs.truncate_to)

    def restart_at(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, Exception]:
        """Drop all records and begin again at each offset. Returns the errors of those logs that failed."""
        return self._truncate(offsets, self._logs.restart_at)

    def _truncate(
        self,
        offsets: Mapping[TopicPartition, int],
        change: Callable[[Mapping[TopicPartition, int]], dict[TopicPartition, Exception]],
    ) -> dict[TopicPartition, Exception]:
        with self._not_cleaned(offsets) as directories:
            failed = change(offsets)
            for partition, directory in directories.items():
                # What is written from this offset on is dirty again.
                self._cleaner.truncated(partition, directory, offsets[partition])
        return failed

    @contextmanager
    def _not_cleaned(self, partitions: Iterable[TopicPartition]) -> Iterator[dict[TopicPartition, str]]:
        """Stop the cleaning of logs while the body changes them; gives their log directories."""
        directories: dict[TopicPartition, str] = {}
        with ExitStack() as pauses:
            for partition in partitions:
                log = self._logs.get(partition)
                if log is not None:
                    directories[partition] = parent_of(log)
                    pauses.enter_context(self._cleaner.paused(partition))
            yield directories
