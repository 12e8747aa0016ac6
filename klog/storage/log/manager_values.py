"""The settings of the log manager, and the interface of its listener."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from klog.config.broker import BrokerConfig
from klog.formats.constants import INT64_MAX
from klog.formats.names import TopicPartition
from klog.storage.reading.producer_history import DEFAULT_PRODUCER_EXPIRATION_MS


@dataclass(frozen=True, slots=True)
class ManagerSettings:
    """Log directories in the order of `log.dirs`, and the periods of tasks; the defaults are Kafka's."""

    directories: tuple[str, ...]
    recovery_threads_per_directory: int = 1
    initial_task_delay_ms: int = 30_000
    retention_check_ms: int = 300_000
    flush_check_ms: int = INT64_MAX
    recovery_point_checkpoint_ms: int = 60_000
    log_start_checkpoint_ms: int = 60_000
    high_watermark_checkpoint_ms: int = 5_000
    producer_check_ms: int = 600_000
    producer_expiration_ms: int = DEFAULT_PRODUCER_EXPIRATION_MS
    directory_delete_delay_ms: int = 60_000

    @classmethod
    def of(cls, config: BrokerConfig, directories: tuple[str, ...]) -> ManagerSettings:
        """The settings that a broker's configs give."""
        return cls(
            directories,
            config.number("num.recovery.threads.per.data.dir"),
            config.number("log.initial.task.delay.ms"),
            config.number("log.retention.check.interval.ms"),
            config.number("log.flush.scheduler.interval.ms"),
            config.number("log.flush.offset.checkpoint.interval.ms"),
            config.number("log.flush.start.offset.checkpoint.interval.ms"),
            config.number("replica.high.watermark.checkpoint.interval.ms"),
            config.number("producer.id.expiration.check.interval.ms"),
            config.number("producer.id.expiration.ms"),
            config.number("log.segment.delete.delay.ms"),
        )


class Progress(NamedTuple):
    """The progress of loading one log directory; `recovered` says that the log was not closed cleanly."""

    directory: str
    partition: TopicPartition
    done: int
    total: int
    recovered: bool


class Listener(Protocol):
    """Hears from the log manager, in the log manager's threads."""

    def loaded(self, progress: Progress) -> None:
        """One more log has been loaded."""

    def directory_failed(self, directory: str, partitions: tuple[TopicPartition, ...], why: str) -> None:
        """A log directory has gone offline, with the logs of these partitions."""

    def all_directories_failed(self) -> None:
        """No log directory is left: the broker has to stop."""
