"""The files of one partition directory, as an export uses them: segments, indexes, epochs and snapshots.

`klog.formats.names` and `klog.replicas.tiered_names` parse the names. Only small files are read here;
`klog.replicas.replica_contents` reads what the segments hold.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

from klog.formats import checkpoints, partition_metadata
from klog.formats.checkpoints import EpochEntry
from klog.formats.errors import FormatError, KlogError
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
from klog.replicas.files import Entry, base_name, open_input, read_small
from klog.replicas.tiered_names import tiered_file
from klog.storage.files.files import GZIP_SUFFIX
from klog.storage.reading.batch_search import header_at

_Parsed = TypeVar("_Parsed")
_Named = dict[tuple[FileKind, int | None, FileState], Entry]
INDEXES: Final = (FileKind.OFFSET_INDEX, FileKind.TIME_INDEX, FileKind.TXN_INDEX)
_IGNORED_STATES: Final = {
    FileState.CLEANED: "output of a cleaning or split that did not end",
    FileState.TEMPORARY: "a write that did not end",
}


@dataclass(frozen=True, slots=True)
class SegmentFile:
    """One segment on disk.

    `size_bytes` is the size of the file (compressed, if it is a gzipped copy). The path of an index is None
    if there is none. `state` is NORMAL, SWAP or DELETED.
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
        """Whether it is named as a gzipped copy: it is not read through an index, and `size_bytes` is no
        position in it."""
        return base_name(self.log).endswith(GZIP_SUFFIX)


@dataclass(frozen=True, slots=True)
class Replica:
    """One copy of a partition: its segments by base offset, and its offsets in the checkpoints (None:
    unknown).

    `segments` are those with ordinary names; `swaps` may replace some of them (`swap_files`), and
    `deleted` have left the log. `snapshots` are (offset, path) of producer snapshots, ascending.
    `cleaned_to` is the first offset that the cleaner has not processed. `first_cleaned` is the lowest
    base offset of a `.cleaned` file. `without_log` are the indexes of segments whose `.log` is missing.
    `partial` says that not all segments of the directory were requested.
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
    without_log: tuple[SegmentFile, ...] = ()
    partial: bool = False


@dataclass(slots=True)
class Found:
    """The result of a search: `skipped` are ignored paths with the reason, `problems` are files that cannot
    be read."""

    replicas: list[Replica] = field(default_factory=list)
    skipped: list[tuple[str, str]] = field(default_factory=list)
    problems: list[KlogError] = field(default_factory=list)


def parsed(path: str, parse: Callable[[bytes], _Parsed], problems: list[KlogError]) -> _Parsed | None:
    """The content of a small file; None if it cannot be read, which is added to `problems`."""
    try:
        return parse(read_small(path))
    except KlogError as error:
        problems.append(error.at(path))
        return None


def directory_name(name: str) -> DirectoryName | None:
    """The parsed name of a partition directory, None for any other name."""
    try:
        return parse_directory(name)
    except FormatError:
        return None


def file_name(entry: Entry) -> FileName | None:
    """The parsed name of a file of Kafka, None for directories and other files."""
    if entry.is_directory:
        return None
    name = entry.name.removesuffix(GZIP_SUFFIX)
    try:
        return parse_file(name)
    except FormatError:
        return tiered_file(name)


def segment_by_another_name(entry: Entry) -> SegmentFile:
    """A segment whose name is not its base offset, which is read from its first batch instead."""
    with open_input(entry.path) as file:
        table = header_at(file, 0)
    offsets = [*table.base_offset[:1], *table.last_offset[:1], 0]
    return SegmentFile(next(offset for offset in offsets if offset >= 0), entry.path, entry.size_bytes)


def read_replica(path: str, name: DirectoryName, entries: Sequence[Entry], found: Found) -> Replica:
    """The replica in a directory with these entries; ignored and unreadable files are added to `found`."""
    named: _Named = {}
    for listed in entries:
        entry, known = listed, file_name(listed)
        if known is None:
            continue
        key = (known.kind, known.offset, known.state)
        other = named.setdefault(
            key, entry
        )  # entries are sorted, so a plain file comes before its gzipped copy
        if other is entry or known.kind is not FileKind.LOG:
            continue
        if other.size_bytes < entry.size_bytes and not entry.name.endswith(GZIP_SUFFIX):
            named[key], entry = entry, other  # a tiered store may have several uploads: the longest counts
        found.skipped.append((entry.path, f"starts where {named[key].path} does"))
    # Entries are sorted: a plain file replaces its gzipped copy.
    plain = {entry.name.removesuffix(GZIP_SUFFIX): entry.path for entry in reversed(entries)}
    for (kind, _, state), entry in named.items():
        if kind is FileKind.LOG and state in _IGNORED_STATES:
            found.skipped.append((entry.path, _IGNORED_STATES[state]))
    epochs = topic = None
    if FileKind.LEADER_EPOCH_CHECKPOINT in plain:
        file = plain[FileKind.LEADER_EPOCH_CHECKPOINT]
        epochs = parsed(file, checkpoints.parse_epochs, found.problems)
    if FileKind.PARTITION_METADATA in plain:
        topic = parsed(plain[FileKind.PARTITION_METADATA], partition_metadata.parse, found.problems)
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
        without_log=_without_log(named),
    )


def _segments(named: _Named, state: FileState) -> tuple[SegmentFile, ...]:
    return tuple(
        _segment(named, offset, state, entry)
        for (kind, offset, found_state), entry in sorted(named.items(), key=lambda item: item[1].name)
        if kind is FileKind.LOG and found_state is state and offset is not None
    )


def _without_log(named: _Named) -> tuple[SegmentFile, ...]:
    """The indexes of segments that have no `.log` in any state. A broker creates and removes the `.log`
    first."""
    with_log = {offset for kind, offset, _ in named if kind is FileKind.LOG}
    found: dict[int, Entry] = {}
    for (kind, offset, state), entry in named.items():
        if kind in INDEXES and state is FileState.NORMAL and offset is not None and offset not in with_log:
            found.setdefault(offset, entry)
    return tuple(_segment(named, offset, FileState.NORMAL, found[offset]) for offset in sorted(found))


def _segment(named: _Named, offset: int, state: FileState, entry: Entry) -> SegmentFile:
    def path_of(kind: FileKind) -> str | None:
        index = named.get((kind, offset, state))
        return None if index is None else index.path

    offset_index, time_index, txn_index = map(path_of, INDEXES)
    return SegmentFile(offset, entry.path, entry.size_bytes, offset_index, time_index, txn_index, state)
