"""A log manager on real directories, whose scheduler a test drives by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from klog.config.topic import TopicConfig, default_topic_config
from klog.formats.names import FileKind, TopicPartition
from klog.storage.log.data_directory import DataDirectory
from klog.storage.log.log_manager import LogManager
from klog.storage.log.manager_values import ManagerSettings, Progress
from klog.storage.log.partition_log import PartitionLog
from klog.storage.log.scheduler import Scheduler
from klog.storage.log.upkeep import Upkeep
from tests.storage.log.building import Clock

TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAQ"


class KeepingListener:
    """Keeps what the manager reports."""

    def __init__(self) -> None:
        self.progress: list[Progress] = []
        self.failed: list[tuple[str, tuple[TopicPartition, ...]]] = []
        self.all_failed = False

    def loaded(self, progress: Progress) -> None:
        self.progress.append(progress)

    def directory_failed(self, directory: str, partitions: tuple[TopicPartition, ...], why: str) -> None:
        assert why
        self.failed.append((directory, partitions))

    def all_directories_failed(self) -> None:
        self.all_failed = True


class Managed:
    """A manager with all that belongs to it."""

    def __init__(
        self, *directories: Path, topics: dict[str, dict[str, str]] | None = None, **values: Any
    ) -> None:
        self.clock = Clock()
        self.listener = KeepingListener()
        self.topics = topics or {}
        self.scheduler = Scheduler(self.clock)
        settings = ManagerSettings(tuple(str(path) for path in directories), **values)
        self.manager = LogManager(
            settings, self.config, self.scheduler, self.listener, clock_ms=self.clock, jitter=lambda limit: 0
        )
        self.upkeep = Upkeep(self.manager, self.clock)

    def config(self, topic: str) -> TopicConfig:
        return default_topic_config(self.topics.get(topic, {}))

    def start(self) -> LogManager:
        self.manager.open()
        self.manager.claim(1, "cluster")
        self.manager.load()
        return self.manager

    def pass_ms(self, ms: int) -> None:
        self.clock.now_ms += ms
        self.scheduler.run_due()

    def stop(self) -> None:
        self.scheduler.run_due()
        self.manager.stop()

    def crash(self) -> None:
        """What kill -9 leaves: nothing is written any more."""
        self.manager.release()


def partition(number: int, topic: str = "t") -> TopicPartition:
    return TopicPartition(topic, number)


def new_log(manager: LogManager, number: int = 0, topic: str = "t") -> PartitionLog:
    return manager.get_or_create(partition(number, topic), TOPIC_ID, is_new=True)


def read_checkpoint(directory: Path, kind: FileKind) -> dict[TopicPartition, int]:
    return DataDirectory(str(directory)).read_offsets(kind)
