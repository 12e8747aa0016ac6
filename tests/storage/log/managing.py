"""A log manager on real directories, whose scheduler a test drives by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from klog.config.topic import TopicConfig, default_topic_config
from klog.formats.names import TopicPartition
from klog.storage.log.log_manager import LogManager
from klog.storage.log.manager_values import ManagerSettings, Progress
from klog.storage.log.scheduler import Scheduler
from klog.storage.log.upkeep import Upkeep
from tests.storage.log.building import Clock


class Heard:
    """What the manager has told."""

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
        self.heard = Heard()
        self.topics = topics or {}
        self.scheduler = Scheduler(self.clock)
        settings = ManagerSettings(tuple(str(path) for path in directories), **values)
        self.manager = LogManager(
            settings, self.config, self.scheduler, self.heard, clock_ms=self.clock, jitter=lambda limit: 0
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
