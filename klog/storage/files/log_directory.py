"""Reads the checkpoints of a broker's log directory, and groups partition directories by log directory.

Rules: Kafka's `LogManager.loadLogs`: a checkpoint that cannot be read counts as empty.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from klog.formats.errors import FormatError
from klog.formats.names import FileKind, TopicPartition
from klog.storage.files.checkpoint_files import packed_offsets, read_offsets
from klog.storage.files.kafka_files import partition_of
from klog.storage.files.targets import targets


def log_directories_of(paths: Iterable[str]) -> dict[str, list[str]]:
    """The partition directories that `paths` name, by the log directory that contains them."""
    groups: dict[str, list[str]] = {}
    for target in targets(paths):
        groups.setdefault(log_directory_of(target.directory), []).append(target.directory)
    return groups


def log_directory_of(partition_directory: str) -> str:
    """The log directory of a partition directory, whose lock and checkpoints count for it.

    A link into a log directory is followed, so that a broker's partition is its own under any name. A link
    that lies in a log directory belongs to that one.
    """
    parent = os.path.dirname(os.path.abspath(partition_directory))
    if any(os.path.exists(os.path.join(parent, kind)) for kind in (FileKind.META_PROPERTIES, FileKind.LOCK)):
        return parent
    return os.path.dirname(os.path.realpath(partition_directory))


class Checkpoints:
    """The checkpoints of a log directory; a partition that they do not name has 0."""

    def __init__(self, log_directory: str) -> None:
        self._directory = log_directory
        self._recovery_points = self._read(FileKind.RECOVERY_POINT_CHECKPOINT)
        self._log_starts = self._read(FileKind.LOG_START_CHECKPOINT)

    def recovery_point(self, partition_directory: str) -> int:
        """The offset up to which the partition is known to be flushed."""
        return self._of(self._recovery_points, partition_directory)

    def log_start(self, partition_directory: str) -> int:
        """The partition's log start offset."""
        return self._of(self._log_starts, partition_directory)

    def lowered_recovery_points(self, log_end_offsets: dict[TopicPartition, int]) -> bytes | None:
        """The recovery point checkpoint with no offset above its log's end; None if it need not change."""
        lowered = {
            partition: min(offset, log_end_offsets.get(partition, offset))
            for partition, offset in self._recovery_points.items()
        }
        if lowered == self._recovery_points:
            return None
        return packed_offsets(lowered)

    def _read(self, kind: FileKind) -> dict[TopicPartition, int]:
        try:
            return read_offsets(os.path.join(self._directory, kind))
        except FormatError:
            return {}

    @staticmethod
    def _of(offsets: dict[TopicPartition, int], partition_directory: str) -> int:
        # A link may have any name.
        real = os.path.realpath(partition_directory)
        partition = partition_of(partition_directory) or partition_of(real)
        return 0 if partition is None else offsets.get(partition, 0)
