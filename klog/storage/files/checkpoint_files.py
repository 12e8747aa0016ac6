"""Reads and writes the checkpoint files of log directories and partitions.

`klog.formats.checkpoints` defines the formats. Errors carry the path of the file.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TypeVar

from klog.formats import meta_properties
from klog.formats.checkpoints import (
    EpochEntry,
    OffsetCheckpoint,
    OffsetEntry,
    build_offsets,
    parse_epochs,
    parse_offsets,
)
from klog.formats.errors import FormatError, placed
from klog.formats.meta_properties import MetaProperties
from klog.formats.names import FileKind, TopicPartition
from klog.storage.files.files import read_small, write_atomically
from klog.storage.files.kafka_files import partition_of
from klog.storage.files.partition_files import PartitionFiles

_Parsed = TypeVar("_Parsed")


def read_parsed(path: str, parse: Callable[[bytes], _Parsed]) -> _Parsed:
    """What a small file holds. Raises `StorageError`, and `FormatError` with the path of the file."""
    data = read_small(path)
    with placed(path):
        return parse(data)


def read_identity(path: str) -> MetaProperties | None:
    """What a `meta.properties` says; None if there is no such file. Raises StorageError, FormatError."""
    return read_parsed(path, meta_properties.parse) if os.path.exists(path) else None


def read_offsets(path: str) -> dict[TopicPartition, int]:
    """The offsets of a checkpoint by partition; if it names a partition twice, the last entry wins.

    Empty if there is no such file. Raises `FormatError`, `StorageError`.
    """
    if not os.path.exists(path):
        return {}
    return {entry.partition: entry.offset for entry in read_parsed(path, parse_offsets).entries}


def offsets_if_any(path: str) -> dict[TopicPartition, int] | None:
    """The offsets of a checkpoint; None if there is none, empty if a broker could not read it."""
    if not os.path.exists(path):
        return None
    try:
        return read_offsets(path)
    except FormatError:
        return {}


def packed_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    """The bytes of a checkpoint with these offsets."""
    return build_offsets(OffsetCheckpoint(tuple(OffsetEntry(*entry) for entry in offsets.items())))


def write_offsets(path: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Replace the checkpoint at `path`. Raises `StorageError`."""
    write_atomically(path, packed_offsets(offsets))


def read_leader_epochs(directory: str) -> tuple[EpochEntry, ...]:
    """The entries of a partition's `leader-epoch-checkpoint`, in the order of the file.

    Empty if there is no such file. Raises `FormatError`, `StorageError`.
    """
    path = os.path.join(directory, FileKind.LEADER_EPOCH_CHECKPOINT)
    return read_parsed(path, parse_epochs).entries if os.path.exists(path) else ()


def epochs_problem(files: PartitionFiles) -> FormatError | None:
    """Why a partition's `leader-epoch-checkpoint` cannot be read; None if it can or there is none.

    Raises `StorageError`.
    """
    if FileKind.LEADER_EPOCH_CHECKPOINT not in files.plain:
        return None
    try:
        read_leader_epochs(files.path)
    except FormatError as error:
        return error
    return None


class Checkpoints:
    """The checkpoints of a log directory; a partition that they do not name has 0.

    Rules: Kafka's `LogManager.loadLogs`: a checkpoint that cannot be read counts as empty.
    """

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
        return offsets_if_any(os.path.join(self._directory, kind)) or {}

    @staticmethod
    def _of(offsets: dict[TopicPartition, int], partition_directory: str) -> int:
        # A link may have any name.
        real = os.path.realpath(partition_directory)
        partition = partition_of(partition_directory) or partition_of(real)
        return 0 if partition is None else offsets.get(partition, 0)
