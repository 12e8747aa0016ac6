"""What an interrupted cleaning, deletion or write left in a partition directory, and what Kafka makes of it.

Rules: the first three passes and the orphan check of Kafka's `LogLoader`: `.deleted` goes; `.swap` at or
above the first `.cleaned` goes, then `.cleaned`; what a complete `.swap` replaces goes, and it takes its
final name; an index without its segment goes. Decides only; files are still under their old names when the
plan is made.
"""

from __future__ import annotations

from dataclasses import dataclass

from klog.formats.columns import STOP_BAD_SIZE, BatchTable
from klog.formats.constants import OFFSET_INDEX_ENTRY_BYTES
from klog.formats.names import FileKind, FileName, FileState, segment_file
from klog.formats.packed import OFFSET_INDEX_ENTRY
from klog.storage.chunks import chunks
from klog.storage.files import open_for_reading, read_whole
from klog.storage.partition_files import INDEX_KINDS, PartitionFiles
from klog.storage.recovery_plan import REFUSES, Finding, SetAside, Step, SwapIn
from klog.storage.segment_split import OpenSegment


@dataclass(frozen=True, slots=True)
class Leftovers:
    """The directory as it will be when `steps` are done: paths are those of now.

    `segments` by base offset, `indexes` by base offset and kind, `snapshots` by offset. `made_indexes` are
    the base offsets of swapped-in segments without an offset index: Kafka makes one of nothing but zeros
    when it opens the `.swap`, and takes it for a sound one ever after.
    """

    steps: tuple[Step, ...]
    findings: tuple[Finding, ...]
    segments: dict[int, str]
    indexes: dict[int, dict[FileKind, str]]
    snapshots: dict[int, str]
    made_indexes: frozenset[int] = frozenset()


def next_offset(path: str, base_offset: int, open_segment: OpenSegment = open_for_reading) -> int:
    """The offset after the last whole batch of a segment, checked or not."""
    table = BatchTable()
    last = base_offset - 1
    with open_segment(path) as file:
        for _ in chunks(file, table):
            last = table.last_offset[-1] if len(table) else last
    return last + 1


def sort_leftovers(files: PartitionFiles) -> Leftovers:
    """Decide about transient files and orphans. Raises `StorageError` where a swap cannot be read."""
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
    """The offset after the last batch of a `.swap`, found from the last entry of its offset index, and
    whether Kafka gets that far.
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
    """Finish the swap: first what it replaces goes, then it takes the final names.

    Returns the base offsets whose offset index Kafka makes on the way.
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
    # The segment first: with it in place, an index still to come is at worst missing.
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
) -> Leftovers:
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
    return Leftovers(tuple(steps), tuple(findings), segments, indexes, snapshots, made_indexes)
