"""Replicas of partitions found below the paths of a job, with what stands beside their segments.

Rules: the names of `klog.formats.names`; what a suffix means is what Kafka's `LogLoader` and `LogManager`
make of it at a start. `.cleaned` is half written and passed over; a complete `.swap` takes the place of the
segments that it covers (`klog.spark.swaps`); `.deleted` has left the log; `-future` and `-stray` directories
count only where a partition has no current replica here, `-delete` ones only with `include_deleted`. Only
listings and small files are read. Which replica wins is the matter of `klog.spark.replicas`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeVar

from klog.formats import checkpoints, kernel, partition_metadata
from klog.formats.checkpoints import EpochEntry
from klog.formats.columns import BatchTable
from klog.formats.constants import BATCH_HEADER_BYTES
from klog.formats.errors import FormatError, KlogError, StorageError
from klog.formats.names import (
    DirectoryName,
    DirectoryState,
    FileKind,
    FileName,
    FileState,
    TopicPartition,
    parse_directory,
    parse_file,
)
from klog.spark.files import (
    Entry,
    base_name,
    entry_of,
    join,
    list_directory,
    open_input,
    parent,
    read_at,
    read_small,
)
from klog.storage.files import GZIP_SUFFIX

_DEEPEST: Final = 4
"""How far below a given path log directories are looked for: a backup may be of hosts, those of disks."""
_CHECKPOINTS: Final = (
    FileKind.REPLICATION_CHECKPOINT,
    FileKind.LOG_START_CHECKPOINT,
    FileKind.RECOVERY_POINT_CHECKPOINT,
    FileKind.CLEANER_CHECKPOINT,
)

_Parsed = TypeVar("_Parsed")


@dataclass(frozen=True, slots=True)
class SegmentFile:
    """One segment on disk. `size_bytes` is the file's (of a gzipped copy: compressed). Paths of indexes are
    None where there is none. `state` NORMAL, SWAP or DELETED.
    """

    base_offset: int
    log: str
    size_bytes: int
    offset_index: str | None = None
    time_index: str | None = None
    txn_index: str | None = None
    state: FileState = FileState.NORMAL

    @property
    def gzipped(self) -> bool:
        """Whether it is a gzipped copy: no index leads into it, and its plain size is not known."""
        return base_name(self.log).endswith(GZIP_SUFFIX)


@dataclass(frozen=True, slots=True)
class Replica:
    """One copy of a partition: its segments by base offset, and what the checkpoints say of it (None: they
    do not). `snapshots` are (offset, path) of producer snapshots, ascending. `cleaned_to` is the first
    offset that the cleaner has not been at. `segments` are those of ordinary names; `swaps` may replace some
    (`klog.spark.swaps`), `deleted` have left the log. `first_cleaned` is the lowest base offset of a
    `.cleaned` file.
    """

    partition: TopicPartition
    directory: str
    segments: tuple[SegmentFile, ...]
    state: DirectoryState = DirectoryState.CURRENT
    epochs: tuple[EpochEntry, ...] = ()
    topic_id: str | None = None
    snapshots: tuple[tuple[int, str], ...] = ()
    log_start_offset: int | None = None
    high_watermark: int | None = None
    recovery_point: int | None = None
    cleaned_to: int | None = None
    swaps: tuple[SegmentFile, ...] = ()
    first_cleaned: int | None = None
    deleted: tuple[SegmentFile, ...] = ()


@dataclass(slots=True)
class Found:
    """What is below the paths. `skipped` is (path, reason), `problems` what could not be read."""

    replicas: list[Replica] = field(default_factory=list)
    skipped: list[tuple[str, str]] = field(default_factory=list)
    problems: list[KlogError] = field(default_factory=list)


def discover(paths: Iterable[str], *, include_deleted: bool = False) -> Found:
    """All replicas below `paths`: log directories, partition directories, segments, or what holds them.

    What cannot be read becomes a problem and the rest is found all the same; a path at which there is
    nothing is such a problem too. Each directory counts once, however many paths lead to it.
    """
    search = _Search(include_deleted)
    for path in paths:
        search.tolerantly(lambda path=path: search.path(path))  # type: ignore[misc]
    search.loose_segments()
    search.found.replicas.sort(key=lambda replica: (replica.partition, replica.directory))
    search.found.skipped.sort()
    return search.found


class _Search:
    def __init__(self, include_deleted: bool) -> None:
        self.found = Found()
        self._include_deleted = include_deleted
        self._visited: set[str] = set()
        self._loose: dict[str, list[Entry]] = {}
        self._books: dict[str, _LogDirectory] = {}

    def tolerantly(self, look: Callable[[], None]) -> None:
        try:
            look()
        except KlogError as error:
            self.found.problems.append(error)

    def path(self, path: str) -> None:
        entry = entry_of(path)
        if entry is None:
            raise StorageError("there is nothing", file=path, cure="check the path")
        if not entry.is_directory:
            self._loose.setdefault(parent(entry.path), []).append(entry)
            return
        before = len(self.found.replicas)
        self._directory(entry.path, 0)
        if len(self.found.replicas) == before and entry.path not in self._visited:
            raise StorageError("holds no segments", file=path)

    def _directory(self, path: str, depth: int) -> None:
        if not self._first_visit(path):
            return
        entries = list_directory(path)
        below = [entry for entry in entries if entry.is_directory]
        partitions = [(entry, name) for entry in below if (name := _directory_name(entry.name)) is not None]
        names = {file.kind for entry in entries if (file := _file_name(entry)) is not None}
        is_log_directory = bool(names & {*_CHECKPOINTS, FileKind.META_PROPERTIES})
        own = None if is_log_directory else _directory_name(base_name(path))
        if FileKind.LOG in names and (own is not None or not partitions):
            self._replica(path, own or DirectoryName(TopicPartition(base_name(path), 0)), entries)
            return
        for entry, name in partitions:
            self.tolerantly(lambda entry=entry, name=name: self._partition(entry, name, depth))  # type: ignore[misc]
        if depth < _DEEPEST:
            for entry in below:
                if _directory_name(entry.name) is None and not is_log_directory:
                    self.tolerantly(lambda entry=entry: self._directory(entry.path, depth + 1))  # type: ignore[misc]

    def _partition(self, entry: Entry, name: DirectoryName, depth: int) -> None:
        entries = list_directory(entry.path)
        if any(_file_name(one) is not None for one in entries) or not any(
            one.is_directory for one in entries
        ):
            if self._first_visit(entry.path):
                self._replica(entry.path, name, entries)
        elif depth < _DEEPEST:
            self._directory(entry.path, depth + 1)  # a directory of log directories that is called kafka-1

    def _first_visit(self, path: str) -> bool:
        real = path if "://" in path else os.path.realpath(path)
        if real in self._visited:
            return False
        self._visited.add(real)
        return True

    def loose_segments(self) -> None:
        """Segments that were named one by one, a replica for each directory."""
        for directory, entries in sorted(self._loose.items()):
            self.tolerantly(lambda directory=directory, entries=entries: self._loose_in(directory, entries))  # type: ignore[misc]

    def _loose_in(self, directory: str, named: list[Entry]) -> None:
        if not self._first_visit(directory):
            return  # the whole directory was named too
        wanted = set()
        others = []
        for entry in named:
            name = _file_name(entry)
            if name is not None and name.kind is FileKind.LOG:
                wanted.add(entry.name)
            elif name is None and entry.name.removesuffix(GZIP_SUFFIX).endswith(".log"):
                self.tolerantly(lambda entry=entry: others.append(_by_another_name(entry)))  # type: ignore[misc]
            else:
                cure = "name a log directory, a partition directory or a .log file"
                self.found.problems.append(
                    StorageError("is no segment by its name", file=entry.path, cure=cure)
                )
        entries = [
            entry
            for entry in list_directory(directory)
            if entry.name in wanted or (name := _file_name(entry)) is None or name.kind is not FileKind.LOG
        ]
        own = _directory_name(base_name(directory)) or DirectoryName(TopicPartition(base_name(directory), 0))
        if wanted or others:
            self._replica(directory, own._replace(state=DirectoryState.CURRENT), entries, others)

    def _replica(
        self, path: str, name: DirectoryName, entries: list[Entry], others: Sequence[SegmentFile] = ()
    ) -> None:
        if name.state is DirectoryState.DELETE and not self._include_deleted:
            self.found.skipped.append((path, "a topic or replica that was being deleted"))
            return
        replica = _read_replica(path, name, entries, self.found)
        segments = {segment.base_offset: segment for segment in replica.segments}
        for other in others:
            if segments.setdefault(other.base_offset, other) is not other:
                self.found.skipped.append((other.log, f"{segments[other.base_offset].log} starts there too"))
        replica = replace(replica, segments=tuple(segments[base] for base in sorted(segments)))
        self.found.replicas.append(self._with_checkpoints(replica))

    def _with_checkpoints(self, replica: Replica) -> Replica:
        directory = parent(replica.directory)
        if directory not in self._books:
            self._books[directory] = _LogDirectory(directory, self.found.problems)
        offsets = self._books[directory].offsets
        partition = replica.partition
        return replace(
            replica,
            high_watermark=offsets[FileKind.REPLICATION_CHECKPOINT].get(partition),
            log_start_offset=offsets[FileKind.LOG_START_CHECKPOINT].get(partition),
            recovery_point=offsets[FileKind.RECOVERY_POINT_CHECKPOINT].get(partition),
            cleaned_to=offsets[FileKind.CLEANER_CHECKPOINT].get(partition),
        )


class _LogDirectory:
    """The checkpoints of one log directory. One that cannot be read counts as empty, as it does for Kafka,
    but is a problem."""

    def __init__(self, path: str, problems: list[KlogError]) -> None:
        self.offsets: dict[FileKind, dict[TopicPartition, int]] = {}
        try:
            names = {entry.name for entry in list_directory(path)}
        except StorageError as error:
            problems.append(error)
            names = set()
        for kind in _CHECKPOINTS:
            parsed = None
            if kind in names:
                parsed = _parsed(join(path, kind), checkpoints.parse_offsets, problems)
            entries = () if parsed is None else parsed.entries
            self.offsets[kind] = {entry.partition: entry.offset for entry in entries}


def _parsed(path: str, parse: Callable[[bytes], _Parsed], problems: list[KlogError]) -> _Parsed | None:
    try:
        return parse(read_small(path))
    except KlogError as error:
        problems.append(error.at(path))
        return None


def _directory_name(name: str) -> DirectoryName | None:
    try:
        return parse_directory(name)
    except FormatError:
        return None


def _file_name(entry: Entry) -> FileName | None:
    try:
        return None if entry.is_directory else parse_file(entry.name.removesuffix(GZIP_SUFFIX))
    except FormatError:
        return None


def _by_another_name(entry: Entry) -> SegmentFile:
    """A segment that is not called after its base offset: that is read from its first batch."""
    table = BatchTable()
    with open_input(entry.path) as file:
        kernel.scan(read_at(file, 0, BATCH_HEADER_BYTES), 0, False, table)
        if table.need_bytes:
            kernel.scan(read_at(file, 0, table.need_bytes), 0, True, table)
    offsets = [*table.base_offset[:1], *table.last_offset[:1], 0]
    return SegmentFile(next(offset for offset in offsets if offset >= 0), entry.path, entry.size_bytes)


def _read_replica(path: str, name: DirectoryName, entries: list[Entry], found: Found) -> Replica:
    named: dict[tuple[FileKind, int | None, FileState], Entry] = {}
    for entry in entries:
        known = _file_name(entry)
        if known is None:
            continue
        key = (known.kind, known.offset, known.state)
        if key in named and known.kind is FileKind.LOG:
            found.skipped.append((entry.path, f"a copy of {named[key].path}"))
        named.setdefault(key, entry)  # by name a plain file comes before its gzipped copy
    plain = {entry.name.removesuffix(GZIP_SUFFIX): entry.path for entry in entries}
    for (kind, _, state), entry in named.items():
        if kind is FileKind.LOG and state in _PASSED_OVER:
            found.skipped.append((entry.path, _PASSED_OVER[state]))
    epochs = topic = None
    if FileKind.LEADER_EPOCH_CHECKPOINT in plain:
        file = plain[FileKind.LEADER_EPOCH_CHECKPOINT]
        epochs = _parsed(file, checkpoints.parse_epochs, found.problems)
    if FileKind.PARTITION_METADATA in plain:
        topic = _parsed(plain[FileKind.PARTITION_METADATA], partition_metadata.parse, found.problems)
    return Replica(
        partition=name.partition,
        directory=path,
        segments=_segments(named, FileState.NORMAL),
        state=name.state,
        epochs=() if epochs is None else epochs.entries,
        topic_id=None if topic is None else topic.topic_id,
        snapshots=tuple(
            (offset, entry.path)
            for (kind, offset, state), entry in sorted(named.items(), key=lambda item: item[1].name)
            if kind is FileKind.PRODUCER_SNAPSHOT and state is FileState.NORMAL and offset is not None
        ),
        swaps=_segments(named, FileState.SWAP),
        first_cleaned=min(
            (offset for _, offset, state in named if state is FileState.CLEANED and offset is not None),
            default=None,
        ),
        deleted=_segments(named, FileState.DELETED),
    )


_PASSED_OVER: Final = {
    FileState.CLEANED: "output of a cleaning or split that did not end",
    FileState.TEMPORARY: "a write that did not end",
}


def _segments(
    named: dict[tuple[FileKind, int | None, FileState], Entry], state: FileState
) -> tuple[SegmentFile, ...]:
    def path_of(kind: FileKind, offset: int) -> str | None:
        entry = named.get((kind, offset, state))
        return None if entry is None else entry.path

    return tuple(
        SegmentFile(
            offset,
            entry.path,
            entry.size_bytes,
            path_of(FileKind.OFFSET_INDEX, offset),
            path_of(FileKind.TIME_INDEX, offset),
            path_of(FileKind.TXN_INDEX, offset),
            state,
        )
        for (kind, offset, found_state), entry in sorted(named.items(), key=lambda item: item[1].name)
        if kind is FileKind.LOG and found_state is state and offset is not None
    )
