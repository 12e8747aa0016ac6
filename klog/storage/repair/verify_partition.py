"""Verifies everything in one partition directory that a broker would trust, except segments.

Rules: Kafka's `LogLoader` (what it does with each file), `ProducerStateManager`, `LeaderEpochFileCache`,
`PartitionMetadataFile`. `verify_segment` checks the segments.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from klog.formats import partition_metadata
from klog.formats.errors import FormatError, KlogError
from klog.formats.names import CONVERSION_FILE, FileKind, FileName, FileState
from klog.storage.files.files import GZIP_SUFFIX, is_broken_link, read_small
from klog.storage.files.partition_files import PartitionFiles, list_partition
from klog.storage.reading.producer_state import ProducerEntry, ProducerState, producers_in
from klog.storage.repair.epoch_check import ascending, epoch_problems
from klog.storage.repair.problem import REBUILD, RECOVER, Problem, note
from klog.storage.repair.producer_snapshots import replay
from klog.storage.repair.snapshot_check import entry_contradiction
from klog.storage.repair.verify_segment import SegmentFacts

Snapshot = dict[int, ProducerEntry]

_CONVERT: Final = "klog convert with the same options goes on with it"
_OF_CONVERSION: Final = "is output of a conversion that did not end"
_TRANSIENT = {
    FileState.DELETED: ("is a file whose deletion was under way", "deletes it at its next start"),
    FileState.CLEANED: ("is output of a cleaning that did not end", "deletes it at its next start"),
    FileState.SWAP: ("is a swap of cleaned segments that did not end", "finishes the swap at its next start"),
    FileState.TEMPORARY: ("is a write that did not end", "ignores or overwrites it"),
    FileState.PARTIAL: ("is a metadata snapshot that was not finished", "deletes it at its next start"),
}


@dataclass(frozen=True, slots=True)
class PartitionFacts:
    """The problems of a partition directory besides its segments, and where its log starts and ends.

    `is_suspicious` means that recovery may remove a part of the log.
    """

    path: str
    problems: tuple[Problem, ...]
    first_offset: int
    log_end_offset: int
    is_suspicious: bool


def verify_partition(path: str, segments: list[SegmentFacts], log_start_offset: int = 0) -> PartitionFacts:
    """Check a partition directory, given the facts of its segments and the log start offset.

    Raises `StorageError`.
    """
    files = list_partition(path)
    first = segments[0].base_offset if segments else 0
    end = segments[-1].next_offset if segments else 0
    # Retention deletes whole segments, and the log then starts with the first that is left.
    start = max(log_start_offset, first)
    problems = _unknown_files(files)
    overlaps = _between(files, segments)
    problems += overlaps
    problems += _snapshots(files, segments, start, end, compare=not overlaps)
    problems += _epochs(files, segments, start, end)
    problems += _metadata(files)
    return PartitionFacts(
        path, tuple(problems), first, end, _is_suspicious(files, segments, log_start_offset)
    )


def _is_suspicious(files: PartitionFiles, segments: list[SegmentFacts], log_start_offset: int) -> bool:
    """Whether recovery may remove a part of the log, so that its plan has to say what it does."""
    end = segments[-1].next_offset if segments else log_start_offset
    usual = {facts.base_offset for facts in segments} | {end}
    return (
        any(facts.is_suspicious for facts in segments)
        or not segments
        or end < log_start_offset
        or bool(files.transient)
        or any(name.endswith(FileState.TEMPORARY) for name in files.unknown)
        or any(base not in files.segments for base, _ in files.indexes)
        or any(offset not in usual or offset <= log_start_offset for offset in files.snapshots)
    )


def _unknown_files(files: PartitionFiles) -> list[Problem]:
    converting = any(CONVERSION_FILE.fullmatch(name) for name in files.unknown)
    problems = [
        note(files.named(name), _OF_CONVERSION, _TRANSIENT[name.state][1], _CONVERT)
        if converting and name.state in (FileState.CLEANED, FileState.SWAP)
        else note(files.named(name), *_TRANSIENT[name.state], _cure_of(name))
        for name in files.transient
    ]
    problems += [
        note(files.file(kind, base), "is an index without its .log", "deletes it at its next start", RECOVER)
        for base, kind in sorted(files.indexes)
        if base not in files.segments
    ]
    for name in files.unknown:
        if CONVERSION_FILE.fullmatch(name):
            what = "is the state of a conversion that did not end"
            problems.append(note(files.named(name), what, "ignores it", _CONVERT))
        elif name.endswith(FileState.TEMPORARY):
            problems.append(note(files.named(name), *_TRANSIENT[FileState.TEMPORARY], RECOVER))
        elif name.endswith(GZIP_SUFFIX):
            what = "is a gzip copy, of which verify reads only a .log.gz without its .log"
            problems.append(note(files.named(name), what, "ignores it"))
        else:
            problems.append(note(files.named(name), "has no name of Kafka's", "ignores it"))
    problems += [note(files.named(name), "is a directory", "ignores it") for name in files.directories]
    return problems + [_irregular(files.named(name)) for name in files.irregular]


def _irregular(path: str) -> Problem:
    if path.endswith(f".{FileKind.LOG}") and is_broken_link(path):
        what = "is a broken link, so the records of this segment cannot be read"
        cure = "bring back what the link names, or remove the link"
        return Problem(path, what, "serves the log without them", cure)
    return note(path, "is no regular file", "ignores it")


def _cure_of(name: FileName) -> str:
    """Recovery leaves snapshots of the metadata log alone, for these have their own rules (KIP-630)."""
    return "" if name.kind is FileKind.METADATA_SNAPSHOT else RECOVER


def _between(files: PartitionFiles, segments: list[SegmentFacts]) -> list[Problem]:
    problems = []
    for earlier, later in pairwise(segments):
        if earlier.next_offset > later.base_offset:
            last = earlier.next_offset - 1
            what = f"holds offsets up to {last}, the next segment starts at {later.base_offset}"
            path = files.file(FileKind.LOG, earlier.base_offset)
            problems.append(Problem(path, what, "serves some offsets twice", "klog dump-segment shows which"))
    return problems


def _snapshots(
    files: PartitionFiles, segments: list[SegmentFacts], start: int, end: int, *, compare: bool
) -> list[Problem]:
    """Check snapshots by themselves and, with `compare`, against the batches if these are undamaged."""
    problems: list[Problem] = []
    valid: dict[int, Snapshot] = {}
    for offset in files.snapshots:
        path = files.file(FileKind.PRODUCER_SNAPSHOT, offset)
        try:
            valid[offset] = producers_in(read_small(path))
        except KlogError as error:
            kafka = "deletes it and takes the next older one"
            cure = f"{REBUILD} --snapshots"
            problems.append(Problem(path, error.what, kafka, cure, position=error.position_bytes))
        if segments and offset > end:
            what = f"lies after the log's end {end}"
            problems.append(note(path, what, "deletes it at its next start", RECOVER))
    undamaged = not any(facts.damage or facts.problems for facts in segments)
    undamaged = undamaged and all(facts.base_offset in files.segments for facts in segments)
    if compare and undamaged and any(facts.has_producers for facts in segments):
        problems += _against_replay(files, segments, valid, start)
    return problems


def _against_replay(
    files: PartitionFiles, segments: list[SegmentFacts], valid: dict[int, Snapshot], start: int
) -> list[Problem]:
    """Compare snapshots with the batches, from the log's first snapshot on."""
    problems: list[Problem] = []
    first = segments[0].base_offset
    state = ProducerState(first)
    if first in valid:
        state.load(valid[first].values())
    for facts in segments:
        problems += _compare(files, facts.base_offset, valid, state, start)
        replay(state, files.file(FileKind.LOG, facts.base_offset))
    if segments[-1].next_offset != segments[-1].base_offset:
        problems += _compare(files, segments[-1].next_offset, valid, state, start)
    log = files.file(FileKind.LOG, segments[-1].base_offset)
    refuses = "refuses to start after an unclean stop: InvalidTxnStateException"
    return [*problems, *(Problem(log, what, refuses, offset=offset) for offset, what in state.complaints)]


def _compare(
    files: PartitionFiles, offset: int, valid: dict[int, Snapshot], state: ProducerState, start: int
) -> list[Problem]:
    for entry in valid.get(offset, {}).values():
        what = entry_contradiction(entry, state.producers.get(entry.producer_id), offset, start)
        if what is not None:
            path = files.file(FileKind.PRODUCER_SNAPSHOT, offset)
            kafka = "trusts it after a clean stop: may refuse or repeat this producer's batches"
            cure = f"{REBUILD} --snapshots --force"
            return [Problem(path, f"producer {entry.producer_id} {what}", kafka, cure, offset=offset)]
    return []


def _epochs(files: PartitionFiles, segments: list[SegmentFacts], start: int, end: int) -> list[Problem]:
    path = files.named(FileKind.LEADER_EPOCH_CHECKPOINT)
    in_log = ascending(facts.epochs for facts in segments)
    if FileKind.LEADER_EPOCH_CHECKPOINT in files.plain:
        return epoch_problems(path, in_log, start, end if segments else None)
    if not in_log or not files.segments:  # copies of segments alone are no log
        return []
    kafka = "starts without epochs after a clean stop; makes it from the batches after an unclean one"
    return [Problem(path, "is missing, though batches have leader epochs", kafka, RECOVER)]


def _metadata(files: PartitionFiles) -> list[Problem]:
    if FileKind.PARTITION_METADATA not in files.plain:
        return []
    path = files.named(FileKind.PARTITION_METADATA)
    try:
        partition_metadata.parse(read_small(path))
    except FormatError as error:
        kafka, cure = "takes the log directory offline", "copy the file from another replica"
        return [Problem(path, error.what, kafka, cure, position=error.position_bytes)]
    return []
