"""Recovery of a partition directory after an unclean stop, decided: what a Kafka broker would do at its
start.

Rules: Kafka 3.9's `LogLoader` (interrupted cleanings and swaps, orphan indexes, the recovery of each
segment, the cut), `LogSegment.recover`, `LeaderEpochFileCache` and `ProducerStateManager`. This module
reads and decides; it changes nothing. Where Kafka would refuse to start, the plan says so and recovers all
the same.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import BinaryIO, Final

from klog.formats import partition_metadata
from klog.formats.checkpoints import EpochCheckpoint, EpochEntry, build_epochs, parse_epochs
from klog.formats.columns import BatchTable
from klog.formats.constants import (
    INT32_MAX,
    OFFSET_INDEX_ENTRY_BYTES,
    TIME_INDEX_ENTRY_BYTES,
    TXN_INDEX_ENTRY_BYTES,
)
from klog.formats.errors import FormatError
from klog.formats.names import FileKind, segment_file
from klog.storage.files import open_for_reading, read_whole, size_bytes
from klog.storage.leader_epochs import LeaderEpochs
from klog.storage.leftovers import Leftovers, next_offset, sort_leftovers
from klog.storage.partition_files import PartitionFiles, list_partition
from klog.storage.producer_snapshots import Snapshots
from klog.storage.producer_state import ABORTED_TXN, ProducerState, pack_aborted
from klog.storage.recovery_plan import (
    REFUSES,
    Cut,
    Finding,
    RecoveryPlan,
    RecoverySettings,
    SetAside,
    SplitOff,
    Step,
    Write,
    WriteIndexes,
)
from klog.storage.segment_scan import SegmentScan, is_overlong, scan_segment
from klog.storage.segment_split import OpenSegment, Part, demand_same, divide, open_part

INDEX_MEMORY_BYTES: Final = 32 << 20
"""Rebuilt indexes up to this size stay in the plan; beyond it they are made again when they are written."""

_TRUNCATES = "truncates the segment here at an unclean start and deletes all later segments"


@dataclass(slots=True)
class _Recovered:
    """A segment that was scanned, with what the scan gave besides."""

    scan: SegmentScan
    epochs: list[EpochEntry]
    txn_index: bytes
    at_load: bool  # recovered while loading, for want of a usable index

    @property
    def valid_bytes(self) -> int:
        return 0 if self.scan.disordered else self.scan.valid_bytes

    @property
    def next_offset(self) -> int:
        return self.scan.base_offset if self.scan.disordered else self.scan.next_offset


@dataclass(slots=True)
class _Recovery:
    files: PartitionFiles
    settings: RecoverySettings
    leftovers: Leftovers
    snapshots: Snapshots
    findings: list[Finding]
    recovered: dict[int, _Recovered] = field(default_factory=dict)
    removed: list[int] = field(default_factory=list)
    unindexed: set[int] = field(default_factory=set)
    held_bytes: int = 0
    parts: dict[str, Part] = field(default_factory=dict)
    splits: list[Step] = field(default_factory=list)

    def open(self, path: str) -> BinaryIO:
        """The segment at `path`, which may be a part of another until the plan is carried out."""
        return _opener(self.parts)(path)

    @property
    def segments(self) -> dict[int, str]:
        """Paths of the segments that the log keeps, by base offset."""
        return {base: path for base, path in self.leftovers.segments.items() if base not in self.removed}


def _opener(parts: dict[str, Part]) -> OpenSegment:
    return lambda path: open_part(parts[path]) if path in parts else open_for_reading(path)


def plan_recovery(path: str, settings: RecoverySettings) -> RecoveryPlan:
    """Decide how to recover the partition directory at `path`. Raises `StorageError`."""
    files = list_partition(path)
    findings: list[Finding] = []
    leftovers = sort_leftovers(files)
    findings.extend(leftovers.findings)
    findings.extend(_topic_id(files))

    def bad_snapshot(offset: int, error: FormatError) -> None:
        name = segment_file(FileKind.PRODUCER_SNAPSHOT, offset)
        findings.append(Finding(name, error.what, "deletes it and takes the next older snapshot"))

    def unreadable(segment: str) -> None:
        what = "batches end early in a segment that Kafka reads producers from without recovering it"
        findings.append(Finding(os.path.basename(segment), what, f"{REFUSES}: CorruptRecordException"))

    parts: dict[str, Part] = {}
    snapshots = Snapshots(
        leftovers.snapshots,
        now_ms=settings.now_ms,
        expiration_ms=settings.producer_expiration_ms,
        on_bad=bad_snapshot,
        on_unreadable=unreadable,
        open_segment=_opener(parts),
    )
    work = _Recovery(files, settings, leftovers, snapshots, findings, parts=parts)
    work.unindexed = {base for base in leftovers.segments if not _loads(work, base)}
    _recover_segments(work)
    return _conclude(work)


def _topic_id(files: PartitionFiles) -> list[Finding]:
    """The topic id is nowhere else in the directory: a damaged one can only be told of."""
    if FileKind.PARTITION_METADATA not in files.plain:
        return []
    name = str(FileKind.PARTITION_METADATA)
    try:
        partition_metadata.parse(read_whole(files.named(name)))
    except FormatError as error:
        kafka = f"{REFUSES}, or takes the log directory offline; copy the file from another replica"
        return [Finding(name, error.what, kafka, error.position_bytes)]
    return []


def _loads(work: _Recovery, base: int) -> bool:
    """Whether Kafka opens the segment without recovering it first: its indexes are there and look usable."""
    present = work.leftovers.indexes.get(base, {})
    if FileKind.OFFSET_INDEX not in present and base not in work.leftovers.made_indexes:
        return False
    txn_index = present.get(FileKind.TXN_INDEX)
    if txn_index is None:
        return True
    name = segment_file(FileKind.TXN_INDEX, base)
    data = read_whole(txn_index)
    usable = len(data) - len(data) % TXN_INDEX_ENTRY_BYTES
    for version, _, _, last_offset, _ in ABORTED_TXN.iter_unpack(data[:usable]):
        # Kafka looks at the first of the version's two bytes only.
        if version >> 8 > 0:
            work.findings.append(Finding(name, f"entry has the unknown version {version}", REFUSES))
            return False
        if last_offset < base:
            what = f"aborted transaction ends at {last_offset}, before the segment starts"
            work.findings.append(Finding(name, what, "recovers the segment while loading"))
            return False
    return True


def _recover_segments(work: _Recovery) -> None:
    """Kafka begins each of its two rounds anew when it has split a segment."""
    while not _recover_unindexed(work):
        pass
    while not _recover_unflushed(work):
        pass


def _floor(work: _Recovery, bases: list[int]) -> int:
    return max((base for base in bases if base <= work.settings.recovery_point), default=0)


def _recover_unindexed(work: _Recovery) -> bool:
    """Recover what Kafka recovers while it loads. False: a segment was split instead."""
    bases = sorted(work.leftovers.segments)
    floor = _floor(work, bases)
    for place, base in enumerate(bases):
        # Where no indexed segment comes before, recovery from the start does exactly this again.
        again = floor <= bases[0] and work.unindexed.issuperset(bases[:place])
        if base not in work.unindexed or base in work.recovered or again:
            continue
        if _recover(work, base, {other: work.segments[other] for other in bases[:place]}) is None:
            return False
    return True


def _recover_unflushed(work: _Recovery) -> bool:
    """Recover from the recovery point on. False: a segment was split instead."""
    bases = sorted(work.leftovers.segments)
    floor = _floor(work, bases)
    for place, base in enumerate(bases):
        if base >= floor:
            recovered = _recover(work, base, work.segments)
            if recovered is None:
                return False
            if recovered.scan.disordered or (recovered.scan.cut_bytes and not recovered.at_load):
                work.removed = bases[place + 1 :]
                # Kafka removes the snapshots that stood there at its start, whoever has written them since.
                work.snapshots.drop(set(work.removed) & set(work.leftovers.snapshots))
                break
    return True


def _recover(work: _Recovery, base: int, loaded: dict[int, str]) -> _Recovered | None:
    """Recover one segment, with the producers of the `loaded` ones before it; None where it was split."""
    settings = work.settings
    state = work.snapshots.state_at(base, log_start_offset=settings.log_start_offset, segments=loaded)
    state.aborted.clear()
    epochs: list[EpochEntry] = []

    def follow(data: memoryview, table: BatchTable, rows: int) -> int:
        followed = state.take(data, table, 0, rows)
        _note_epochs(table, min(followed + 1, rows), epochs)
        return followed

    path = work.leftovers.segments[base]
    with work.open(path) as file:
        scan = scan_segment(file, base, settings.index, follow=follow)
    # Kafka splits where the last batch is out of range as well, and refuses to start otherwise.
    overlong = is_overlong(scan) and next_offset(path, base, work.open) - 1 - base > INT32_MAX
    if overlong and (parts := divide(path)):
        _split(work, base, scan, parts)
        return None
    _tell(work, base, scan, state)
    if not scan.disordered:
        work.snapshots.take(state)
    scan = _within_memory(work, scan)
    work.snapshots.end_bytes[base] = 0 if scan.disordered else scan.valid_bytes
    aborted = b"" if scan.disordered else pack_aborted(state.aborted)
    work.recovered[base] = _Recovered(scan, epochs, aborted, base in work.unindexed)
    return work.recovered[base]


def _split(work: _Recovery, base: int, scan: SegmentScan, parts: tuple[Part, ...]) -> None:
    """Put the parts in the segment's place. Its `.log` changes last: until then all can be redone."""
    name = segment_file(FileKind.LOG, base)
    what = f"offset {scan.out_of_range_offset} is too far from the segment's base for an index (KAFKA-6264)"
    work.findings.append(Finding(name, what, "splits the segment", scan.valid_bytes))
    segments = work.leftovers.segments
    path = segments.pop(base)
    indexes = work.leftovers.indexes.pop(base, {})
    keeps_start = parts[0].base_offset == base
    if base in work.unindexed and keeps_start and FileKind.TXN_INDEX in indexes:
        # Kafka does not know the segment yet, and replaces only those of its files that the parts have too.
        work.leftovers.indexes[base] = {FileKind.TXN_INDEX: indexes.pop(FileKind.TXN_INDEX)}
    work.unindexed.discard(base)
    work.recovered.pop(base, None)
    for part in parts:
        if part.base_offset in segments:
            demand_same(part, segments[part.base_offset])
            continue
        is_start = part is parts[0] and keeps_start
        target = path if is_start else work.files.file(FileKind.LOG, part.base_offset)
        segments[part.base_offset] = target
        work.parts[target] = part
        if not is_start:
            new = segment_file(FileKind.LOG, part.base_offset)
            work.splits.append(SplitOff(new, name, part.start_bytes, part.end_bytes))
    why = "of a segment that was split"
    work.splits.extend(SetAside(segment_file(kind, base), why) for kind in sorted(indexes))
    if keeps_start:
        work.splits.append(Cut(name, parts[0].end_bytes, parts[-1].end_bytes, "split"))
    else:
        work.splits.append(SetAside(name, "split"))
        work.snapshots.drop({base} & set(work.leftovers.snapshots))


def _note_epochs(table: BatchTable, rows: int, epochs: list[EpochEntry]) -> None:
    """Epochs above those noted before, with the first offset of each."""
    latest = epochs[-1].epoch if epochs else -1
    if not rows or max(table.leader_epoch) <= latest:
        return
    for row in range(rows):
        if table.leader_epoch[row] > latest and table.magic[row] >= 2:
            latest = table.leader_epoch[row]
            epochs.append(EpochEntry(latest, table.base_offset[row]))


def _within_memory(work: _Recovery, scan: SegmentScan) -> SegmentScan:
    work.held_bytes += len(scan.offset_index) + len(scan.time_index)
    return scan if work.held_bytes <= INDEX_MEMORY_BYTES else scan.without_indexes()


def _tell(work: _Recovery, base: int, scan: SegmentScan, state: ProducerState) -> None:
    name = segment_file(FileKind.LOG, base)
    found = work.findings
    if scan.disordered:
        what = "offsets go back inside the segment"
        kafka = "empties the segment and deletes all later ones"
        if base in work.unindexed:
            kafka = f"{REFUSES}: InvalidOffsetException while it makes the missing index"
        found.append(Finding(name, what, kafka, 0))
    elif scan.out_of_range_offset is not None:
        kafka = f"{REFUSES}: Split operation is only permitted for segments with overflow"
        found.append(Finding(name, scan.problem or "", kafka, scan.valid_bytes))
    elif scan.problem is not None:
        found.append(Finding(name, scan.problem, _TRUNCATES, scan.valid_bytes))
    if scan.full:
        what = (
            f"its index would not fit the {work.settings.index.max_bytes} bytes that --index-max-bytes allows"
        )
        found.append(Finding(name, what, f"{REFUSES}: Attempt to append to a full index"))
    for offset, complaint in state.complaints:
        found.append(Finding(name, f"offset {offset}: {complaint}", f"{REFUSES}: InvalidTxnStateException"))


def _conclude(work: _Recovery) -> RecoveryPlan:
    """Steps 5 to 9 of Kafka's order: the log's start and end, epochs, snapshots; then all steps in order."""
    start = work.settings.log_start_offset
    epochs, epoch_file, readable = _epochs(work)
    kept = sorted(work.segments)
    end = _next_offset(work, kept[-1]) if kept else start
    fresh_end = 0
    if kept and end < start:
        what = f"the log ends at {end}, before its start {start} in log-start-offset-checkpoint"
        work.findings.append(Finding("", what, "deletes all segments and starts empty at its log start"))
        work.removed = sorted(work.leftovers.segments)
        work.snapshots.drop(work.snapshots.offsets)
        epochs = LeaderEpochs()
        kept, end, fresh_end = [], start, start
    created = start if not kept else None
    had_epochs = bool(epochs.entries) or (bool(work.removed) and not kept) or not readable
    epochs.truncate_from_end(end)
    epochs.truncate_from_start(start)
    bases = kept or [start]
    segments = work.segments
    work.snapshots.drop_strays(bases)
    log_start = max(start, bases[0])
    work.snapshots.state_at(end, log_start_offset=log_start, segments=segments, fresh_end=fresh_end)
    steps = [
        *work.leftovers.steps,
        *work.splits,
        *_remove_segments(work),
        *_cuts(work),
        *_created(created),
        *_index_steps(work),
        *_snapshot_steps(work),
        *_epoch_steps(epochs, epoch_file, had_entries=had_epochs),
    ]
    return RecoveryPlan(
        work.files.path, tuple(steps), tuple(dict.fromkeys(work.findings)), log_start, end, len(bases)
    )


def _next_offset(work: _Recovery, base: int) -> int:
    if base in work.recovered:
        return work.recovered[base].next_offset
    return next_offset(work.segments[base], base, work.open)


def _epochs(work: _Recovery) -> tuple[LeaderEpochs, bytes | None, bool]:
    """The epochs as the file and then the recovered segments give them, the file's bytes (None: no file),
    and whether it could be read.
    """
    name = str(FileKind.LEADER_EPOCH_CHECKPOINT)
    data: bytes | None = None
    readable = True
    epochs = LeaderEpochs()
    if FileKind.LEADER_EPOCH_CHECKPOINT in work.files.plain:
        data = read_whole(work.files.named(name))
        try:
            epochs = LeaderEpochs(parse_epochs(data).entries)
        except FormatError as error:
            readable = False
            work.findings.append(
                Finding(name, error.what, "takes the log directory offline", error.position_bytes)
            )
    # Segments without a usable index come first: Kafka recovers them while it loads the others.
    ordered = sorted(work.recovered.items(), key=lambda item: (not item[1].at_load, item[0]))
    for _, recovered in ordered:
        for entry in recovered.epochs:
            epochs.assign_newer(entry)
    return epochs, data, readable


def _remove_segments(work: _Recovery) -> list[Step]:
    """Later segments go, each with all that belongs to it, before the cut makes them look sound."""
    steps: list[Step] = []
    for base in work.removed:
        why = "after the cut" if work.segments else "before the log start"
        steps.append(SetAside(segment_file(FileKind.LOG, base), why))
        steps.extend(
            SetAside(segment_file(kind, base), why) for kind in sorted(work.leftovers.indexes.get(base, {}))
        )
    return steps


def _cuts(work: _Recovery) -> list[Step]:
    return [
        Cut(
            segment_file(FileKind.LOG, base),
            recovered.valid_bytes,
            recovered.scan.size_bytes,
            recovered.scan.problem or "offsets go back",
        )
        for base, recovered in work.recovered.items()
        if base in work.segments and recovered.valid_bytes < recovered.scan.size_bytes
    ]


def _created(base: int | None) -> list[Step]:
    if base is None:
        return []
    kinds = (FileKind.LOG, FileKind.OFFSET_INDEX, FileKind.TIME_INDEX)
    return [Write(segment_file(kind, base), b"", "a log has at least one segment") for kind in kinds]


def _index_steps(work: _Recovery) -> list[Step]:
    steps: list[Step] = []
    for base in sorted(work.segments):
        recovered = work.recovered.get(base)
        present = work.leftovers.indexes.get(base, {})
        if recovered is None and work.segments[base] in work.parts:
            part = work.parts[work.segments[base]]
            steps.append(WriteIndexes(base, part.end_bytes - part.start_bytes, "missing"))
            continue
        if recovered is None:
            steps += _unrecovered_index_steps(work, base)
            continue
        scan = recovered.scan
        if not scan.has_indexes:
            steps.append(WriteIndexes(base, recovered.valid_bytes, "differs or may differ"))
        else:
            empty = scan.disordered
            wanted = {
                FileKind.OFFSET_INDEX: b"" if empty else scan.offset_index,
                FileKind.TIME_INDEX: b"" if empty else scan.time_index,
            }
            for kind, data in wanted.items():
                steps.extend(_write_if_different(segment_file(kind, base), present.get(kind), data))
        if recovered.txn_index or FileKind.TXN_INDEX in present:
            name = segment_file(FileKind.TXN_INDEX, base)
            steps.extend(_write_if_different(name, present.get(FileKind.TXN_INDEX), recovered.txn_index))
    return steps


def _unrecovered_index_steps(work: _Recovery, base: int) -> list[Step]:
    """What Kafka changes at the indexes of a segment that it only opens: it ends those that it has read
    behind their last whole entry.
    """
    present = work.leftovers.indexes.get(base, {})
    steps: list[Step] = []
    if base in work.leftovers.made_indexes:
        whole = work.settings.index.max_bytes // OFFSET_INDEX_ENTRY_BYTES * OFFSET_INDEX_ENTRY_BYTES
        steps.append(Write(segment_file(FileKind.OFFSET_INDEX, base), bytes(whole), "missing"))
    if FileKind.TIME_INDEX not in present:
        steps.append(Write(segment_file(FileKind.TIME_INDEX, base), b"", "missing"))
    is_last = base == max(work.segments)
    read = {
        FileKind.OFFSET_INDEX: OFFSET_INDEX_ENTRY_BYTES if is_last or base in work.snapshots.replayed else 1,
        FileKind.TIME_INDEX: TIME_INDEX_ENTRY_BYTES if is_last else 1,
    }
    for kind, entry_bytes in read.items():
        if kind in present and (rest := size_bytes(present[kind]) % entry_bytes):
            data = read_whole(present[kind])[:-rest]
            steps.append(Write(segment_file(kind, base), data, "its last entry is incomplete"))
    return steps


def _write_if_different(name: str, path: str | None, data: bytes) -> list[Step]:
    if path is None:
        return [Write(name, data, "missing")]
    return [] if read_whole(path) == data else [Write(name, data, "differs from what the segment gives")]


def _snapshot_steps(work: _Recovery) -> list[Step]:
    on_disk = work.leftovers.snapshots
    taken = work.snapshots.taken
    wanted = set(work.snapshots.offsets)
    steps: list[Step] = [
        SetAside(segment_file(FileKind.PRODUCER_SNAPSHOT, offset), "Kafka keeps no snapshot here")
        for offset in sorted(set(on_disk) - wanted)
    ]
    for offset in sorted(wanted & set(taken)):
        name = segment_file(FileKind.PRODUCER_SNAPSHOT, offset)
        steps.extend(_write_if_different(name, on_disk.get(offset), taken[offset]))
    return steps


def _epoch_steps(epochs: LeaderEpochs, old: bytes | None, *, had_entries: bool) -> list[Step]:
    name = str(FileKind.LEADER_EPOCH_CHECKPOINT)
    new = build_epochs(EpochCheckpoint(epochs.entries))
    if not epochs.entries and not had_entries:
        # A file cut inside its first line or two is an empty one to Kafka, which has nothing to write then.
        return [Write(name, b"", "missing")] if old is None else []
    return [] if old == new else [Write(name, new, "differs from what the batches give")]
