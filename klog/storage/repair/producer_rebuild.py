"""Rebuilds what follows from producers: transaction indexes, and producer snapshots on request.

Most segments have no transactions, so this is imported when one has.
"""

from __future__ import annotations

from collections.abc import Sequence, Set

from klog.formats.constants import TXN_INDEX_ENTRY_BYTES, TXN_INDEX_VERSION
from klog.formats.errors import FormatError
from klog.formats.names import FileKind
from klog.formats.packed import TXN_INDEX_ENTRY
from klog.storage.files.files import read_whole
from klog.storage.files.partition_files import PartitionFiles, list_partition
from klog.storage.indexes.index_check import IndexProblem
from klog.storage.reading.producer_state import AbortedTxn, ProducerState, pack_aborted, unpack_snapshot
from klog.storage.repair.index_reports import IndexReport, IndexStatus, RebuildOptions, write_index
from klog.storage.repair.producer_snapshots import Snapshots, replay


def txn_index_of(files: PartitionFiles, base: int, options: RebuildOptions) -> bytes:
    """The transaction index of a segment. Raises `StorageError`."""
    return pack_aborted(_producers_of(files, base, options).aborted)


def check_txn_index(
    files: PartitionFiles, base: int, options: RebuildOptions, has_markers: bool
) -> IndexReport | None:
    """The transaction index compared with the segment; None if there is none and none is needed.

    Raises `StorageError`.
    """
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
        done.append(
            write_index(report.path, report, wanted, options) if repair and wanted is not None else report
        )
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
