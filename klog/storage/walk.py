"""PATH arguments to files: files, globs, partition directories, log directories, in Kafka's order.

Order: as the user named them; within a directory by topic, partition, base offset, then the kind of file.
Names are read by `klog.formats.names`; what a file holds is looked at by whoever opens it.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from klog.formats.errors import FormatError, KlogError, StorageError
from klog.formats.names import (
    DirectoryState,
    FileKind,
    FileState,
    TopicPartition,
    parse_directory,
    parse_file,
)
from klog.storage.files import GZIP_SUFFIX, is_directory, list_directory

_KIND_ORDER: Final = {kind: place for place, kind in enumerate(FileKind)}
_BY_SUFFIX: Final = {
    f".{kind}": kind
    for kind in (
        FileKind.LOG,
        FileKind.OFFSET_INDEX,
        FileKind.TIME_INDEX,
        FileKind.TXN_INDEX,
        FileKind.PRODUCER_SNAPSHOT,
        FileKind.METADATA_SNAPSHOT,
    )
}


@dataclass(frozen=True, slots=True)
class KafkaFile:
    """One file of a log directory, told by its name.

    `path` opens it and is how the user knows it; a gzipped copy keeps its `.gz`. `kind` is what the name
    (less `.gz`) says. `topic` and `partition` come from the directory's name: None where that is no
    partition's. `base_offset` is the number in the name, None for kinds without one. `state` is its
    transient suffix.
    """

    path: str
    kind: FileKind
    topic: str | None = None
    partition: int | None = None
    base_offset: int | None = None
    state: FileState = FileState.NORMAL


def identify(path: str) -> KafkaFile | None:
    """What the name of the file at `path` says, None where it is not one of Kafka's.

    A name that Kafka would not give but that ends like one (`saved.log`, `copy.index`) is taken at its word.
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
    """The partition whose files a directory holds, by its name; None where the name is no partition's."""
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
    """The files that `paths` stand for: a file itself, a glob what it matches, a directory what is below it.

    A file that is named is taken whatever it is. Of directories the live segments (`.log`) are taken, with
    `all_kinds` every file that Kafka names, transient ones too. Files that are met twice are taken once. What
    gives no file (an unknown name, a directory that cannot be listed) is told to `on_problem`, and the
    others are taken all the same; without it `StorageError` is raised.
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
    if os.path.isdir(path):
        yield from _below(path, all_kinds, on_problem, set())
        return
    if not os.path.exists(path) and glob.has_magic(path):
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


def _glob_order(path: str) -> tuple[tuple[str, int], str]:
    partition = partition_of(path) or partition_of(os.path.dirname(path) or ".")
    return (partition or TopicPartition(os.path.dirname(path), -1), path)


def _below(
    directory: str, all_kinds: bool, on_problem: Callable[[KlogError], None] | None, visited: set[str]
) -> Iterator[KafkaFile]:
    # A link may lead back to a directory above it: each real one is visited once.
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
        raise StorageError(
            "holds neither segments nor partition directories",
            file=directory,
            cure="name a partition directory (topic-0) or one of the broker's log.dirs",
        )


def files_of(directory: str) -> list[KafkaFile]:
    """The files right in a directory that have one of Kafka's names, in Kafka's order."""
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
    """The partition directories right in a log directory, by topic and partition; current ones first."""
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
