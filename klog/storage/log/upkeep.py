"""The periodic tasks of a broker's logs: retention, flushes, checkpoints, removal of idle producers.

Rules: Kafka's `LogManager.startup` and `cleanupLogs`. The cleaner applies retention to compacted logs itself,
between its own passes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager, nullcontext

from klog.formats.constants import INT64_MAX
from klog.formats.errors import CorruptRecordError, StorageError
from klog.formats.names import FileKind, TopicPartition
from klog.storage.log.log_manager import LogManager
from klog.storage.log.partition_log import PartitionLog
from klog.storage.log.retention import apply_retention

_log = logging.getLogger(__name__)


KeptFromCleaner = Callable[[], AbstractContextManager[Collection[TopicPartition]]]
"""Gives the partitions to which this module applies retention. The cleaner keeps away from them meanwhile: a
log may stop being compacted while it is cleaned."""


class Upkeep:
    """The periodic tasks of one log manager. Each may also be called at any time."""

    def __init__(
        self,
        manager: LogManager,
        clock_ms: Callable[[], int],
        kept_from_cleaner: KeptFromCleaner | None = None,
    ) -> None:
        """If `kept_from_cleaner` is None, there is no cleaner."""
        self._manager = manager
        self._clock_ms = clock_ms
        self._kept_from_cleaner = kept_from_cleaner or (lambda: nullcontext(self._not_compacted()))

    def start(self) -> None:
        """Give all tasks to the manager's scheduler."""
        settings, every = self._manager.settings, self._manager.scheduler.every
        first_ms = settings.initial_task_delay_ms
        every(settings.retention_check_ms, self.retain, first_after_ms=first_ms)
        if settings.flush_check_ms < INT64_MAX:
            every(settings.flush_check_ms, self.flush, first_after_ms=first_ms)
        for period_ms, kind in (
            (settings.recovery_point_checkpoint_ms, FileKind.RECOVERY_POINT_CHECKPOINT),
            (settings.log_start_checkpoint_ms, FileKind.LOG_START_CHECKPOINT),
            (settings.high_watermark_checkpoint_ms, FileKind.REPLICATION_CHECKPOINT),
        ):
            every(period_ms, self._checkpoint(kind), first_after_ms=min(first_ms, period_ms))
        every(settings.producer_check_ms, self.expire_producers)

    def _checkpoint(self, kind: FileKind) -> Callable[[], None]:
        return lambda: self._manager.checkpoint(kinds=(kind,))

    def retain(self) -> int:
        """Delete old segments; returns how many."""
        now_ms = self._clock_ms()
        deleted = 0
        with self._kept_from_cleaner() as partitions:
            for partition in partitions:
                log = self._manager.get(partition)
                if log is not None:
                    deleted += self._on(log, lambda each: apply_retention(each, now_ms))
        return deleted

    def _not_compacted(self) -> list[TopicPartition]:
        return [log.partition for log in self._manager.logs() if log.is_confirmed and not log.config.compact]

    def flush(self) -> None:
        """Force logs to disk whose last flush is `flush.ms` ago."""
        now_ms = self._clock_ms()
        for log in self._manager.logs():
            if now_ms - log.last_flush_ms >= log.config.flush_ms:
                self._on(log, _flush)

    def expire_producers(self) -> int:
        """Remove producers that have been idle for too long; returns how many."""
        now_ms, expiration_ms = self._clock_ms(), self._manager.settings.producer_expiration_ms
        forgotten = 0
        for log in self._manager.logs():
            with log.lock:
                forgotten += log.producers.remove_expired(now_ms, expiration_ms)
        return forgotten

    @staticmethod
    def _on(log: PartitionLog, task: Callable[[PartitionLog], int]) -> int:
        """Apply a task to one log. If it fails, the tasks of the other logs still run."""
        try:
            return task(log)
        except (OSError, StorageError) as error:
            _log.debug("%s is left out: %s", log, error)
        except CorruptRecordError as error:
            _log.error("%s: %s", log.partition, error)
        return 0


def _flush(log: PartitionLog) -> int:
    log.flush()
    return 0
