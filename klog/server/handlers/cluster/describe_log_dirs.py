"""Answers DescribeLogDirs requests: the logs of each log directory, their sizes, and the space on its disk.

Rules: Kafka's `ReplicaManager.describeLogDirs`; KIP-113 (replicas), KIP-827 (total and usable bytes). A
directory that is offline is answered KAFKA_STORAGE_ERROR and nothing else of it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from klog.protocol.entity_fields import Entity
from klog.protocol.error_codes import ErrorCode
from klog.replication.replica_manager import ReplicaManager
from klog.server.handlers.answers import entity_of, part, send_answer
from klog.server.handlers.partition_lookup import Key
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


def disk_space(path: str) -> DiskSpace:
    """The space of the file system that a path is on. Raises `OSError`."""
    found = os.statvfs(path)
    return DiskSpace(found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize)


class DescribeLogDirsHandler:
    """Answers DescribeLogDirs requests."""

    def __init__(
        self,
        replicas: ReplicaManager,
        directories: Callable[[], Iterable[HostedDirectory]],
        space_of: Callable[[str], DiskSpace] = disk_space,
    ) -> None:
        self._replicas = replicas
        self._directories = directories
        self._space_of = space_of

    def handle(self, request: Request) -> None:
        """Answer at once."""
        asked = entity_of(request).topics
        wanted: set[Key] | None = None
        if asked is not None:
            wanted = {(topic.topic, index) for topic in asked for index in topic.partitions}
        results = tuple(self._directory(request, each, wanted) for each in self._directories())
        send_answer(request, error_code=ErrorCode.NONE, results=results)

    def _directory(self, request: Request, directory: HostedDirectory, wanted: set[Key] | None) -> Entity:
        if not directory.online:
            return _storage_error(request, directory)
        try:
            space = self._space_of(directory.path)
        except OSError:
            return _storage_error(request, directory)
        topics: dict[str, list[Entity]] = {}
        for hosted in directory.logs:
            topic, index = hosted.log.partition
            if wanted is None or (topic, index) in wanted:
                topics.setdefault(topic, []).append(self._log(request, hosted))
        return part(
            request,
            "DescribeLogDirsResult",
            error_code=ErrorCode.NONE,
            log_dir=directory.path,
            topics=tuple(
                part(request, "DescribeLogDirsTopic", name=topic, partitions=tuple(logs))
                for topic, logs in topics.items()
            ),
            total_bytes=space.total_bytes,
            usable_bytes=space.usable_bytes,
        )

    def _log(self, request: Request, hosted: HeldLog) -> Entity:
        log = hosted.log
        return part(
            request,
            "DescribeLogDirsPartition",
            partition_index=log.partition.partition,
            partition_size=log.size_bytes,
            offset_lag=self._lag(hosted),
            is_future_key=hosted.is_future,
        )

    def _lag(self, hosted: HeldLog) -> int:
        """The lag of a log: of a future log behind the current one, of a current log behind the high
        watermark.
        """
        partition = self._replicas.partitions.get(hosted.log.partition)
        if partition is None:
            return _NO_LAG
        end = hosted.log.log_end_offset
        if hosted.is_future:
            return partition.log.log_end_offset - end
        return max(partition.log.high_watermark - end, 0)


def _storage_error(request: Request, directory: HostedDirectory) -> Entity:
    return part(
        request,
        "DescribeLogDirsResult",
        error_code=ErrorCode.KAFKA_STORAGE_ERROR,
        log_dir=directory.path,
        topics=(),
        total_bytes=-1,
        usable_bytes=-1,
    )
