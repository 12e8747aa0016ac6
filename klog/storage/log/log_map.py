"""All logs of a broker by partition: those that serve, and the future ones that are moving in."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from typing import NamedTuple

from klog.formats.names import TopicPartition
from klog.storage.log.log_values import GuardedLog
from klog.storage.log.partition_log import PartitionLog


class HeldLog(NamedTuple):
    """A log; `is_future` if it is moving into its log directory and does not serve yet."""

    log: PartitionLog
    is_future: bool


def parent_of(log: GuardedLog) -> str:
    """The log directory that a log is in."""
    return os.path.dirname(log.directory)


class LogMap:
    """Logs by partition. Safe for threads; its lock is held for no longer than the map is looked at."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._current: dict[TopicPartition, PartitionLog] = {}
        self._future: dict[TopicPartition, PartitionLog] = {}

    def get(self, partition: TopicPartition) -> PartitionLog | None:
        """The log that serves a partition, if there is one."""
        return self._current.get(partition)

    def future(self, partition: TopicPartition) -> PartitionLog | None:
        """The future log of a partition, if there is one."""
        return self._future.get(partition)

    def futures(self) -> list[PartitionLog]:
        """The future logs."""
        with self._lock:
            return list(self._future.values())

    def put(self, log: PartitionLog, *, is_future: bool = False) -> None:
        """Add a log in the place of any other of the same partition and kind."""
        with self._lock:
            logs = self._future if is_future else self._current
            logs[log.partition] = log

    def current(self) -> list[PartitionLog]:
        """The logs that serve."""
        with self._lock:
            return list(self._current.values())

    def all(self) -> list[HeldLog]:
        """The logs that serve, then the future ones."""
        with self._lock:
            return [
                *(HeldLog(log, False) for log in self._current.values()),
                *(HeldLog(log, True) for log in self._future.values()),
            ]

    def in_directory(self, directory: str) -> list[HeldLog]:
        """The logs of one log directory."""
        return [held for held in self.all() if parent_of(held.log) == directory]

    def counts(self, directories: Iterable[str]) -> dict[str, int]:
        """How many logs each log directory holds."""
        counts = dict.fromkeys(directories, 0)
        for held in self.all():
            directory = parent_of(held.log)
            counts[directory] = counts.get(directory, 0) + 1
        return counts

    def remove(self, partition: TopicPartition) -> list[PartitionLog]:
        """Remove a partition's logs; returns them."""
        with self._lock:
            found = (self._current.pop(partition, None), self._future.pop(partition, None))
        return [log for log in found if log is not None]

    def remove_future(self, partition: TopicPartition) -> PartitionLog | None:
        """Remove a partition's future log; returns it."""
        with self._lock:
            return self._future.pop(partition, None)

    def promote(self, future: PartitionLog) -> PartitionLog | None:
        """Let a future log serve; returns the log that served so far, None if one of the two is gone."""
        partition = future.partition
        with self._lock:
            replaced = self._current.get(partition)
            if replaced is None or self._future.get(partition) is not future:
                return None
            self._current[partition] = self._future.pop(partition)
            return replaced

    def remove_directory(self, directory: str) -> list[HeldLog]:
        """Remove all logs of one log directory; returns them."""
        with self._lock:
            removed: list[HeldLog] = []
            for logs, is_future in ((self._current, False), (self._future, True)):
                gone = [log for log in logs.values() if parent_of(log) == directory]
                for log in gone:
                    del logs[log.partition]
                    removed.append(HeldLog(log, is_future))
            return removed
