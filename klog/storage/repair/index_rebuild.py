"""Rebuilds the indexes of segments: `.index`, `.timeindex`, `.txnindex`.

Rules: Kafka's `LogSegment.recover` (in `segment_scan`); `producer_rebuild` follows transactions. The `.log`
is only read. Each index is written to a temporary file and renamed, so readers see the old one or the new
one. What a segment without transactions does not need, and a rebuild without a check, is not imported for it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final

from klog.formats.constants import CONTROL_BIT
from klog.formats.errors import StorageError
from klog.formats.names import FileKind, segment_file
from klog.kernel.columns import BatchTable
from klog.storage.files.files import open_for_reading, read_whole, size_bytes, storage_errors
from klog.storage.files.partition_files import INDEX_KINDS, PartitionFiles, list_partition
from klog.storage.files.quarantine import is_unfinished
from klog.storage.indexes.index_file import IndexFile, read_index
from klog.storage.repair.index_reports import (
    IndexReport,
    IndexStatus,
    RebuildOptions,
    SegmentReport,
    SegmentTask,
    write_index,
)
from klog.storage.repair.segment_scan import IndexSettings, SegmentScan, scan_segment

if TYPE_CHECKING:
    from klog.storage.indexes.index_check import IndexProblem

PARALLEL_FROM_BYTES: Final = 512 << 20
"""Below this a second process costs more than it brings."""


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
        with storage_errors("cannot be removed", files.named(name)):
            os.unlink(files.named(name))


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
            yield _rebuild_or_report(task, options=options)
        return
    from klog.jobs.processes import map_in_order

    yield from map_in_order(partial(_rebuild_or_report, options=options), tasks, processes)


def _rebuild_or_report(
    task: SegmentTask, _advance: Callable[[int], None] | None = None, *, options: RebuildOptions
) -> SegmentReport:
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
    from klog.storage.indexes.index_check import check_indexes

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
    if files.has(FileKind.TXN_INDEX, base) or found.has_markers:
        from klog.storage.repair.producer_rebuild import check_txn_index

        txn = check_txn_index(files, base, options, found.has_markers)
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
    txn_index = b""
    if has_markers:
        from klog.storage.repair.producer_rebuild import txn_index_of

        txn_index = txn_index_of(files, base, options)
    if txn_index or files.has(FileKind.TXN_INDEX, base):
        contents[FileKind.TXN_INDEX] = txn_index
    # With `force` nothing was checked. An index that stays as it is needs no other look.
    if not reports and any(
        files.has(kind, base) and not _holds(files.file(kind, base), data) for kind, data in contents.items()
    ):
        reports = _checked(task, files, options)
    done = [
        write_index(files.file(kind, base), reports.get(kind) or _missing(files, kind, base), data, options)
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
