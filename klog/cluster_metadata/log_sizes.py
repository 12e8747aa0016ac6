"""How much is in the log directories of a node, and how much of it Kafka 4 does not read (KIP-724)."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass

from klog.formats.constants import MAGIC_POSITION, MAGIC_V2
from klog.formats.names import FileKind, FileState
from klog.storage.files.files import open_for_reading, size_bytes
from klog.storage.files.kafka_files import files_of


@dataclass(frozen=True, slots=True)
class LogSize:
    """What partitions of a log directory hold, in segments.

    `old_segments` and `old_bytes` are of those in message formats 0 and 1, which are in `old_partitions`.
    """

    directory: str
    node_id: int
    partitions: int
    segments: int
    size_bytes: int
    old_segments: int = 0
    old_bytes: int = 0
    old_partitions: tuple[str, ...] = ()


def log_size(directory: str, node_id: int, partitions: Iterable[str], *, looks_for_old: bool) -> LogSize:
    """The size of partition directories of a log directory.

    A segment counts as old if it begins in an old format: formats only went up when a broker was upgraded, so
    the first batch has the oldest. Raises StorageError.
    """
    count = segments = size = old_segments = old_size = 0
    old: dict[str, None] = {}
    for partition in partitions:
        count += 1
        for file in files_of(partition):
            if file.kind is not FileKind.LOG or file.state is not FileState.NORMAL:
                continue
            segment_bytes = size_bytes(file.path)
            segments += 1
            size += segment_bytes
            if looks_for_old and _begins_in_old_format(file.path):
                old_segments += 1
                old_size += segment_bytes
                old[partition] = None
    return LogSize(directory, node_id, count, segments, size, old_segments, old_size, tuple(old))


def _begins_in_old_format(path: str) -> bool:
    with open_for_reading(path) as file:
        head = file.read(MAGIC_POSITION + 1)
    return len(head) > MAGIC_POSITION and head[MAGIC_POSITION] < MAGIC_V2


def partitions_by_directory(paths: Iterable[str]) -> dict[str, list[str]]:
    """Partition directories by the log directory that they are in."""
    found: dict[str, list[str]] = {}
    for path in paths:
        found.setdefault(os.path.dirname(path), []).append(path)
    return found
