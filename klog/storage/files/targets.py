"""Finds the partition directories that the PATH arguments of commands name."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass

from klog.formats.errors import FormatError, MissingInputError
from klog.formats.names import DirectoryState, FileKind, FileState, parse_directory, parse_file
from klog.storage.files.files import GZIP_SUFFIX, list_directory, look_up, no_such_file
from klog.storage.files.kafka_files import holds_nothing, partition_directories


@dataclass(frozen=True, slots=True)
class Target:
    """A partition directory, and the base offset of the only segment to work on (None: all segments)."""

    directory: str
    base_offset: int | None = None


def targets(paths: Iterable[str], *, gzipped: bool = False) -> list[Target]:
    """The partition directories of segment files, partition directories and log directories, each once.

    With `gzipped`, gzip copies of segments may be named, too.
    Directories that are scheduled for deletion are left out. Raises `StorageError` if a path does not exist
    or holds nothing of a log, `MissingInputError` if a file is not a segment.
    """
    found: dict[tuple[str, int | None], Target] = {}
    for path in paths:
        for target in _targets(path, gzipped):
            found.setdefault((os.path.abspath(target.directory), target.base_offset), target)
    return list(found.values())


def _targets(path: str, gzipped: bool) -> list[Target]:
    found = look_up(path)
    if found is None:
        raise no_such_file(path)
    if stat.S_ISDIR(found.st_mode):
        return [Target(directory) for directory in partitions_below(path)]
    try:
        base_name = os.path.basename(path)
        name = parse_file(base_name.removesuffix(GZIP_SUFFIX) if gzipped else base_name)
    except FormatError:
        name = None
    if name is None or name.kind is not FileKind.LOG or name.state is not FileState.NORMAL:
        raise MissingInputError(
            "is no segment by its name",
            file=path,
            cure="unpack the copy first: only plain files can be worked on"
            if path.endswith(GZIP_SUFFIX)
            else "name a <20-digit base offset>.log, a partition directory or a log directory",
        )
    return [Target(os.path.dirname(path) or ".", name.offset)]


def partitions_below(path: str) -> list[str]:
    """The directory itself if it holds segments, else the partition directories in it."""
    if is_partition(path):
        return [path]
    found = [directory for directory in partition_directories(path) if not is_deleted(directory)]
    if not found and not os.path.exists(os.path.join(path, FileKind.META_PROPERTIES)):
        raise holds_nothing(path)
    return found


def is_partition(path: str) -> bool:
    """Whether a directory belongs to a partition, by its contents or its name."""
    if any(entry.name.endswith(f".{FileKind.LOG}") for entry in list_directory(path)):
        return True
    try:
        parse_directory(os.path.basename(os.path.abspath(path)))
    except FormatError:
        return False
    return not partition_directories(path)


def is_deleted(path: str) -> bool:
    """Whether the directory is scheduled for deletion, so that Kafka deletes it whatever is in it."""
    try:
        return parse_directory(os.path.basename(path)).state is DirectoryState.DELETE
    except FormatError:
        return False
