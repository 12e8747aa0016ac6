"""Rebuilds the indexes of segments: `.index`, `.timeindex`, `.txnindex`, and producer snapshots on request.

Rules: Kafka's `LogSegment.recover` (in `segment_scan`); `producer_state` follows transactions. The `.log` is
only read. Each index is written to a temporary file and renamed, so readers see the old one or the new one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Final

from klog.formats.constants import CONTROL_BIT, TXN_INDEX_ENTRY_BYTES, TXN_INDEX_VERSION
from klog.formats.errors import FormatError, StorageError
from klog.formats.names import FileKind, segment_file
from klog.formats.packed import TXN_INDEX_ENTRY
from klog.kernel.columns import BatchTable
from klog.storage.files.files import (
    GZIP_SUFFIX,
    open_for_reading,
    read_whole,
    size_bytes,
    storage_error,
    write_atomically,
)
from klog.storage.files.partition_files import INDEX_KINDS, PartitionFiles, list_partition
from klog.storage.files.quarantine import is_unfinished
from klog.storage.indexes.index_check import IndexProblem, check_indexes
from klog.storage.indexes.index_file import IndexFile, read_index
from klog.storage.reading.producer_state import (
    DEFAULT_PRODUCER_EXPIRATION_MS,
    AbortedTxn,
    ProducerState,
    pack_aborted,
    unpack_snapshot,
)
from klog.storage.repair.producer_snapshots import Snapshots, replay
from klog.storage.repair.segment_scan import IndexSettings, SegmentScan, scan_segment

PARALLEL_FROM_BYTES: Final = 512 << 20
"""Below this a second process costs more than it brings."""


class IndexStatus(StrEnum):
    """The state of a file before the rebuild. `absent` files are optional: Kafka replays the log instead."""

    VALID = "valid"
    MISSING = "missing"
    BROKEN = "broken"
    ABSENT = "absent"


@dataclass(frozen=True, slots=True)
class RebuildOptions:
    """`check` writes nothing; `force` rebuilds valid indexes too; `snapshots` includes producer snapshots.

    `now_ms` decides which producers in snapshots have expired.
    """

    now_ms: int
    settings: IndexSettings
    check: bool = False
    force: bool = False
    snapshots: bool = False
    producer_expiration_ms: int = DEFAULT_PRODUCER_EXPIRATION_MS


@dataclass(frozen=True, slots=True)
class IndexReport:
    """One file: its state, the problem and its position (None: no problem), and whether it was written.

    A valid index may be allocated in full, after a stop that was not clean or while a broker runs.
    """

    path: str
    status: IndexStatus
    what: str | None = None
    position_bytes: int | None = None
    rebuilt: bool = False
    size_bytes: int | None = None
    is_allocated_in_full: bool = False


@dataclass(frozen=True, slots=True)
class SegmentReport:
    """The indexes of one segment, and the problem of its `.log` with its position, if there is one.

    `unreadable` says why the segment could not be read or its indexes not written.
    """

    path: str
    size_bytes: int
    indexes: tuple[IndexReport, ...]
    problem: str | None = None
    problem_bytes: int | None = None
    unreadable: StorageError | None = None


@dataclass(frozen=True, slots=True)
class SegmentTask:
    """One segment to check or rebuild. `is_gzipped` means a `.log.gz`, which is only read, and `is_held` that
    a process holds the log directory.
    """

    directory: str
    base_offset: int
    active: bool
    size_bytes: int
    is_gzipped: bool = False
    is_held: bool = False

    @property
    def path(self) -> str:
        """The file with the batches."""
        suffix = GZIP_SUFFIX if self.is_gzipped else ""
        return os.path.join(self.directory, f"{segment_file(FileKind.LOG, self.base_offset)}{suffix}")


def tasks_of(directory: str, only: int | None = None) -> list[SegmentTask]:
    """The segments of a partition directory; `only` is the base offset of the only one. Raises
    `StorageError`.
    """
    files = list_partition(directory)
    return [
        SegmentTask(
            directory, base, base == files.segments[-1], files.sizes[segment_file(FileKind.LOG, base)]
        )
        for base in files.segments
        if only is None or base == only
    ]


def remove_unfinished(directory: str) -> None:
    """Remove files that a killed process was writing. The caller holds the lock. Raises `StorageError`."""
    files = list_partition(directory)
    for name in filter(is_unfinished, files.unknown):
        try:
            os.unlink(files.named(name))
        except OSError as error:
            raise storage_error("cannot be removed", files.named(name), error) from error


def rebuild(
    tasks: list[SegmentTask], options: RebuildOptions, *, processes: int = 0
) -> Iterator[SegmentReport]:
    """Check the indexes of segments and, unless `check`, rebuild them. Reports come in the order of `tasks`.

    With `processes` 0 the number of processes depends on the sizes of the segments.
    """
    total = sum(task.size_bytes for task in tasks)
    if processes == 0:
        processes = min(os.cpu_count() or 1, len(tasks)) if total >= PARALLEL_FROM_BYTES else 1
    if processes <= 1:
        for task in tasks:
            yield _rebuild_or_report(task, options)
        return
    from klog.jobs.processes import map_in_order

    yield from map_in_order(partial(_rebuild_task, options=options), tasks, processes)


def _rebuild_task(
    task: SegmentTask, _advance: Callable[[int], None], *, options: RebuildOptions
) -> SegmentReport:
    return _rebuild_or_report(task, options)


def _rebuild_or_report(task: SegmentTask, options: RebuildOptions) -> SegmentReport:
    try:
        return rebuild_segment(task, options)
    except StorageError as error:
        log = os.path.join(task.directory, segment_file(FileKind.LOG, task.base_offset))
        return SegmentReport(log, task.size_bytes, (), unreadable=error)


def rebuild_segment(task: SegmentTask, options: RebuildOptions) -> SegmentReport:
    """Check the indexes of one segment and, unless `check`, rebuild those that are missing or broken."""
    files = list_partition(task.directory)
    base = task.base_offset
    log = files.file(FileKind.LOG, base)
    has_indexes = any(files.has(kind, base) for kind in INDEX_KINDS)
    if options.force or not (options.check or has_indexes):
        return _repair(task, files, options, {})
    reports = _checked(task, files, options)
    if options.check or all(report.status is IndexStatus.VALID for report in reports.values()):
        return SegmentReport(log, task.size_bytes, tuple(reports.values()))
    return _repair(task, files, options, reports)


def _checked(
    task: SegmentTask, files: PartitionFiles, options: RebuildOptions
) -> dict[FileKind, IndexReport]:
    """What is found of the indexes of one segment."""
    base = task.base_offset
    old = {
        kind: read_index(files.file(kind, base), kind, sorted_only=True) if files.has(kind, base) else None
        for kind in (FileKind.OFFSET_INDEX, FileKind.TIME_INDEX)
    }
    with open_for_reading(files.file(FileKind.LOG, base)) as file:
        found = check_indexes(
            file, base, old[FileKind.OFFSET_INDEX], old[FileKind.TIME_INDEX], active=task.active
        )
    problems = {FileKind.OFFSET_INDEX: found.offset_problem, FileKind.TIME_INDEX: found.time_problem}
    if any(problems.values()):
        problems = _unless_as_rebuilt(files, base, options, problems)
    reports: dict[FileKind, IndexReport] = {}
    for kind, problem in problems.items():
        reports[kind] = _missing(files, kind, base, old[kind])
        if problem is not None:
            reports[kind] = IndexReport(files.file(kind, base), IndexStatus.BROKEN, *problem)
    txn = _check_txn_index(files, base, options, found.has_markers)
    if txn is not None:
        reports[FileKind.TXN_INDEX] = txn
    return reports


def _unless_as_rebuilt(
    files: PartitionFiles,
    base: int,
    options: RebuildOptions,
    problems: dict[FileKind, IndexProblem | None],
) -> dict[FileKind, IndexProblem | None]:
    """The problems of indexes without those that a rebuild would leave as they are.

    If a segment has offsets or timestamps out of order, its entries do not fit it either way.
    """
    with open_for_reading(files.file(FileKind.LOG, base)) as file:
        scan = scan_segment(file, base, options.settings)
    rebuilt = {FileKind.OFFSET_INDEX: scan.offset_index, FileKind.TIME_INDEX: scan.time_index}
    return {
        kind: problem if problem is None or not _holds(files.file(kind, base), rebuilt[kind]) else None
        for kind, problem in problems.items()
    }


def _holds(path: str, data: bytes) -> bool:
    """Whether a file has this content. A file of another size, which may be huge, is not read."""
    return size_bytes(path) == len(data) and read_whole(path) == data


def _missing(files: PartitionFiles, kind: FileKind, base: int, index: IndexFile | None = None) -> IndexReport:
    path = files.file(kind, base)
    if files.has(kind, base):
        allocated = index is not None and index.is_allocated_in_full(kind)
        return IndexReport(path, IndexStatus.VALID, is_allocated_in_full=allocated)
    return IndexReport(path, IndexStatus.MISSING, "is not there")


def _check_txn_index(
    files: PartitionFiles, base: int, options: RebuildOptions, has_markers: bool
) -> IndexReport | None:
    """The transaction index compared with the segment; None if there is none and none is needed."""
    path = files.file(FileKind.TXN_INDEX, base)
    data = read_whole(path) if files.has(FileKind.TXN_INDEX, base) else None
    if data is None and not has_markers:
        return None
    state = _producers_of(files, base, options) if has_markers else ProducerState()
    if data is None:
        return IndexReport(path, IndexStatus.MISSING, "is not there") if state.aborted else None
    problem = txn_index_problem(data, base, state.aborted, state.lone_aborts)
    if problem is None:
        return IndexReport(path, IndexStatus.VALID)
    return IndexReport(path, IndexStatus.BROKEN, *problem)


def txn_index_problem(
    data: bytes,
    base_offset: int,
    aborted: Sequence[AbortedTxn],
    lone_aborts: Set[tuple[int, int]],
) -> IndexProblem | None:
    """What is wrong with a transaction index; None: nothing. `aborted` are the segment's transactions.

    An entry that is none of the segment's own transactions is valid if its ABORT marker is in the segment:
    the cleaner removes the records of aborted transactions first.
    """
    size = TXN_INDEX_ENTRY_BYTES
    if data == pack_aborted(aborted):
        return None  # what a rebuild writes, even if the batches are out of order
    if len(data) % size:
        what = f"{len(data)} bytes are no whole number of {size}-byte entries"
        return IndexProblem(what, len(data) - len(data) % size)
    missing = {(txn.producer_id, txn.last_offset): txn for txn in aborted}
    last = base_offset - 1
    for entry, (version, pid, first, end, _) in enumerate(TXN_INDEX_ENTRY.iter_unpack(data)):
        if version != TXN_INDEX_VERSION:
            return IndexProblem(f"entry {entry} has the unknown version {version}", entry * size)
        if end <= last:
            return IndexProblem(
                f"entry {entry} ends at offset {end}, after one that ends at {last}", entry * size
            )
        last = end
        txn = missing.pop((pid, end), None)
        if txn is None and (pid, end) not in lone_aborts:
            return IndexProblem(
                f"entry {entry}: producer {pid} aborted nothing at offset {end}", entry * size
            )
        if txn is not None and txn.first_offset != first:
            what = f"entry {entry} starts at offset {first}, the transaction at {txn.first_offset}"
            return IndexProblem(what, entry * size)
    if missing:
        pid, end = min(missing, key=lambda key: key[1])
        return IndexProblem(
            f"the transaction that producer {pid} aborted at offset {end} is missing", len(data)
        )
    return None


def _producers_of(files: PartitionFiles, base: int, options: RebuildOptions) -> ProducerState:
    """The producers after the segment, from the newest snapshot and the batches after it."""
    snapshots = Snapshots(
        {at: files.file(FileKind.PRODUCER_SNAPSHOT, at) for at in files.snapshots if at <= base},
        now_ms=options.now_ms,
        expiration_ms=options.producer_expiration_ms,
    )
    earlier = {other: files.file(FileKind.LOG, other) for other in files.segments if other < base}
    state = snapshots.state_at(base, log_start_offset=-1, segments=earlier)
    state.aborted.clear()
    state.lone_aborts.clear()
    replay(state, files.file(FileKind.LOG, base))
    return state


def _repair(
    task: SegmentTask, files: PartitionFiles, options: RebuildOptions, reports: dict[FileKind, IndexReport]
) -> SegmentReport:
    base = task.base_offset
    log = files.file(FileKind.LOG, base)
    has_markers = False

    def follow(_: memoryview, table: BatchTable, rows: int) -> int:
        nonlocal has_markers
        has_markers = has_markers or any(value & CONTROL_BIT for value in set(table.attributes))
        return rows

    with open_for_reading(log) as file:
        scan = scan_segment(file, base, options.settings, follow=follow)
    _require_fitting_index(log, scan, options.settings)
    contents = {FileKind.OFFSET_INDEX: scan.offset_index, FileKind.TIME_INDEX: scan.time_index}
    txn = pack_aborted(_producers_of(files, base, options).aborted) if has_markers else b""
    if txn or files.has(FileKind.TXN_INDEX, base):
        contents[FileKind.TXN_INDEX] = txn
    # With `force` nothing was checked. An index that stays as it is needs no other look.
    if not reports and any(
        files.has(kind, base) and not _holds(files.file(kind, base), data) for kind, data in contents.items()
    ):
        reports = _checked(task, files, options)
    done = [
        _write(files.file(kind, base), reports.get(kind) or _missing(files, kind, base), data, options)
        for kind, data in contents.items()
    ]
    at = scan.valid_bytes if scan.problem is not None else None
    problem = scan.problem
    if problem is None and scan.disordered:
        problem, at = "offsets go back inside the segment", 0
    return SegmentReport(log, task.size_bytes, tuple(done), problem, at)


def _require_fitting_index(log: str, scan: SegmentScan, settings: IndexSettings) -> None:
    if scan.full:
        raise StorageError(
            f"an index of this segment would not fit into {settings.max_bytes} bytes",
            file=log,
            cure="use the topic's segment.index.bytes and index.interval.bytes; nothing was written",
        )


def _write(path: str, report: IndexReport, data: bytes, options: RebuildOptions) -> IndexReport:
    if report.status is IndexStatus.VALID and not options.force:
        return report
    write_atomically(path, data)
    return IndexReport(
        path, report.status, report.what, report.position_bytes, rebuilt=True, size_bytes=len(data)
    )


def rebuild_snapshots(directory: str, options: RebuildOptions) -> list[IndexReport]:
    """Producer snapshots at each segment's start and at the log's end, as recovery would leave them.

    Existing ones are checked (form and crc). Missing ones are written, but are not problems: brokers keep
    only the newest. Raises `StorageError`.
    """
    files = list_partition(directory)
    if not files.segments:
        return []
    reports: dict[int, IndexReport] = {}
    for offset in files.snapshots:
        path = files.file(FileKind.PRODUCER_SNAPSHOT, offset)
        try:
            unpack_snapshot(read_whole(path))
            reports[offset] = IndexReport(path, IndexStatus.VALID)
        except FormatError as error:
            reports[offset] = IndexReport(path, IndexStatus.BROKEN, error.what, error.position_bytes)
    contents = _snapshot_contents(files, reports, options)
    for offset in contents:
        path = files.file(FileKind.PRODUCER_SNAPSHOT, offset)
        reports.setdefault(offset, IndexReport(path, IndexStatus.ABSENT, "a rebuild makes it"))
    done = []
    for offset, report in sorted(reports.items()):
        wanted = contents.get(offset)
        repair = wanted is not None and not options.check
        done.append(_write(report.path, report, wanted, options) if repair and wanted is not None else report)
    return done


def _snapshot_contents(
    files: PartitionFiles, reports: dict[int, IndexReport], options: RebuildOptions
) -> dict[int, bytes]:
    first = files.segments[0]
    snapshots = Snapshots(
        dict([(first, reports[first].path)] if first in reports and reports[first].what is None else []),
        now_ms=options.now_ms,
        expiration_ms=options.producer_expiration_ms,
    )
    for base in files.segments:
        state = snapshots.state_at(base, log_start_offset=-1 if first else 0, segments={})
        replay(state, files.file(FileKind.LOG, base))
        snapshots.take(state)
    end = state.end_offset
    wanted = {*files.segments, end}
    return {offset: data for offset, data in snapshots.taken.items() if offset in wanted}
