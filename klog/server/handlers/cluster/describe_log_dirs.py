"""Answers DescribeLogDirs requests: the logs of each log directory, their sizes, and the space on its disk.

Rules: Kafka's `ReplicaManager.describeLogDirs`; KIP-113 (replicas), KIP-827 (total and usable bytes). A
directory that is offline is answered KAFKA_STORAGE_ERROR and nothing else of it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from klog.formats.names import PartitionKey
from klog.protocol.error_codes import ErrorCode
from klog.replication.replica_manager import ReplicaManager
from klog.server.handlers.answers import Struct, by_topic, entity_of, send_answer
from klog.server.network.request import Request
from klog.storage.log.log_manager import LogManager
from klog.storage.log.log_map import HeldLog

_NO_LAG: Final = -1


class HostedDirectory(NamedTuple):
    """A log directory by its absolute path, with its logs (none known where it is offline)."""

    path: str
    online: bool
    logs: Sequence[HeldLog] = ()


def hosted_directories(logs: LogManager, directories: Iterable[str]) -> Iterator[HostedDirectory]:
    """The configured log directories, in their order."""
    online = set(logs.online)
    for path in directories:
        held = logs.in_directory(path) if path in online else ()
        yield HostedDirectory(path, path in online, held)


class DiskSpace(NamedTuple):
    """Bytes of a file system, and those of them that this process may still fill."""

    total_bytes: int
    usable_bytes: int


_NO_SPACE: Final = DiskSpace(-1, -1)


def disk_space(path: str) -> DiskSpace:
    """The space of the file system that a path is on. Raises `OSError`."""
    found = os.statvfs(path)
    return DiskSpace(found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize)


@dataclass(frozen=True, slots=True)
class DescribeLogDirsHandler:
    """Answers DescribeLogDirs requests."""

    replicas: ReplicaManager
    directories: Callable[[], Iterable[HostedDirectory]]
    space_of: Callable[[str], DiskSpace] = disk_space

    def handle(self, request: Request) -> None:
        """Answer at once."""
        asked = entity_of(request).topics
        wanted: set[PartitionKey] | None = None
        if asked is not None:
            wanted = {(topic.topic, index) for topic in asked for index in topic.partitions}
        results = [self._directory(each, wanted) for each in self.directories()]
        send_answer(request, error_code=ErrorCode.NONE, results=results)

    def _directory(self, directory: HostedDirectory, wanted: set[PartitionKey] | None) -> Struct:
        found = {"log_dir": directory.path, "error_code": ErrorCode.NONE}
        try:
            space = self.space_of(directory.path) if directory.online else None
        except OSError:
            space = None
        if space is None:
            return {**found, "error_code": ErrorCode.KAFKA_STORAGE_ERROR, "topics": (), **_NO_SPACE._asdict()}
        logs = [(each.log.partition, each) for each in directory.logs]
        shown = [(key, each) for key, each in logs if wanted is None or key in wanted]
        return {**found, "topics": by_topic(shown, self._log), **space._asdict()}

    def _log(self, number: int, hosted: HeldLog) -> Struct:
        return {
            "partition_index": number,
            "partition_size": hosted.log.size_bytes,
            "offset_lag": self._lag(hosted),
            "is_future_key": hosted.is_future,
        }

    def _lag(self, hosted: HeldLog) -> int:
        """The lag of a log: of a future log behind the current one, of a current log behind the high
        watermark.
        """
        partition = self.replicas.partitions.get(hosted.log.partition)
        if partition is None:
            return _NO_LAG
        end = hosted.log.log_end_offset
        if hosted.is_future:
            return partition.log.log_end_offset - end
        return max(partition.log.high_watermark - end, 0)
