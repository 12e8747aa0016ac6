"""Lists the log directories of a backup, without opening a file of a partition.

A listing of a partition directory shows whether anything has changed since the last run: names, sizes, times
and inodes of its files, and its offsets in the checkpoints. What those mean is left to `klog.replicas`.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from klog.backup.model import Source
from klog.formats import meta_properties
from klog.formats.errors import FormatError, KlogError, MissingInputError, StorageError, UsageError
from klog.formats.names import DirectoryName, DirectoryState, FileKind, TopicPartition, parse_directory
from klog.replicas.files import Entry, is_remote, local_path
from klog.storage.files.checkpoint_files import read_offsets, read_parsed
from klog.storage.files.directory_lock import holder_of
from klog.storage.files.files import is_directory, list_directory, storage_error

_DEEPEST: Final = 4
"""How many levels below a path log directories are searched for: hosts, and their disks."""
_MARKS: Final = frozenset(
    {
        FileKind.META_PROPERTIES,
        FileKind.REPLICATION_CHECKPOINT,
        FileKind.LOG_START_CHECKPOINT,
        FileKind.RECOVERY_POINT_CHECKPOINT,
    }
)
_SEGMENT_SUFFIXES: Final = (".log", ".log.swap", ".log.gz")
METADATA_TOPIC: Final = "__cluster_metadata"
"""KRaft's own log. `klog.cluster_metadata` reads what it means."""
_RACY_NS: Final = 2_000_000_000
"""A file that was written so shortly ago may be written again without a new time: ext4's clock has coarse
steps."""


@dataclass(frozen=True, slots=True)
class FileSeen:
    """A file in a listing; `stat` is that of `SegmentSeen`."""

    entry: Entry
    stat: tuple[int, int, int, int, int]


@dataclass(frozen=True, slots=True)
class LogDirectory:
    """A log directory: its owner, whether a broker holds its lock, and its checkpoints. `cleaned_to` are the
    offsets up to which the cleaner has come; none is above the high watermark then.

    `is_whole` says that all its partitions were listed, and not one that was named.
    """

    source: Source
    is_running: bool
    high_watermarks: dict[TopicPartition, int]
    log_starts: dict[TopicPartition, int]
    is_whole: bool = True
    cleaned_to: Mapping[TopicPartition, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Listed:
    """A replica's directory as it was listed; `files` are by name."""

    name: DirectoryName
    path: str
    log_directory: LogDirectory
    files: tuple[FileSeen, ...]

    @property
    def partition(self) -> TopicPartition:
        """The partition."""
        return self.name.partition

    def bound(self) -> int | None:
        """The offset below which the log is committed, as far as its broker has noted it; None if the broker
        does not run, or has not noted it."""
        directory = self.log_directory
        high_watermark = directory.high_watermarks.get(self.partition)
        if high_watermark is None or not directory.is_running:
            return None
        return max(high_watermark, directory.cleaned_to.get(self.partition, 0))

    def segments(self) -> tuple[FileSeen, ...]:
        """The segment files, also those that are being swapped in."""
        return tuple(file for file in self.files if file.entry.name.endswith(_SEGMENT_SUFFIXES))


@dataclass(slots=True)
class Scan:
    """All that was found. `problems` are directories and checkpoints that cannot be read, and `unlisted` the
    partitions of such directories.
    """

    log_directories: list[LogDirectory] = field(default_factory=list)
    replicas: dict[TopicPartition, list[Listed]] = field(default_factory=dict)
    problems: list[KlogError] = field(default_factory=list)
    unlisted: set[TopicPartition] = field(default_factory=set)


def scan(paths: Iterable[str]) -> Scan:
    """List the log directories and partition directories at or below `paths`.

    Raises `UsageError` for a URI, and `MissingInputError` for a path where there is none.
    """
    found = Scan()
    visited: set[str] = set()
    for path in paths:
        if is_remote(path):
            cure = "name directories; klog export reads object stores"
            raise UsageError("a backup reads log directories of local disks", file=path, cure=cure)
        directory = os.path.abspath(local_path(path))
        if not os.path.isdir(directory):
            raise MissingInputError("is no directory", file=path, cure="name log directories of a broker")
        before = len(found.log_directories)
        _search(directory, found, visited, 0)
        if len(found.log_directories) == before and os.path.realpath(directory) not in visited:
            raise MissingInputError(
                "holds no partition directories", file=path, cure="name log directories of a broker"
            )
    return found


def _search(directory: str, found: Scan, visited: set[str], depth: int) -> None:
    try:
        entries = list_directory(directory)
    except StorageError as error:
        found.problems.append(error)
        return
    names = {entry.name for entry in entries}
    own = _name(os.path.basename(directory))
    if own is not None and not names & _MARKS and any(name.endswith(_SEGMENT_SUFFIXES) for name in names):
        if _first_visit(directory, visited):
            log_directory = read_log_directory(os.path.dirname(directory), found.problems)
            found.log_directories.append(replace(log_directory, is_whole=False))
            _add(found, own, list_replica(own, directory, log_directory))
        return
    below = [entry for entry in entries if is_directory(entry)]
    partitions = [(name, entry) for entry in below if (name := _name(entry.name)) is not None]
    if names & _MARKS or _holds_partitions(entry.path for _, entry in partitions):
        if _first_visit(directory, visited):
            log_directory = read_log_directory(directory, found.problems)
            found.log_directories.append(log_directory)
            for name, entry in partitions:
                if name.state is not DirectoryState.DELETE and name.partition.topic != METADATA_TOPIC:
                    _add(found, name, list_replica(name, entry.path, log_directory))
        return
    if depth < _DEEPEST:
        for entry in below:
            _search(entry.path, found, visited, depth + 1)


def _holds_partitions(directories: Iterable[str]) -> bool:
    """Whether one of the directories with a partition's name is one, and not a log directory like
    `kafka-1`."""
    for directory in directories:
        try:
            names = os.listdir(directory)
        except OSError:
            continue
        if any(name.endswith(_SEGMENT_SUFFIXES) for name in names):
            return True
    return False


def _first_visit(directory: str, visited: set[str]) -> bool:
    real = os.path.realpath(directory)
    is_new = real not in visited
    visited.add(real)
    return is_new


def _add(found: Scan, name: DirectoryName, listed: Listed | StorageError | None) -> None:
    if isinstance(listed, Listed):
        found.replicas.setdefault(listed.partition, []).append(listed)
    elif listed is not None:
        found.problems.append(listed)
        found.unlisted.add(name.partition)


def _name(name: str) -> DirectoryName | None:
    try:
        return parse_directory(name)
    except FormatError:
        return None


def list_replica(name: DirectoryName, path: str, log_directory: LogDirectory) -> Listed | StorageError | None:
    """The listing of one replica's directory; None if the broker has removed it."""
    try:
        with os.scandir(path) as entries:
            files = sorted(_seen(entries), key=lambda file: file.entry.name)
    except FileNotFoundError:
        return None
    except OSError as error:
        return storage_error("cannot be listed", path, error)
    return Listed(name, path, log_directory, tuple(files))


def _seen(entries: Iterator[os.DirEntry[str]]) -> Iterator[FileSeen]:
    for entry in entries:
        try:
            if not entry.is_file():
                continue
            status = entry.stat()
        except OSError:
            continue  # removed meanwhile, or a link without a file
        stat = (status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino, status.st_dev)
        yield FileSeen(Entry(entry.name, entry.path, False, status.st_size), stat)


def read_log_directory(path: str, problems: list[KlogError]) -> LogDirectory:
    """The checkpoints of a log directory. One that cannot be read counts as empty, and is a problem."""

    def offsets(kind: FileKind) -> dict[TopicPartition, int]:
        try:
            return read_offsets(os.path.join(path, kind))
        except KlogError as error:
            problems.append(error)
            return {}

    return LogDirectory(
        _source(path, problems),
        holder_of(path) is not None,
        offsets(FileKind.REPLICATION_CHECKPOINT),
        offsets(FileKind.LOG_START_CHECKPOINT),
        cleaned_to=offsets(FileKind.CLEANER_CHECKPOINT),
    )


def _source(path: str, problems: list[KlogError]) -> Source:
    file = os.path.join(path, FileKind.META_PROPERTIES)
    if not os.path.exists(file):
        return Source(path)
    try:
        properties = read_parsed(file, meta_properties.parse)
    except KlogError as error:
        problems.append(error)
        return Source(path)
    return Source(path, properties.node_id, properties.cluster_id)


def is_racy(stat: Sequence[int], now_ms: int) -> bool:
    """Whether a file was written so shortly before that a further change might not show in its times."""
    return stat[1] > now_ms * 1_000_000 - _RACY_NS


def fingerprint(replicas: Sequence[Listed], now_ms: int) -> str:
    """A hash of what the listings of a partition's replicas show; empty if a change might not show in
    them."""
    digest = hashlib.blake2b(digest_size=12)
    for listed in sorted(replicas, key=lambda one: one.path):
        directory, partition = listed.log_directory, listed.partition
        digest.update(
            repr(
                (
                    listed.path,
                    directory.is_running,
                    directory.high_watermarks.get(partition),
                    directory.log_starts.get(partition),
                )
            ).encode("utf-8", "surrogateescape")
        )
        for file in listed.files:
            name = file.entry.name
            if name.endswith(_SEGMENT_SUFFIXES):
                if is_racy(file.stat, now_ms):
                    return ""
                digest.update(repr((name, file.stat)).encode("utf-8", "surrogateescape"))
            elif name == FileKind.LEADER_EPOCH_CHECKPOINT or name.endswith(".snapshot"):
                digest.update(repr((name, file.stat)).encode("utf-8", "surrogateescape"))
    return digest.hexdigest()
