"""Lists the files of one partition directory, sorted by what they mean to a broker that starts.

`klog.formats.names` reads the names. Checks, rebuilding and recovery decide what to do with the files.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from klog.formats.errors import FormatError
from klog.formats.names import FileKind, FileName, FileState, parse_file, segment_file
from klog.storage.files.files import GZIP_SUFFIX, is_directory, is_regular_file, list_directory

INDEX_KINDS = (FileKind.OFFSET_INDEX, FileKind.TIME_INDEX, FileKind.TXN_INDEX)


@dataclass(frozen=True, slots=True)
class PartitionFiles:
    """The contents of a partition directory. Segments and snapshots are known by the offset in their name.

    `indexes` are with their offsets, with or without a segment. `transient` are files with a suffix such as
    `.swap`. `unknown` do not have a name of Kafka's. `directories` do not belong there. Kafka skips the
    `irregular` ones: FIFOs, devices and broken links.
    """

    path: str
    segments: tuple[int, ...] = ()
    indexes: frozenset[tuple[int, FileKind]] = frozenset()
    snapshots: tuple[int, ...] = ()
    transient: tuple[FileName, ...] = ()
    plain: frozenset[FileKind] = frozenset()
    unknown: tuple[str, ...] = ()
    directories: tuple[str, ...] = ()
    irregular: tuple[str, ...] = ()
    sizes: dict[str, int] = field(default_factory=dict)

    def file(self, kind: FileKind, offset: int) -> str:
        """Path of one part of the segment with this base offset."""
        return os.path.join(self.path, segment_file(kind, offset))

    def named(self, name: object) -> str:
        """Path of the file with this name."""
        return os.path.join(self.path, str(name))

    @property
    def holds_only_copies(self) -> bool:
        """Whether there are gzip copies of segments and no segments: a broker would begin an empty log."""
        copies = (name.endswith(f".{FileKind.LOG}{GZIP_SUFFIX}") for name in self.unknown)
        return not self.segments and any(copies)

    def has(self, kind: FileKind, offset: int) -> bool:
        """Whether the segment with this base offset has such a file."""
        return (offset, kind) in self.indexes


def list_partition(path: str) -> PartitionFiles:
    """The files of the partition directory at `path`. Raises `StorageError`."""
    segments: list[int] = []
    indexes: set[tuple[int, FileKind]] = set()
    snapshots: list[int] = []
    transient: list[FileName] = []
    plain: set[FileKind] = set()
    unknown: list[str] = []
    directories: list[str] = []
    irregular: list[str] = []
    sizes: dict[str, int] = {}
    for entry in list_directory(path):
        if not is_regular_file(entry):
            (directories if is_directory(entry) else irregular).append(entry.name)
            continue
        try:
            sizes[entry.name] = entry.stat().st_size
            name = parse_file(entry.name)
        except (FormatError, FileNotFoundError):
            unknown.append(entry.name)
            continue
        if name.state is not FileState.NORMAL:
            transient.append(name)
        elif name.offset is None or name.remote_segment_id is not None:
            plain.add(name.kind)
        elif name.kind is FileKind.LOG:
            segments.append(name.offset)
        elif name.kind is FileKind.PRODUCER_SNAPSHOT:
            snapshots.append(name.offset)
        elif name.kind in INDEX_KINDS:
            indexes.add((name.offset, name.kind))
    return PartitionFiles(
        path,
        tuple(sorted(segments)),
        frozenset(indexes),
        tuple(sorted(snapshots)),
        tuple(transient),
        frozenset(plain),
        tuple(unknown),
        tuple(directories),
        tuple(irregular),
        sizes,
    )
