"""Plans the recovery of a partition directory after an unclean stop: what a Kafka broker would do at its
start.

Rules: Kafka 3.9's `LogLoader` (interrupted cleanings and swaps, orphaned indexes, the recovery of each
segment, the truncation), `LogSegment.recover`, `LeaderEpochFileCache` and `ProducerStateManager`. This module
reads and decides; it changes nothing. If Kafka would refuse to start, the plan says so and recovers the
directory anyway.
"""

from __future__ import annotations

import math
import os
from dataclasses import replace
from itertools import pairwise
from typing import Final

from klog.formats import partition_metadata
from klog.formats.checkpoints import EpochEntry
from klog.formats.constants import INT32_MAX, TXN_INDEX_ENTRY_BYTES
from klog.formats.errors import FormatError, KlogError, StorageError
from klog.formats.names import FileKind, segment_file
from klog.formats.packed import TXN_INDEX_ENTRY
from klog.kernel.columns import BatchTable
from klog.kernel.markers import BadMarker
from klog.storage.files.checkpoint_files import epochs_problem
from klog.storage.files.files import read_whole
from klog.storage.files.partition_files import PartitionFiles, list_partition
from klog.storage.files.sparse_files import only_zeros_follow
from klog.storage.reading.producer_state import ProducerState, producers_in
from klog.storage.repair.leader_epochs import LeaderEpochs
from klog.storage.repair.producer_snapshots import Snapshots
from klog.storage.repair.recovery_epochs import epoch_steps, epochs_of_batches, note_epochs, read_epochs
from klog.storage.repair.recovery_indexes import index_steps, write_if_different
from klog.storage.repair.recovery_plan import (
    EMPTIES,
    REFUSES,
    Cut,
    Finding,
    RecoveryPlan,
    RecoverySettings,
    SetAside,
    SplitOff,
    Step,
    Trim,
    Write,
)
from klog.storage.repair.recovery_state import Recovered, Recovery, opener
from klog.storage.repair.segment_scan import SegmentScan, is_overlong, scan_segment
from klog.storage.repair.segment_split import Part, divide, require_same
from klog.storage.repair.transient_files import next_offset, resolve_transient_files

INDEX_MEMORY_BYTES: Final = 32 << 20
"""Rebuilt indexes up to this size stay in the plan; beyond it they are made again when they are written."""

_TRUNCATES = "truncates the segment here at an unclean start and deletes all later segments"


def plan_recovery(path: str, settings: RecoverySettings) -> RecoveryPlan:
    """Decide how to recover the partition directory at `path`. Raises `StorageError`."""
    files = list_partition(path)
    if settings.recovery_point and epochs_problem(files) is not None:
        settings = replace(settings, recovery_point=0)  # only all batches together have all epochs
    _require_no_copies(files)
    findings: list[Finding] = []
    resolved = resolve_transient_files(files)
    findings.extend(resolved.findings)
    findings.extend(_topic_id(files))

    def bad_snapshot(offset: int, error: KlogError) -> None:
        name = segment_file(FileKind.PRODUCER_SNAPSHOT, offset)
        findings.append(Finding(name, error.what, "deletes it and takes the next older snapshot"))

    def unreadable(segment: str, why: BadMarker) -> None:
        what = f"{why.what}, in a segment that Kafka reads producers from without recovering it"
        findings.append(Finding(os.path.basename(segment), what, f"{REFUSES}: {why.exception}"))

    parts: dict[str, Part] = {}
    snapshots = Snapshots(
        resolved.snapshots,
        now_ms=settings.now_ms,
        expiration_ms=settings.producer_expiration_ms,
        on_bad=bad_snapshot,
        on_unreadable=unreadable,
        open_segment=opener(parts),
    )
    work = Recovery(files, settings, resolved, snapshots, findings, parts=parts)
    work.unindexed = {base for base in resolved.segments if not _loads(work, base)}
    _recover_segments(work)
    return _conclude(work)


def _require_no_copies(files: PartitionFiles) -> None:
    """Raise `StorageError` if there are only gzip copies: recovery would begin a new, empty log there."""
    if files.holds_only_copies:
        raise StorageError(
            "holds gzip copies of segments and no segments", file=files.path, cure="unpack them first"
        )


def _topic_id(files: PartitionFiles) -> list[Finding]:
    """A damaged topic id can only be reported, because it is nowhere else in the directory."""
    if FileKind.PARTITION_METADATA not in files.plain:
        return []
    name = str(FileKind.PARTITION_METADATA)
    try:
        partition_metadata.parse(read_whole(files.named(name)))
    except FormatError as error:
        kafka = f"{REFUSES}, or takes the log directory offline; copy the file from another replica"
        return [Finding(name, error.what, kafka, error.position_bytes)]
    return []


def _loads(work: Recovery, base: int) -> bool:
    """Whether Kafka opens the segment without recovering it first: its indexes exist and look valid."""
    present = work.resolved.indexes.get(base, {})
    if FileKind.OFFSET_INDEX not in present and base not in work.resolved.made_indexes:
        return False
    txn_index = present.get(FileKind.TXN_INDEX)
    if txn_index is None:
        return True
    name = segment_file(FileKind.TXN_INDEX, base)
    data = read_whole(txn_index)
    usable = len(data) - len(data) % TXN_INDEX_ENTRY_BYTES
    for version, _, _, last_offset, _ in TXN_INDEX_ENTRY.iter_unpack(data[:usable]):
        # Kafka reads only the first of the version's two bytes.
        if version >> 8 > 0:
            work.findings.append(Finding(name, f"entry has the unknown version {version}", REFUSES))
            return False
        if last_offset < base:
            what = f"aborted transaction ends at {last_offset}, before the segment starts"
            work.findings.append(Finding(name, what, "recovers the segment while loading"))
            return False
    return True


def _recover_segments(work: Recovery) -> None:
    """Kafka begins each of its two rounds again after it has split a segment."""
    while not _recover_unindexed(work):
        pass
    while not _recover_unflushed(work):
        pass


def _floor(work: Recovery, bases: list[int]) -> float:
    """Base offset of the first segment that may not have been flushed."""
    recovery_point = work.settings.recovery_point
    if recovery_point is None:
        return math.inf
    return max((base for base in bases if base <= recovery_point), default=0)


def _recover_unindexed(work: Recovery) -> bool:
    """Recover the segments that Kafka recovers while it loads. False: a segment was split instead."""
    bases = sorted(work.resolved.segments)
    floor = _floor(work, bases)
    for place, base in enumerate(bases):
        # If no indexed segment comes before, recovery from the start repeats exactly this.
        again = floor <= bases[0] and work.unindexed.issuperset(bases[:place])
        if base not in work.unindexed or base in work.recovered or again:
            continue
        if _recover(work, base, {other: work.segments[other] for other in bases[:place]}) is None:
            return False
    return True


def _recover_unflushed(work: Recovery) -> bool:
    """Recover the segments from the recovery point on. False: a segment was split instead."""
    bases = sorted(work.resolved.segments)
    floor = _floor(work, bases)
    for place, base in enumerate(bases):
        if base >= floor:
            recovered = _recover(work, base, work.segments)
            if recovered is None:
                return False
            if recovered.scan.disordered or (recovered.scan.cut_bytes and not recovered.at_load):
                work.removed = bases[place + 1 :]
                # Kafka removes the snapshots that existed at its start, even if they were written again
                # since.
                work.snapshots.drop(set(work.removed) & set(work.resolved.snapshots))
                break
    return True


def _recover(work: Recovery, base: int, loaded: dict[int, str]) -> Recovered | None:
    """Recover one segment, with the producers of the `loaded` ones before it; None if it was split."""
    settings = work.settings
    state = work.snapshots.state_at(base, log_start_offset=settings.log_start_offset, segments=loaded)
    state.aborted.clear()
    epochs: list[EpochEntry] = []

    def follow(data: memoryview, table: BatchTable, rows: int) -> int:
        followed = state.take(data, table, 0, rows)
        note_epochs(table, min(followed + 1, rows), epochs)
        return followed

    path = work.resolved.segments[base]
    with work.open(path) as file:
        scan = scan_segment(file, base, settings.index, follow=follow)
    # Kafka splits the segment if the last batch is out of range too, and refuses to start otherwise.
    overlong = is_overlong(scan) and next_offset(path, base, work.open) - 1 - base > INT32_MAX
    if overlong and (parts := divide(path)):
        _split(work, base, scan, parts)
        return None
    _report(work, base, scan, state)
    if not scan.disordered:
        work.snapshots.take(state)
    scan = _within_memory(work, scan)
    work.snapshots.end_bytes[base] = 0 if scan.disordered else scan.valid_bytes
    recovered = Recovered(
        scan, epochs, tuple(state.aborted), frozenset(state.lone_aborts), base in work.unindexed
    )
    work.recovered[base] = recovered
    return recovered


def _split(work: Recovery, base: int, scan: SegmentScan, parts: tuple[Part, ...]) -> None:
    """Replace the segment by its parts. Its `.log` changes last, so until then everything can be repeated."""
    name = segment_file(FileKind.LOG, base)
    what = f"offset {scan.out_of_range_offset} is too far from the segment's base for an index (KAFKA-6264)"
    work.findings.append(Finding(name, what, "splits the segment", scan.valid_bytes))
    segments = work.resolved.segments
    path = segments.pop(base)
    indexes = work.resolved.indexes.pop(base, {})
    keeps_start = parts[0].base_offset == base
    if base in work.unindexed and keeps_start and FileKind.TXN_INDEX in indexes:
        # Kafka does not know the segment yet. It replaces only the files that the parts have, too.
        work.resolved.indexes[base] = {FileKind.TXN_INDEX: indexes.pop(FileKind.TXN_INDEX)}
    work.unindexed.discard(base)
    work.recovered.pop(base, None)
    for part in parts:
        if part.base_offset in segments:
            require_same(part, segments[part.base_offset])
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
        work.snapshots.drop({base} & set(work.resolved.snapshots))


def _within_memory(work: Recovery, scan: SegmentScan) -> SegmentScan:
    work.held_bytes += len(scan.offset_index) + len(scan.time_index)
    return scan if work.held_bytes <= INDEX_MEMORY_BYTES else scan.without_indexes()


def _report(work: Recovery, base: int, scan: SegmentScan, state: ProducerState) -> None:
    name = segment_file(FileKind.LOG, base)
    found = work.findings
    if scan.disordered:
        what = "offsets go back inside the segment"
        kafka = EMPTIES
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
    for bad in state.bad_markers:
        if not bad.is_invalid_record:
            found.append(Finding(name, bad.what, f"{REFUSES}: {bad.exception}"))
    ends = [aborted.last_offset for aborted in state.aborted]
    if not scan.disordered and any(after <= before for before, after in pairwise(ends)):
        what = "abort markers whose offsets go back"
        found.append(Finding(name, what, f"{REFUSES}: IllegalArgumentException of the transaction index"))
    for offset, complaint in state.complaints:
        found.append(Finding(name, f"offset {offset}: {complaint}", f"{REFUSES}: InvalidTxnStateException"))


def _conclude(work: Recovery) -> RecoveryPlan:
    """Steps 5 to 9 of Kafka's order: the log's start and end, epochs, snapshots; then all steps in order."""
    start = work.settings.log_start_offset
    epochs, epoch_file, readable = read_epochs(work)
    kept = sorted(work.segments)
    end = _next_offset(work, kept[-1]) if kept else start
    fresh_end = 0
    if kept and end < start:
        what = f"the log ends at {end}, before its start {start} in log-start-offset-checkpoint"
        work.findings.append(Finding("", what, "deletes all segments and starts empty at its log start"))
        work.removed = sorted(work.resolved.segments)
        work.snapshots.drop(work.snapshots.offsets)
        epochs = LeaderEpochs()
        kept, end, fresh_end = [], start, start
    created = start if not kept else None
    had_epochs = bool(epochs.entries) or (bool(work.removed) and not kept) or not readable
    epochs.truncate_from_end(end)
    if not epochs.entries and kept:
        # Kafka's own next recovery would find these epochs again.
        epochs = epochs_of_batches(work, end)
    epochs.truncate_from_start(start)
    bases = kept or [start]
    segments = work.segments
    work.snapshots.drop_strays(bases)
    log_start = max(start, bases[0])
    if work.settings.finds_producers:
        work.snapshots.state_at(end, log_start_offset=log_start, segments=segments, fresh_end=fresh_end)
    steps = [
        *work.resolved.steps,
        *work.splits,
        *_remove_segments(work),
        *_cuts(work),
        *_created(created),
        *index_steps(work),
        *_snapshot_steps(work),
        *epoch_steps(epochs, epoch_file, had_entries=had_epochs),
    ]
    if work.settings.keeps_valid:
        from klog.storage.repair.valid_files import without_valid  # a broker that starts needs none of it

        steps = without_valid(steps, work, log_start, end)
    return RecoveryPlan(
        work.files.path, tuple(steps), tuple(dict.fromkeys(work.findings)), log_start, end, len(bases)
    )


def _next_offset(work: Recovery, base: int) -> int:
    if base in work.recovered:
        return work.recovered[base].next_offset
    return next_offset(work.segments[base], base, work.open)


def _remove_segments(work: Recovery) -> list[Step]:
    """Remove later segments with their files before the truncation, after which they would look valid."""
    steps: list[Step] = []
    for base in work.removed:
        why = "after the cut" if work.segments else "before the log start"
        steps.append(SetAside(segment_file(FileKind.LOG, base), why))
        steps.extend(
            SetAside(segment_file(kind, base), why) for kind in sorted(work.resolved.indexes.get(base, {}))
        )
    return steps


def _cuts(work: Recovery) -> list[Step]:
    steps: list[Step] = []
    for base, recovered in work.recovered.items():
        path = work.segments.get(base)
        end, size = recovered.valid_bytes, recovered.scan.size_bytes
        if path is None or end >= size:
            continue
        name = segment_file(FileKind.LOG, base)
        if path not in work.parts and only_zeros_follow(path, end):
            steps.append(Trim(name, end, size))
        else:
            steps.append(Cut(name, end, size, recovered.scan.problem or "offsets go back"))
    return steps


def _created(base: int | None) -> list[Step]:
    if base is None:
        return []
    kinds = (FileKind.LOG, FileKind.OFFSET_INDEX, FileKind.TIME_INDEX)
    return [Write(segment_file(kind, base), b"", "a log has at least one segment") for kind in kinds]


def _snapshot_steps(work: Recovery) -> list[Step]:
    on_disk = work.resolved.snapshots
    taken = work.snapshots.taken
    wanted = set(work.snapshots.offsets)
    steps: list[Step] = [
        SetAside(segment_file(FileKind.PRODUCER_SNAPSHOT, offset), "Kafka keeps no snapshot here")
        for offset in sorted(set(on_disk) - wanted)
    ]
    for offset in sorted(wanted & set(taken)):
        name = segment_file(FileKind.PRODUCER_SNAPSHOT, offset)
        if not _has_producers(on_disk.get(offset), taken[offset]):
            steps.extend(write_if_different(name, on_disk.get(offset), taken[offset]))
    return steps


def _has_producers(path: str | None, snapshot: bytes) -> bool:
    """Whether Kafka reads the same producers from the file at `path`. It may know other batches of them."""
    try:
        return path is not None and producers_in(read_whole(path)) == producers_in(snapshot)
    except FormatError:
        return False
