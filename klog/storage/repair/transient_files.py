"""Decides about the files that an interrupted cleaning, deletion or write left in a partition directory.

Rules: the first three passes of Kafka's `LogLoader` and its check for orphaned indexes. `.deleted` files are
removed. `.swap` files at or above the first `.cleaned` file are removed, then the `.cleaned` files. A
complete `.swap` segment takes its final name, and the segments that it replaces are removed. An index without
its segment is removed. This module decides only; while the plan is made, the files keep their old names.
"""

from __future__ import annotations

from dataclasses import dataclass

from klog.formats.constants import OFFSET_INDEX_ENTRY_BYTES
from klog.formats.names import FileKind, FileName, FileState, segment_file
from klog.formats.packed import OFFSET_INDEX_ENTRY
from klog.kernel.columns import STOP_BAD_SIZE, BatchTable
from klog.storage.files.chunks import chunks
from klog.storage.files.files import open_for_reading, read_whole
from klog.storage.files.partition_files import INDEX_KINDS, PartitionFiles
from klog.storage.repair.recovery_plan import REFUSES, Finding, SetAside, Step, SwapIn
from klog.storage.repair.segment_split import OpenSegment


@dataclass(frozen=True, slots=True)
class ResolvedDirectory:
    """The directory as it will be after `steps`. Paths are the present ones.

    `segments` are by base offset, `indexes` by base offset and kind, `snapshots` by offset. `made_indexes`
    are the base offsets of swapped-in segments without an offset index: Kafka creates one of zeros when it
    opens the `.swap` file, and takes it for valid from then on.
    """

    steps: tuple[Step, ...]
    findings: tuple[Finding, ...]
    segments: dict[int, str]
    indexes: dict[int, dict[FileKind, str]]
    snapshots: dict[int, str]
    made_indexes: frozenset[int] = frozenset()


def next_offset(path: str, base_offset: int, open_segment: OpenSegment = open_for_reading) -> int:
    """The offset after the last whole batch of a segment. The batches are not verified."""
    table = BatchTable()
    last = base_offset - 1
    with open_segment(path) as file:
        for _ in chunks(file, table):
            last = table.last_offset[-1] if len(table) else last
    return last + 1


def resolve_transient_files(files: PartitionFiles) -> ResolvedDirectory:
    """Decide about transient files and orphans. Raises `StorageError` if a `.swap` file cannot be read."""
    steps: list[Step] = []
    findings: list[Finding] = []

    def aside(name: object, why: str, kafka: str) -> None:
        steps.append(SetAside(str(name), why))
        findings.append(Finding(str(name), why, kafka))

    for name in _of(files, FileState.DELETED):
        aside(name, "its deletion was under way", "deletes it")
    cleaned = _of(files, FileState.CLEANED)
    first_cleaned = min((_offset(name) for name in cleaned), default=None)
    swaps = []
    for name in _of(files, FileState.SWAP):
        if first_cleaned is not None and _offset(name) >= first_cleaned:
            aside(name, "part of a segment split that did not end", "deletes it")
        else:
            swaps.append(name)
    for name in cleaned:
        aside(name, "output of a cleaning or split that did not end", "deletes it")
    unfinished = [*map(str, _of(files, FileState.TEMPORARY))]
    unfinished += [name for name in files.unknown if name.endswith(".tmp")]
    steps.extend(SetAside(name, "a write that did not end") for name in unfinished)
    names = _normal_names(files)
    made = _swap_in(files, swaps, names, steps, findings)
    return _sorted(names, steps, findings, made)


def _end_of_swap(path: str, base_offset: int, index: str | None) -> tuple[int, bool]:
    """The offset after the last batch of a `.swap` file, and whether Kafka reads up to there. The last entry
    of its offset index says where to start.
    """
    position, offset = 0, base_offset
    entries = read_whole(index) if index is not None else b""
    if len(entries) >= OFFSET_INDEX_ENTRY_BYTES:
        last = len(entries) // OFFSET_INDEX_ENTRY_BYTES * OFFSET_INDEX_ENTRY_BYTES
        relative, position = OFFSET_INDEX_ENTRY.unpack_from(entries, last - OFFSET_INDEX_ENTRY_BYTES)
        offset += relative
    if position < 0:
        return next_offset(path, base_offset), False
    table = BatchTable()
    end = base_offset
    with open_for_reading(path) as file:
        for _ in chunks(file, table, start_bytes=position):
            if len(table) and max(table.last_offset) >= offset:
                offset = -1
                end = table.last_offset[-1] + 1
    return end, table.stop != STOP_BAD_SIZE


def _of(files: PartitionFiles, state: FileState) -> list[FileName]:
    # Snapshots of the metadata log have their own rules (KIP-630).
    return [
        name
        for name in files.transient
        if name.state is state and name.kind is not FileKind.METADATA_SNAPSHOT
    ]


def _offset(name: FileName) -> int:
    return -1 if name.offset is None else name.offset


def _normal_names(files: PartitionFiles) -> dict[tuple[int, FileKind], str]:
    """Paths of the files with an offset and no suffix."""
    names = {(base, FileKind.LOG): files.file(FileKind.LOG, base) for base in files.segments}
    names |= {(base, kind): files.file(kind, base) for base, kind in files.indexes}
    return names | {
        (at, FileKind.PRODUCER_SNAPSHOT): files.file(FileKind.PRODUCER_SNAPSHOT, at) for at in files.snapshots
    }


def _swap_in(
    files: PartitionFiles,
    swaps: list[FileName],
    names: dict[tuple[int, FileKind], str],
    steps: list[Step],
    findings: list[Finding],
) -> frozenset[int]:
    """Finish the swap: remove what the `.swap` segments replace, then give them their final names.

    Returns the base offsets whose offset index Kafka creates meanwhile.
    """
    bases = [_offset(name) for name in swaps if name.kind is FileKind.LOG]
    swapped = {(_offset(name), name.kind): files.named(name) for name in swaps}
    low = min(bases, default=0)
    high = 0
    for base in bases:
        path = swapped[base, FileKind.LOG]
        end, readable = _end_of_swap(path, base, swapped.get((base, FileKind.OFFSET_INDEX)))
        high = max(high, end)
        if not readable:
            what = "batches end early in a segment that is to be swapped in"
            kafka = f"{REFUSES}: CorruptRecordException"
            findings.append(Finding(segment_file(FileKind.LOG, base, FileState.SWAP), what, kafka))
    made = frozenset(base for base in bases if (base, FileKind.OFFSET_INDEX) not in swapped)
    for key in sorted(names):
        replaced = low <= key[0] < high
        if replaced or key in swapped or (key[1] is FileKind.OFFSET_INDEX and key[0] in made):
            name = segment_file(key[1], key[0])
            steps.append(SetAside(name, "replaced by the cleaned segment"))
            findings.append(Finding(name, "is replaced by a .swap file", "deletes it"))
            del names[key]
    segments = {base for base, kind in [*names, *swapped] if kind is FileKind.LOG}
    # The segment comes first. If the process stops then, an index is missing at worst.
    for swap in sorted(swaps, key=lambda name: (name.kind is not FileKind.LOG, str(name))):
        if swap.kind in INDEX_KINDS and _offset(swap) not in segments:
            steps.append(SetAside(str(swap), "index without its segment"))
            findings.append(Finding(str(swap), "index without its .log", "deletes it"))
            continue
        target = segment_file(swap.kind, _offset(swap))
        steps.append(SwapIn(str(swap), target))
        findings.append(Finding(str(swap), "a swap of cleaned segments did not end", "renames it into place"))
        names[_offset(swap), swap.kind] = files.named(swap)
    return made


def _sorted(
    names: dict[tuple[int, FileKind], str],
    steps: list[Step],
    findings: list[Finding],
    made_indexes: frozenset[int],
) -> ResolvedDirectory:
    segments = {offset: path for (offset, kind), path in sorted(names.items()) if kind is FileKind.LOG}
    snapshots = {offset: path for (offset, kind), path in names.items() if kind is FileKind.PRODUCER_SNAPSHOT}
    indexes: dict[int, dict[FileKind, str]] = {}
    for (offset, kind), path in sorted(names.items()):
        if kind not in INDEX_KINDS:
            continue
        if offset in segments:
            indexes.setdefault(offset, {})[kind] = path
        else:
            name = segment_file(kind, offset)
            steps.append(SetAside(name, "index without its segment"))
            findings.append(Finding(name, "index without its .log", "deletes it"))
    return ResolvedDirectory(tuple(steps), tuple(findings), segments, indexes, snapshots, made_indexes)
