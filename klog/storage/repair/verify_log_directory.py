"""Verifies everything in a broker's log directories that it would trust at its start, except partitions.

Rules: Kafka's `LogManager` (directories, clean-shutdown marker, checkpoints) and `MetaPropertiesEnsemble`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from klog.formats import clean_shutdown, meta_properties
from klog.formats.checkpoints import parse_offsets
from klog.formats.errors import FormatError, KlogError
from klog.formats.names import (
    OFFSET_CHECKPOINTS,
    DirectoryState,
    FileKind,
    TopicPartition,
    parse_directory,
    parse_file,
)
from klog.storage.files.checkpoint_files import read_identity
from klog.storage.files.files import is_directory, list_directory, read_small
from klog.storage.files.kafka_files import partition_of
from klog.storage.repair.problem import RECOVER, Problem, note
from klog.storage.repair.verify_partition import PartitionFacts

REMOTE_INDEX_CACHE = "remote-log-index-cache"
# klog's own metadata store and SQLite's files beside it; a package above this one writes them.
METADATA_STORE = "klog-metadata.sqlite"
_KLOGS_OWN = frozenset((METADATA_STORE, f"{METADATA_STORE}-wal", f"{METADATA_STORE}-shm"))
_OFFLINE = "takes the log directory offline"
_MARKED = {
    DirectoryState.DELETE: "is scheduled for deletion",
    DirectoryState.FUTURE: "is a replica that was being moved here",
    DirectoryState.STRAY: "is a replica that the metadata no longer assigns here",
}


def verify_log_directory(path: str, partitions: Iterable[PartitionFacts]) -> list[Problem]:
    """Check the files and names of one log directory. Raises `StorageError`."""
    known: dict[TopicPartition, PartitionFacts] = {}
    for facts in partitions:
        partition = partition_of(facts.path)
        if partition is not None:
            known[partition] = facts
    problems = []
    for entry in list_directory(path):
        judge = _directory if is_directory(entry) else _file
        problems += judge(entry.path, entry.name)
    for kind in OFFSET_CHECKPOINTS:
        problems += _checkpoint(path, kind, known)
    return problems


def _directory(path: str, name: str) -> list[Problem]:
    if name == REMOTE_INDEX_CACHE:
        return []
    try:
        state = parse_directory(name).state
    except FormatError as error:
        return [Problem(path, error.what, "refuses to start", "move the directory out of the log directory")]
    kafka = "deletes it" if state is DirectoryState.DELETE else "keeps it as it is"
    return [note(path, _MARKED[state], kafka)] if state in _MARKED else []


def _file(path: str, name: str) -> list[Problem]:
    if name in _KLOGS_OWN:
        return []
    try:
        kind = parse_file(name).kind
    except FormatError:
        return [note(path, "has no name of Kafka's", "ignores it")]
    try:
        if name == FileKind.META_PROPERTIES:
            meta_properties.parse(read_small(path))
        elif name == FileKind.CLEAN_SHUTDOWN:
            clean_shutdown.parse(read_small(path))
    except FormatError as error:
        if kind is FileKind.META_PROPERTIES:
            cure = "copy it from another log directory of this broker"
            return [Problem(path, error.what, "refuses to start", cure, position=error.position_bytes)]
        return [note(path, error.what, "takes the stop for clean all the same")]
    return []


def _checkpoint(directory: str, kind: FileKind, known: dict[TopicPartition, PartitionFacts]) -> list[Problem]:
    path = os.path.join(directory, kind)
    if not os.path.exists(path):
        return []
    try:
        entries = parse_offsets(read_small(path)).entries
    except KlogError as error:
        cure = "delete the file: it counts as empty then"
        return [Problem(path, error.what, _OFFLINE, cure, position=error.position_bytes)]
    problems: list[Problem] = []
    seen = set()
    for partition, offset in entries:
        if partition in seen:
            what = f"{partition} is listed twice"
            problems.append(Problem(path, what, "takes the last entry", "delete one"))
        seen.add(partition)
        facts = known.get(partition)
        if facts is None:
            problems.append(note(path, f"{partition} has no directory here", "ignores the entry"))
        elif offset > facts.log_end_offset:
            problems += _beyond(path, kind, partition, offset, facts.log_end_offset)
    return problems


def _beyond(path: str, kind: FileKind, partition: TopicPartition, offset: int, end: int) -> list[Problem]:
    if kind is FileKind.LOG_START_CHECKPOINT:
        return []  # a problem of the partition, which loses all its segments
    # Recovery lowers recovery points. A broker lowers the others itself when it loads the log.
    cure = RECOVER if kind is FileKind.RECOVERY_POINT_CHECKPOINT else ""
    what = f"{partition} is at {offset}, but its log ends at {end}"
    return [note(path, what, "lowers it to the log's end", cure)]


def verify_together(directories: Iterable[str]) -> list[Problem]:
    """Problems between the log directories of one broker: different identities, partitions that exist
    twice.
    """
    problems: list[Problem] = []
    identities: dict[str, tuple[str, str]] = {}
    homes: dict[TopicPartition, str] = {}
    for directory in directories:
        path = os.path.join(directory, FileKind.META_PROPERTIES)
        for key, value in _identity(path).items():
            other, there = identities.setdefault(key, (value, path))
            if other != value:
                what = f"{key} is {value}, {there} has {other}"
                cure = "find out which directory is foreign"
                problems.append(Problem(path, what, "refuses to start", cure))
        for entry in list_directory(directory):
            name = _current(entry.name) if is_directory(entry) else None
            if name is None:
                continue
            home = homes.setdefault(name, directory)
            if home != directory:
                what = f"{name} is in {home} too"
                kafka = "refuses to start: Duplicate log directories"
                cure = "remove the older of the two (the one whose disk failed last)"
                problems.append(Problem(entry.path, what, kafka, cure))
    return problems


def _current(name: str) -> TopicPartition | None:
    try:
        parsed = parse_directory(name)
    except FormatError:
        return None
    return parsed.partition if parsed.state is DirectoryState.CURRENT else None


def _identity(path: str) -> dict[str, str]:
    try:
        properties = read_identity(path)
    except FormatError:
        return {}
    if properties is None:
        return {}
    pairs = {"cluster.id": properties.cluster_id, "the broker's id": properties.node_id}
    return {key: str(value) for key, value in pairs.items() if value is not None}
