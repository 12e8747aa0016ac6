"""Finds the replicas of partitions below the paths of a job, and reads the small files beside their segments.

Rules: the names of `klog.formats.names`; a suffix means what it means to Kafka's `LogLoader` and `LogManager`
when a broker starts. A `.cleaned` file is unfinished and ignored; a complete `.swap` replaces the segments
that it covers (`replica_contents`); `.deleted` has left the log. `-future` and `-stray` directories
count only if a partition has no current replica here, and `-delete` ones only with `include_deleted`. Only
listings and small files are read. `klog.replicas.replicas` chooses among the replicas.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Final, NamedTuple

from klog.formats import checkpoints
from klog.formats.errors import KlogError, MissingInputError, StorageError
from klog.formats.names import DirectoryName, DirectoryState, FileKind, TopicPartition
from klog.replicas.concurrency import map_concurrently
from klog.replicas.files import Entry, base_name, entry_of, expand, is_remote, join, list_directory, parent
from klog.replicas.replica_files import (
    INDEXES,
    Found,
    Replica,
    SegmentFile,
    directory_name,
    file_name,
    parsed,
    read_replica,
    segment_by_another_name,
)
from klog.replicas.tiered_names import tiered_partition
from klog.storage.files.files import GZIP_SUFFIX

_DEEPEST: Final = 4
"""How many levels below a path log directories are searched for: a backup may hold hosts, and those disks."""
_CHECKPOINTS: Final = (
    FileKind.REPLICATION_CHECKPOINT,
    FileKind.LOG_START_CHECKPOINT,
    FileKind.RECOVERY_POINT_CHECKPOINT,
    FileKind.CLEANER_CHECKPOINT,
)
_OF_LOG_DIRECTORIES: Final = frozenset((*_CHECKPOINTS, FileKind.META_PROPERTIES))


def discover(paths: Iterable[str], *, include_deleted: bool = False) -> Found:
    """All replicas below `paths`.

    A path is that of a log directory, a partition directory, a segment, or a directory that holds such; or a
    pattern of paths. A path that does not exist or cannot be read becomes a problem, and the search
    continues. A directory counts once, even if several paths lead to it.
    """
    search = _Search(include_deleted)
    for path in paths:
        with search.errors_collected():
            search.path(path)
    search.add_named_segments()
    found = search.found
    found.replicas.sort(key=lambda replica: (replica.partition, replica.directory))
    found.skipped.sort()
    found.problems.sort(key=str)
    return found


def nothing_found(found: Found, paths: Iterable[str]) -> MissingInputError:
    """The error for a search that has found no partition."""
    reasons = [str(problem) for problem in found.problems[:3]]
    reasons += [f"{path}: {reason}" for path, reason in found.skipped[:3]]
    return MissingInputError(
        f"no partition is found in {', '.join(paths)}" + "".join(f"; {why}" for why in reasons),
        cure="name log directories, partition directories or segments",
    )


class _Child(NamedTuple):
    """A directory with the name of a partition, and its entries; `found` has the replica if it is one."""

    entry: Entry
    entries: list[Entry]
    found: Found


class _Search:
    def __init__(self, include_deleted: bool) -> None:
        self.found = Found()
        self._include_deleted = include_deleted
        self._visited: set[str] = set()
        self._named_segments: dict[str, list[Entry]] = {}
        self._log_directories: dict[str, _LogDirectory] = {}

    @contextmanager
    def errors_collected(self) -> Iterator[None]:
        """Add an error of the block to the problems, and continue after it."""
        try:
            yield
        except KlogError as error:
            self.found.problems.append(error)

    def path(self, path: str) -> None:
        entries = [entry_of(one) for one in expand(path)]
        if entries in ([], [None]):
            raise StorageError("does not exist", file=path, cure="check the path")
        for entry in filter(None, entries):
            if entry.is_directory:
                self._directory(entry.path, list_directory(entry.path), 0)
            else:
                self._named_segments.setdefault(parent(entry.path), []).append(entry)

    def _directory(self, path: str, entries: list[Entry], depth: int) -> None:
        if not self._first_visit(path):
            return
        if not _is_log_directory(entries):
            own = _own_name(path)
            below = any(directory_name(entry.name) for entry in entries if entry.is_directory)
            if _holds_segments(entries) and (own is not None or not below):
                own = own or DirectoryName(TopicPartition(base_name(path), 0))
                self._take(_read(path, own, entries, self._include_deleted))
                return
        named = [entry for entry in entries if entry.is_directory and directory_name(entry.name)]
        for child in map_concurrently(self._look, named, remote=is_remote(path)):
            if isinstance(child, KlogError):
                self.found.problems.append(child)
            else:
                with self.errors_collected():
                    self._child(child, depth)
        if depth < _DEEPEST and not _is_log_directory(entries):
            for entry in entries:
                if entry.is_directory and not directory_name(entry.name):
                    with self.errors_collected():
                        self._directory(entry.path, list_directory(entry.path), depth + 1)

    def _look(self, entry: Entry) -> _Child | KlogError:
        """Read a directory with a partition's name: a partition, or a log directory such as kafka-1."""
        try:
            entries = list_directory(entry.path)
        except KlogError as error:
            return error
        name = directory_name(entry.name)
        is_partition = any(map(file_name, entries)) or not any(one.is_directory for one in entries)
        if name is None or _is_log_directory(entries) or not is_partition:
            return _Child(entry, entries, Found())
        return _Child(entry, entries, _read(entry.path, name, entries, self._include_deleted))

    def _child(self, child: _Child, depth: int) -> None:
        if child.found.replicas or child.found.skipped:
            if self._first_visit(child.entry.path):
                self._take(child.found)
        elif depth < _DEEPEST:
            self._directory(child.entry.path, child.entries, depth + 1)

    def _first_visit(self, path: str) -> bool:
        real = path if is_remote(path) else os.path.realpath(path)
        if real in self._visited:
            return False
        self._visited.add(real)
        return True

    def add_named_segments(self) -> None:
        """Add the segments that were named one by one: one replica for each directory."""
        for directory, entries in sorted(self._named_segments.items()):
            with self.errors_collected():
                self._named_segments_in(directory, entries)

    def _named_segments_in(self, directory: str, named: list[Entry]) -> None:
        if not self._first_visit(directory):
            return  # the directory itself was named too
        wanted = set()
        others: list[SegmentFile] = []
        for entry in named:
            name = file_name(entry)
            if name is not None and name.kind is FileKind.LOG:
                wanted.add(entry.name)
            elif name is None and entry.name.removesuffix(GZIP_SUFFIX).endswith(".log"):
                with self.errors_collected():
                    others.append(segment_by_another_name(entry))
            else:
                cure = "name a log directory, a partition directory or a .log file"
                self.found.problems.append(
                    StorageError("does not have the name of a segment", file=entry.path, cure=cure)
                )
        if not wanted and not others:
            return
        bases = {name.offset for entry in named if entry.name in wanted and (name := file_name(entry))}
        entries = [entry for entry in list_directory(directory) if _belongs_to(entry, wanted, bases)]
        own = _own_name(directory) or DirectoryName(TopicPartition(base_name(directory), 0))
        own = own._replace(state=DirectoryState.CURRENT)
        part = _read(directory, own, entries, self._include_deleted, others)
        part.replicas[:] = [replace(replica, partial=True) for replica in part.replicas]
        self._take(part)

    def _take(self, part: Found) -> None:
        """Add the replica in one partition directory, with its offsets in the checkpoints of the log
        directory."""
        self.found.skipped += part.skipped
        self.found.problems += part.problems
        for replica in part.replicas:
            directory = parent(replica.directory)
            if directory not in self._log_directories:
                self._log_directories[directory] = _LogDirectory(directory, self.found.problems)
            self.found.replicas.append(self._log_directories[directory].annotated(replica))


class _LogDirectory:
    """The checkpoints of one log directory.

    A checkpoint that cannot be read counts as empty, as it does for Kafka, and is reported as a problem.
    """

    def __init__(self, path: str, problems: list[KlogError]) -> None:
        self._offsets: dict[FileKind, dict[TopicPartition, int]] = {}
        try:
            names = {entry.name for entry in list_directory(path)}
        except StorageError as error:
            problems.append(error)
            names = set()
        for kind in _CHECKPOINTS:
            read = None
            if kind in names:
                read = parsed(join(path, kind), checkpoints.parse_offsets, problems)
            entries = () if read is None else read.entries
            self._offsets[kind] = {entry.partition: entry.offset for entry in entries}

    def annotated(self, replica: Replica) -> Replica:
        """The replica with its offsets in the checkpoints."""
        partition = replica.partition
        return replace(
            replica,
            high_watermark=self._offsets[FileKind.REPLICATION_CHECKPOINT].get(partition),
            log_start_offset=self._offsets[FileKind.LOG_START_CHECKPOINT].get(partition),
            recovery_point=self._offsets[FileKind.RECOVERY_POINT_CHECKPOINT].get(partition),
            cleaned_to=self._offsets[FileKind.CLEANER_CHECKPOINT].get(partition),
        )


def _is_log_directory(entries: Iterable[Entry]) -> bool:
    return any(name is not None and name.kind in _OF_LOG_DIRECTORIES for name in map(file_name, entries))


def _holds_segments(entries: Iterable[Entry]) -> bool:
    return any(name is not None and name.kind is FileKind.LOG for name in map(file_name, entries))


def _belongs_to(entry: Entry, logs: set[str], bases: set[int | None]) -> bool:
    """Whether a file belongs to the named `logs`, or to the whole partition."""
    name = file_name(entry)
    if name is None or name.kind is FileKind.LOG:
        return name is None or entry.name in logs
    return name.kind not in INDEXES or name.offset in bases


def _own_name(path: str) -> DirectoryName | None:
    """The partition of a directory, by its name or by the names of tiered stores."""
    tiered = tiered_partition(base_name(parent(path)), base_name(path))
    return directory_name(base_name(path)) if tiered is None else DirectoryName(tiered[0])


def _read(
    path: str,
    name: DirectoryName,
    entries: list[Entry],
    include_deleted: bool,
    others: Sequence[SegmentFile] = (),
) -> Found:
    """The replica in one directory; `others` are segments with names of their own, given one by one."""
    found = Found()
    if name.state is DirectoryState.DELETE and not include_deleted:
        found.skipped.append((path, "a topic or replica that was being deleted (includeDeleted reads it)"))
        return found
    replica = read_replica(path, name, entries, found)
    segments = {segment.base_offset: segment for segment in replica.segments}
    for other in others:
        if segments.setdefault(other.base_offset, other) is not other:
            found.skipped.append((other.log, f"starts where {segments[other.base_offset].log} does"))
    found.replicas.append(replace(replica, segments=tuple(segments[base] for base in sorted(segments))))
    return found
