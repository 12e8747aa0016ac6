"""What an interrupted cleaning, deletion or write left in a partition directory, and what Kafka makes of it.

Rules: the first three passes and the orphan check of Kafka's `LogLoader`: `.deleted` goes; `.swap` at or
above the first `.cleaned` goes, then `.cleaned`; what a complete `.swap` replaces goes, and it takes its
final name; an index without its segment goes. Decides only; files are still under their old names when the
plan is made.
"""

from __future__ import annotations

from dataclasses import dataclass

from klog.formats.columns import BatchTable
from klog.formats.names import FileKind, FileName, FileState, segment_file
from klog.storage.chunks import chunks
from klog.storage.files import open_for_reading
from klog.storage.partition_files import INDEX_KINDS, PartitionFiles
from klog.storage.recovery_plan import Finding, SetAside, Step, SwapIn


@dataclass(frozen=True, slots=True)
class Leftovers:
    """The directory as it will be when `steps` are done: paths are those of now.

    `segments` by base offset, `indexes` by base offset and kind, `snapshots` by offset.
    """

    steps: tuple[Step, ...]
    findings: tuple[Finding, ...]
    segments: dict[int, str]
    indexes: dict[int, dict[FileKind, str]]
    snapshots: dict[int, str]


def next_offset(path: str, base_offset: int) -> int:
    """The offset after the last whole batch of a segment, checked or not."""
    table = BatchTable()
    last = base_offset - 1
    with open_for_reading(path) as file:
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
    _swap_in(files, swaps, names, steps, findings)
    return _sorted(names, steps, findings)


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
) -> None:
    """Finish the swap: first what it replaces goes, then it takes the final names."""
    logs = [name for name in swaps if name.kind is FileKind.LOG]
    low = min((_offset(name) for name in logs), default=0)
    high = max((next_offset(files.named(name), _offset(name)) for name in logs), default=0)
    swapped = {(_offset(name), name.kind) for name in swaps}
    for key in sorted(names):
        replaced = low <= key[0] < high
        if replaced or key in swapped:
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


def _sorted(names: dict[tuple[int, FileKind], str], steps: list[Step], findings: list[Finding]) -> Leftovers:
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
    return Leftovers(tuple(steps), tuple(findings), segments, indexes, snapshots)
