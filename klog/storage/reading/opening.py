"""Opens what is at a path: a segment, a partition directory or a log directory."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final, TypeVar, overload

from klog.formats.compression import DEFAULT_LIMIT_BYTES
from klog.formats.errors import StorageError
from klog.formats.names import FileKind
from klog.storage.files.kafka_files import files_of, partition_directories, partition_of
from klog.storage.reading.partition import LogDirectory, PartitionDirectory
from klog.storage.reading.segment import Segment

_Opened = TypeVar("_Opened", bound=Segment | PartitionDirectory | LogDirectory)
_NAMES: Final[Mapping[type, tuple[str, str]]] = {
    Segment: ("a segment", "open_segment"),
    PartitionDirectory: ("a partition directory", "open_partition"),
    LogDirectory: ("a log directory", "open_log_directory"),
}
"""What each type is called, and the function that opens it."""


@overload
def open_path(
    path: str | os.PathLike[str], *, max_decompressed_bytes: int = DEFAULT_LIMIT_BYTES
) -> Segment | PartitionDirectory | LogDirectory: ...


@overload
def open_path(
    path: str | os.PathLike[str],
    expected: type[_Opened],
    *,
    max_decompressed_bytes: int = DEFAULT_LIMIT_BYTES,
) -> _Opened: ...


def open_path(
    path: str | os.PathLike[str],
    expected: type[_Opened] | None = None,
    *,
    max_decompressed_bytes: int = DEFAULT_LIMIT_BYTES,
) -> Segment | PartitionDirectory | LogDirectory | _Opened:
    """What is at `path`: a segment, a partition directory or a log directory.

    `max_decompressed_bytes` limits the decompressed size of one batch. Raises `StorageError` if the path
    cannot be read, is a directory without Kafka's files, or is not what is `expected`.
    """
    found = _kind_of(os.fspath(path))
    opened = found(path, max_decompressed_bytes=max_decompressed_bytes)
    if expected is not None and found is not expected:
        (is_name, function), (expected_name, _) = _NAMES[found], _NAMES[expected]
        what, cure = f"is {is_name}, not {expected_name}", f"klog.{function} opens it"
        raise StorageError(what, file=os.fspath(path), cure=cure)
    return opened


def _kind_of(name: str) -> type[Segment | PartitionDirectory | LogDirectory]:
    if not os.path.isdir(name):
        return Segment
    # The contents decide: a log directory may have a name like a partition's (kafka-1).
    children = partition_directories(name)
    kinds = {file.kind for file in files_of(name)}
    if (
        not children
        and FileKind.META_PROPERTIES not in kinds
        and (partition_of(name) or FileKind.LOG in kinds)
    ):
        return PartitionDirectory
    if children or kinds:
        return LogDirectory
    raise StorageError(
        "holds neither segments nor partition directories",
        file=name,
        cure="name a segment, a partition directory (topic-0) or one of the broker's log.dirs",
    )


def open_segment(
    path: str | os.PathLike[str], *, max_decompressed_bytes: int = DEFAULT_LIMIT_BYTES
) -> Segment:
    """The segment at `path`. Raises `StorageError` if it is a directory or cannot be read."""
    return open_path(path, Segment, max_decompressed_bytes=max_decompressed_bytes)


def open_partition(
    path: str | os.PathLike[str], *, max_decompressed_bytes: int = DEFAULT_LIMIT_BYTES
) -> PartitionDirectory:
    """The partition directory at `path`. Raises `StorageError` if it is something else."""
    return open_path(path, PartitionDirectory, max_decompressed_bytes=max_decompressed_bytes)


def open_log_directory(
    path: str | os.PathLike[str], *, max_decompressed_bytes: int = DEFAULT_LIMIT_BYTES
) -> LogDirectory:
    """The log directory at `path`. Raises `StorageError` if it is something else."""
    return open_path(path, LogDirectory, max_decompressed_bytes=max_decompressed_bytes)
