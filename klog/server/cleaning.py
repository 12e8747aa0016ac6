"""The cleaner inside the broker: its configs, and logs that are deleted while it may be at work on them."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack

from klog.config.broker import BrokerConfig
from klog.formats.errors import KlogError, StorageError
from klog.formats.names import TopicPartition
from klog.storage.cleaner.log_cleaner import CleanerConfig, LogCleaner
from klog.storage.cleaner.open_log import OpenLog
from klog.storage.log.log_manager import LogManager
from klog.storage.log.partition_log import PartitionLog

logger = logging.getLogger(__name__)


def cleaner_config(config: BrokerConfig) -> CleanerConfig:
    """`log.cleaner.*` as they are now."""

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
    logs: LogManager, directories: Sequence[str], config: BrokerConfig, clock_ms: Callable[[], int]
) -> LogCleaner:
    """The cleaner of all logs of a broker, not started."""

    def disk_failed(directory: str, error: Exception) -> None:
        found = error if isinstance(error, OSError | KlogError) else StorageError(str(error), file=directory)
        # Who deletes a log waits for its cleaning to end, with locks held that the failure's listeners want.
        logs.background.fails_soon(directory, found)

    def set_aside(partition: TopicPartition, error: Exception) -> None:
        logger.error("%s is not cleaned any more, until the broker starts anew: %s", partition, error)

    return LogCleaner(
        lambda: [OpenLog(log, logs.background, clock_ms) for log in logs.logs()],
        directories,
        cleaner_config(config),
        clock_ms=clock_ms,
        on_directory_failure=disk_failed,
        on_uncleanable=set_aside,
    )


class ServedLogs:
    """The log manager as the replica manager uses it.

    A log that is made has its topic's configs read first (`read_configs`): nobody announces those of a new
    topic; a log that is deleted has its cleaning stopped first.
    """

    def __init__(self, logs: LogManager, cleaner: LogCleaner, read_configs: Callable[[str], None]) -> None:
        self._logs = logs
        self._cleaner = cleaner
        self._read_configs = read_configs

    def get_or_create(self, where: TopicPartition, topic_id: str | None, *, is_new: bool) -> PartitionLog:
        """As the log manager does."""
        if self._logs.get(where) is None:
            self._read_configs(where.topic)
        return self._logs.get_or_create(where, topic_id, is_new=is_new)

    def delete(self, replicas: Iterable[TopicPartition]) -> dict[TopicPartition, Exception]:
        """As the log manager does, once nothing is being cleaned in them; their checkpoints go too."""
        by_directory: dict[str, list[TopicPartition]] = {}
        wanted = dict.fromkeys(replicas)
        with ExitStack() as pauses:
            for where in wanted:
                log = self._logs.get(where)
                if log is not None:
                    by_directory.setdefault(os.path.dirname(log.directory), []).append(where)
                    pauses.enter_context(self._cleaner.paused(where))
            failed = self._logs.delete(wanted)
        for directory, deleted in by_directory.items():
            self._cleaner.forget([where for where in deleted if where not in failed], directory)
        return failed
