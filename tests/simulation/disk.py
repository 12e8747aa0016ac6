"""A broker's log directory on a memory-backed file system, and what a loss of power takes from it."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable

from klog.config.topic import TopicConfig
from klog.storage.log.log_manager import LogManager
from klog.storage.log.manager_values import Listener, ManagerSettings
from klog.storage.log.partition_log import PartitionLog
from tests.simulation.power_loss import Damage, power_loss
from tests.simulation.scheduler import US_PER_MS, Process, Scheduler

SHARED_MEMORY = "/dev/shm"
_FIRST_TASKS_MS = 750
RETENTION_MS = 1_250
_CHECKPOINT_MS = 2_000


def memory_backed() -> str | None:
    """A directory in memory if there is one; files are fastest there."""
    return SHARED_MEMORY if os.access(SHARED_MEMORY, os.W_OK) else None


class Tasks:
    """What logs leave for later, as calls of the simulated process."""

    def __init__(self, scheduler: Scheduler, process: Process) -> None:
        self._scheduler = scheduler
        self._process = process

    def after(self, delay_ms: int, task: Callable[[], object]) -> None:
        self._scheduler.after(delay_ms * US_PER_MS, self._process, task)

    def every(self, period_ms: int, task: Callable[[], object], *, first_after_ms: int | None = None) -> None:
        def repeat() -> None:
            task()
            self.after(period_ms, repeat)

        self.after(period_ms if first_after_ms is None else first_after_ms, repeat)


class Disk:
    """The log directories of one broker; they outlive the broker's processes."""

    def __init__(self, path: str, directories: int = 1) -> None:
        self.path = path
        self.directories = tuple(os.path.join(path, f"d{each}") for each in range(directories))

    def open(
        self,
        tasks: Tasks,
        topic_config: Callable[[str], TopicConfig],
        clock_ms: Callable[[], int],
        broker_id: int,
        listener: Listener,
    ) -> LogManager:
        """Load what is there."""
        settings = ManagerSettings(
            self.directories,
            initial_task_delay_ms=_FIRST_TASKS_MS,
            retention_check_ms=RETENTION_MS,
            recovery_point_checkpoint_ms=_CHECKPOINT_MS,
            log_start_checkpoint_ms=_CHECKPOINT_MS,
            high_watermark_checkpoint_ms=_FIRST_TASKS_MS,
            directory_delete_delay_ms=500,
        )
        manager = LogManager(
            settings,
            topic_config,
            tasks,  # type: ignore[arg-type]
            listener,
            clock_ms=clock_ms,
            jitter=lambda _limit: 0,
        )
        manager.open()
        manager.claim(broker_id, "c1u5ter")
        manager.load()
        return manager

    def will_lose(self, logs: list[PartitionLog], rng: random.Random) -> list[Damage]:
        """What a loss of power does to these logs; to be carried out when the process has ended."""
        return [each for log in logs for each in power_loss(log, rng)]

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
