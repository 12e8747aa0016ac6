"""Finds files: PATH arguments name files, globs, partition directories or log directories.

Files come in the order in which the user named them; within a directory by topic, partition, base offset and
kind of file. `klog.formats.names` reads the names; this module does not look into the files.
"""

from __future__ import annotations

import glob
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from klog.formats.errors import FormatError, KlogError, StorageError
from klog.formats.names import (
    SEGMENT_KINDS,
    DirectoryState,
    FileKind,
    FileState,
    TopicPartition,
    parse_directory,
    parse_file,
)
from klog.storage.files.files import GZIP_SUFFIX, is_directory, list_directory, look_up, no_such_file

_KIND_ORDER: Final = {kind: place for place, kind in enumerate(FileKind)}
_BY_SUFFIX: Final = {f".{kind}": kind for kind in SEGMENT_KINDS | {FileKind.METADATA_SNAPSHOT}}


@dataclass(frozen=True, slots=True)
class KafkaFile:
    """One file of a log directory, as its name describes it.

    `path` opens the file and is shown to the user; a gzipped copy keeps its `.gz`. `kind` is what the name
    without `.gz` says. `topic` and `partition` come from the directory's name; they are None if it is not a
    partition's. `base_offset` is the number in the name, None for kinds without one. `state` is its transient
    suffix.
    """

    path: str
    kind: FileKind
    topic: str | None = None
    partition: int | None = None
    base_offset: int | None = None
    state: FileState = FileState.NORMAL


def identify(path: str) -> KafkaFile | None:
    """What the name of the file at `path` says; None if it is not a name of Kafka's files.

    A name that only ends like one of Kafka's (`saved.log`, `copy.index`) is accepted.
    """
    name = os.path.basename(path).removesuffix(GZIP_SUFFIX)
    partition = partition_of(os.path.dirname(path) or ".")
    topic, number = (partition.topic, partition.partition) if partition else (None, None)
    try:
        parsed = parse_file(name)
    except FormatError:
        kind = _BY_SUFFIX.get(os.path.splitext(name)[1])
        return None if kind is None else KafkaFile(path, kind, topic, number)
    return KafkaFile(path, parsed.kind, topic, number, parsed.offset, parsed.state)


def partition_of(directory: str) -> TopicPartition | None:
    """The partition that the name of a directory says; None if it is not the name of a partition."""
    try:
        return parse_directory(os.path.basename(os.path.abspath(directory))).partition
    except FormatError:
        return None


def expand(
    paths: Iterable[str],
    *,
    all_kinds: bool = False,
    on_problem: Callable[[KlogError], None] | None = None,
) -> list[KafkaFile]:
    """The files that `paths` name: a file itself, the matches of a glob, the files below a directory.

    A file that is named is taken whatever its name is. In directories the segments (`.log`) are taken; with
    `all_kinds` every file that Kafka names, transient ones too. Each file is taken once. `on_problem` is
    called for what gives no file (an unknown name, a directory that cannot be listed), and the others are
    taken. Without `on_problem`, `StorageError` is raised.
    """
    found: dict[str, KafkaFile] = {}
    for path in paths:
        for file in _tolerantly(_expand_one(path, all_kinds, on_problem), on_problem):
            found.setdefault(os.path.abspath(file.path), file)
    return list(found.values())


def _tolerantly(
    files: Iterator[KafkaFile], on_problem: Callable[[KlogError], None] | None
) -> Iterator[KafkaFile]:
    try:
        yield from files
    except StorageError as error:
        if on_problem is None:
            raise
        on_problem(error)


def _expand_one(
    path: str, all_kinds: bool, on_problem: Callable[[KlogError], None] | None
) -> Iterator[KafkaFile]:
    found = look_up(path)
    if found is not None and stat.S_ISDIR(found.st_mode):
        yield from _below(path, all_kinds, on_problem, set())
        return
    if found is None and not glob.has_magic(path):
        raise no_such_file(path)
    if found is None:
        matches = sorted(glob.glob(path, include_hidden=True), key=_glob_order)
        if not matches:
            raise StorageError("the pattern matches no file", file=path, cure="check the path")
        for match in matches:
            yield from _tolerantly(_expand_one(match, all_kinds, on_problem), on_problem)
        return
    file = identify(path)
    if file is None:
        raise StorageError(
            "is no file of a Kafka log directory by its name",
            file=path,
            cure="name it <base offset>.log, or as Kafka names the kind that it is",
        )
    yield file


def holds_nothing(directory: str) -> StorageError:
    """The error for a directory that is none of Kafka's."""
    return StorageError(
        "holds neither segments nor partition directories",
        file=directory,
        cure="name a partition directory (topic-0) or one of the broker's log.dirs",
    )


def _glob_order(path: str) -> tuple[tuple[str, int], str]:
    partition = partition_of(path) or partition_of(os.path.dirname(path) or ".")
    return (partition or TopicPartition(os.path.dirname(path), -1), path)


def _below(
    directory: str, all_kinds: bool, on_problem: Callable[[KlogError], None] | None, visited: set[str]
) -> Iterator[KafkaFile]:
    # A link may lead back to a directory above it, so each real directory is visited once.
    visited.add(os.path.realpath(directory))
    files = [
        file
        for file in files_of(directory)
        if all_kinds or (file.kind is FileKind.LOG and file.state is FileState.NORMAL)
    ]
    children = partition_directories(directory)
    yield from files
    for child in children:
        if os.path.realpath(child) not in visited:
            yield from _tolerantly(_below(child, all_kinds, on_problem, visited), on_problem)
    if not files and not children and partition_of(directory) is None:
        raise holds_nothing(directory)


def files_of(directory: str) -> list[KafkaFile]:
    """The files directly in a directory that have one of Kafka's names, in Kafka's order."""
    found = []
    for entry in list_directory(directory):
        if is_directory(entry):
            continue
        file = identify(os.path.join(directory, entry.name))
        if file is not None and file.kind is not FileKind.LOCK:
            found.append(file)
    found.sort(key=_order)
    return found


def partition_directories(directory: str) -> list[str]:
    """The partition directories directly in a log directory, by topic and partition, current ones first."""
    found: list[tuple[TopicPartition, bool, str]] = []
    for entry in list_directory(directory):
        if not is_directory(entry):
            continue
        try:
            name = parse_directory(entry.name)
        except FormatError:
            continue
        found.append((name.partition, name.state is not DirectoryState.CURRENT, entry.name))
    return [os.path.join(directory, name) for _, _, name in sorted(found)]


def _order(file: KafkaFile) -> tuple[int, int, str]:
    return (-1 if file.base_offset is None else file.base_offset, _KIND_ORDER[file.kind], file.path)
