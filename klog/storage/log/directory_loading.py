"""Loads all partition directories of one log directory in parallel, when a broker starts.

Rules: Kafka's `LogManager.loadLogs`. The name of a directory decides what happens to it. A directory that
belongs to no partition keeps the broker from starting; a log that cannot be read takes its log directory
offline.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from klog.config.topic import TopicConfig
from klog.formats import partition_metadata
from klog.formats.errors import FormatError, StorageError, placed
from klog.formats.names import (
    DirectoryName,
    DirectoryState,
    FileKind,
    TopicPartition,
    parse_directory,
)
from klog.formats.partition_metadata import PartitionMetadata
from klog.jobs.threads import side_by_side
from klog.storage.files.file_system_sync import (
    MANY,
    can_sync_file_system,
    is_on_same_file_system,
    sync_file_system,
)
from klog.storage.files.files import list_directory, read_whole, write_atomically
from klog.storage.files.quarantine import default_root, prune
from klog.storage.log.data_directory import DataDirectory
from klog.storage.log.loading import Loaded, LoadSettings, load_log

REMOTE_INDEX_CACHE: Final = "remote-log-index-cache"
METADATA_TOPIC: Final = "__cluster_metadata"


_WITHOUT: Final = {
    FileKind.RECOVERY_POINT_CHECKPOINT: "after an unclean stop every log is checked from its start",
    FileKind.LOG_START_CHECKPOINT: "every log starts with its first segment",
    FileKind.REPLICATION_CHECKPOINT: "high watermarks begin at the logs' starts",
    FileKind.CLEANER_CHECKPOINT: "compacted logs are cleaned from their starts",
}

_log = logging.getLogger(__name__)


class UnknownDirectoryError(StorageError):
    """A directory in a log directory belongs to no partition, or two belong to the same one."""


@dataclass(frozen=True, slots=True)
class LoadedLog:
    """One log that was loaded, with the name of its directory."""

    path: str
    name: DirectoryName
    topic_id: str | None
    high_watermark: int
    loaded: Loaded
    recovered: bool


# Directories that no longer serve a replica; a partition may have any number of them.
OUT_OF_USE: Final = frozenset((DirectoryState.DELETE, DirectoryState.STRAY))


def partition_directories(path: str) -> list[DirectoryName]:
    """The names of the partition directories of a log directory. Raises `UnknownDirectoryError`, `OSError`,
    `StorageError`.
    """
    names = (
        _parsed(entry.path)
        for entry in list_directory(path)
        if entry.is_dir() and entry.name != REMOTE_INDEX_CACHE
    )
    return [name for name in names if name.partition.topic != METADATA_TOPIC]


def write_topic_id(directory: str, topic_id: str, *, sync: bool = True) -> None:
    """Write a partition's `partition.metadata`. Without `sync` the caller forces it to disk. Raises
    `StorageError`.
    """
    path = os.path.join(directory, FileKind.PARTITION_METADATA)
    write_atomically(path, partition_metadata.build(PartitionMetadata(topic_id)), sync=sync)


def require_distinct(found: Mapping[str, Sequence[DirectoryName]]) -> None:
    """Raises `UnknownDirectoryError` if two of the directories (by log directory) are for one replica."""
    first: dict[tuple[TopicPartition, DirectoryState | None], str] = {}
    for path, names in found.items():
        for name in names:
            if name.state in OUT_OF_USE:
                continue
            here = os.path.join(path, str(name))
            other = first.setdefault((name.partition, name.state), here)
            if other != here:
                raise UnknownDirectoryError(
                    f"{name.partition} is also in {other}",
                    file=here,
                    cure="remove one of the two, the one in a log directory that failed during the move;"
                    " if the broker was killed during it, both are the same",
                )


def load_directory(
    directory: DataDirectory,
    names: Sequence[DirectoryName],
    topic_config: Callable[[str], TopicConfig],
    *,
    now_ms: int,
    producer_expiration_ms: int,
    threads: int,
    progress: Callable[[LoadedLog, int, int], None],
) -> None:
    """Load the logs of a locked log directory.

    `progress` is called with each log, how many are done, and how many there are. Raises `OSError`,
    `KlogError` if the log directory has failed.
    """
    clean = directory.take_clean_marker()
    syncs_at_end = not clean and len(names) >= MANY and can_sync_file_system()
    recovery_points = _offsets(directory, FileKind.RECOVERY_POINT_CHECKPOINT)
    log_starts = _offsets(directory, FileKind.LOG_START_CHECKPOINT)
    high_watermarks = _offsets(directory, FileKind.REPLICATION_CHECKPOINT)
    _offsets(directory, FileKind.CLEANER_CHECKPOINT)  # warns; the cleaner reads it each time
    common = LoadSettings(
        now_ms, default_root(directory.path), clean, producer_expiration_ms=producer_expiration_ms
    )

    def load(name: DirectoryName) -> LoadedLog:
        partition, path = name.partition, os.path.join(directory.path, str(name))
        recovered: list[str] = []
        settings = replace(
            common,
            recovery_point=recovery_points.get(partition, 0),
            log_start_offset=log_starts.get(partition, 0),
            syncs_derived=not syncs_at_end or not is_on_same_file_system(path, directory.path),
        )
        loaded = load_log(path, topic_config(partition.topic), settings, recovered.append)
        topic_id = read_topic_id(path)
        return LoadedLog(path, name, topic_id, high_watermarks.get(partition, 0), loaded, bool(recovered))

    for done, loaded_log in enumerate(side_by_side(threads, load, names), 1):
        progress(loaded_log, done, len(names))
    if syncs_at_end:
        sync_file_system(directory.path)
    _prune_quarantine(directory.path, now_ms)


def report_recovery(path: str, loaded: Loaded) -> None:
    """Log what loading a log has found and removed."""
    for error in loaded.damage:
        _log.warning("%s; it is made anew from the batches", error)
    dropped = set(loaded.dropped)
    for finding in loaded.findings:
        if finding.name not in dropped:
            _log.warning("%s/%s: %s: Kafka %s", path, finding.name, finding.what, finding.kafka)
    if dropped:
        names = ", ".join(loaded.dropped)
        _log.info("%s: recovery removed what holds no records of its own, as Kafka does: %s", path, names)
    if loaded.quarantine is not None:
        _log.warning("%s: what recovery removed is in %s", path, loaded.quarantine)
    if loaded.why_lost is not None:
        _log.warning("%s: what recovery removed is lost: %s", path, loaded.why_lost)


def _prune_quarantine(log_directory: str, now_ms: int) -> None:
    try:
        removed = prune(default_root(log_directory), now_ms)
    except OSError as error:
        _log.warning("%s cannot be tidied up: %s", default_root(log_directory), error)
        return
    if removed:
        _log.info(
            "%s: removed %d directories with %d bytes: older than 30 days, or the oldest above 10 GiB",
            default_root(log_directory),
            len(removed),
            sum(past.size_bytes for past in removed),
        )


def _offsets(directory: DataDirectory, kind: FileKind) -> dict[TopicPartition, int]:
    """The offsets of a checkpoint. One that is damaged counts as empty, and the next one replaces it."""
    try:
        return directory.read_offsets(kind)
    except FormatError as error:
        path = directory.file(kind)
        _log.warning("%s: %s; it counts as empty, so %s", path, error.what, _WITHOUT[kind])
        return {}


def _parsed(path: str) -> DirectoryName:
    try:
        return parse_directory(os.path.basename(path))
    except FormatError as error:
        raise UnknownDirectoryError(error.what, file=path, cure=error.cure) from None


def read_topic_id(directory: str) -> str | None:
    """The id of the topic that a partition directory belongs to; None if it has no such file.

    Raises `FormatError`, `StorageError`.
    """
    path = os.path.join(directory, FileKind.PARTITION_METADATA)
    if not os.path.exists(path):
        return None
    with placed(path):
        return partition_metadata.parse(read_whole(path)).topic_id
