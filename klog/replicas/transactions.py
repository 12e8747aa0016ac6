"""Finds what read_committed leaves out of a log: aborted transactions, and everything after the first open
one.

Rules: KIP-98, Kafka's `TransactionIndex` and `ProducerStateManager`. The aborted transactions of a segment
are those whose ABORT marker is in it; its `.txnindex` lists them. A broker creates that file at the first
abort: if it is missing but the segment's other indexes exist, no transaction was aborted. If only the `.log`
was copied, or the index is broken, the transactions are derived from the segment's batches. The last stable
offset is the first offset of the first transaction that is open at the log's end. Open transactions are known
from the newest producer snapshot and the batches after it. The high watermark does not limit the last stable
offset here (`klog.export.planner`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from klog.formats.constants import CONTROL_BIT, TXN_INDEX_ENTRY_BYTES, TXN_INDEX_VERSION
from klog.formats.errors import FormatError, KlogError
from klog.formats.packed import TXN_INDEX_ENTRY
from klog.kernel import kernel
from klog.kernel.columns import BatchTable
from klog.replicas.files import read_small
from klog.replicas.open_segment import OpenSegment
from klog.replicas.replica_contents import Extent, map_segments
from klog.replicas.replica_files import Replica, SegmentFile
from klog.replicas.splits import AbortedRange
from klog.storage.reading.batch_search import valid_batch, walk
from klog.storage.reading.producer_state import ProducerState, newest_state


@dataclass(frozen=True, slots=True)
class Transactions:
    """Aborted transactions by the offsets of their markers, and the last stable offset."""

    aborted: tuple[AbortedRange, ...]
    last_stable_offset: int

    def aborted_in(self, first_offset: int, end_offset: int) -> tuple[AbortedRange, ...]:
        """Those that overlap the offsets from `first_offset` to before `end_offset`."""
        after = bisect_right(self.aborted, first_offset - 1, key=lambda one: one.last_offset)
        return tuple(one for one in self.aborted[after:] if one.first_offset < end_offset)


def transactions(
    replica: Replica, extents: Sequence[Extent], log_end_offset: int, problems: list[KlogError]
) -> Transactions:
    """The transactions in a log of `extents`; the snapshots of `replica` are used.

    Files that cannot be read are added to `problems`.
    """
    listed = map_segments(_listed, extents)
    aborted = [one for found in listed if not isinstance(found, KlogError) and found for one in found]
    problems += [found for found in listed if isinstance(found, KlogError)]
    unlisted = [row for row, found in enumerate(listed) if isinstance(found, KlogError) or found is None]
    state = _state_before(
        replica, extents[unlisted[0]].first_offset if unlisted else log_end_offset, problems
    )
    for row, extent in enumerate(extents):
        if extent.end_offset <= state.end_offset:
            continue
        try:
            _follow(state, extent)
        except KlogError as error:
            problems.append(error.at(extent.segment.log))
        state.end_offset = extent.end_offset
        if row in unlisted:
            aborted += [AbortedRange(*txn[:3]) for txn in state.aborted]
        state.aborted.clear()
    stable = min((first for first in state.open_txns if _is_valid(extents, first)), default=log_end_offset)
    return Transactions(tuple(sorted(aborted, key=lambda one: one.last_offset)), min(stable, log_end_offset))


def _listed(extent: Extent) -> list[AbortedRange] | KlogError | None:
    """The aborted transactions that a segment's index lists, or the error if the index is broken.

    None if only the segment's batches can show them.
    """
    segment = extent.segment
    if segment.txn_index is None:
        return None if segment.offset_index is None and segment.time_index is None else []
    try:
        data = read_small(segment.txn_index)
        return _entries(data, segment)
    except KlogError as error:
        return error.at(segment.txn_index)


def _entries(data: bytes, segment: SegmentFile) -> list[AbortedRange]:
    if len(data) % TXN_INDEX_ENTRY_BYTES:
        raise FormatError(f"{len(data)} bytes is not a multiple of the {TXN_INDEX_ENTRY_BYTES}-byte entries")
    entries: list[AbortedRange] = []
    last = segment.base_offset - 1
    for version, producer_id, first, end, _ in TXN_INDEX_ENTRY.iter_unpack(data):
        if version != TXN_INDEX_VERSION or not last < end or not 0 <= first <= end:
            raise FormatError(
                f"entry {len(entries)} does not fit the ones before it",
                position_bytes=len(entries) * TXN_INDEX_ENTRY_BYTES,
                cure="the segment was read instead; `klog rebuild-index` rebuilds the index",
            )
        last = end
        entries.append(AbortedRange(producer_id, first, end))
    return entries


def _state_before(replica: Replica, offset: int, problems: list[KlogError]) -> ProducerState:
    """The state at the newest valid snapshot at or before `offset`; an empty state if there is none."""
    paths = {at: path for at, path in replica.snapshots if at <= offset}
    state = newest_state(
        reversed(paths),
        lambda at: read_small(paths[at]),
        on_bad=lambda at, error: problems.append(error.at(paths[at])),
        errors=KlogError,
    )
    return ProducerState(0) if state is None else state


def _follow(state: ProducerState, extent: Extent) -> None:
    """Apply the batches of an extent to the state, from the state's end on."""
    base = extent.segment.base_offset
    first = max(state.end_offset, extent.first_offset)
    with OpenSegment(extent.segment) as opened:
        start = opened.search.at_or_before_offset(first)
        for data, table in walk(opened.file, start.position_bytes, extent.end.end_bytes, base):
            row = 0
            while row < len(table) and table.last_offset[row] < first:
                row += 1
            end = len(table)
            while end > row and table.base_offset[end - 1] >= extent.end_offset:
                end -= 1
            for damaged in [*_damaged_markers(data, table, row, end), end]:
                state.follow(data, table, row, damaged)
                row = damaged + 1


def _damaged_markers(data: bytes, table: BatchTable, first: int, end: int) -> list[int]:
    """The rows of control batches with a wrong checksum: these end no transaction."""
    if not any(attributes & CONTROL_BIT for attributes in set(table.attributes[first:end])):
        return []
    view, one, damaged = memoryview(data), BatchTable(), []
    for row in range(first, end):
        if table.attributes[row] & CONTROL_BIT:
            at = table.position[row] - table.origin
            kernel.scan(view[at : at + table.size[row]], table.position[row], True, one)
            if not len(one) or kernel.verify(view[at : at + table.size[row]], one):
                damaged.append(row)
    return damaged


def _is_valid(extents: Sequence[Extent], offset: int) -> bool:
    """Whether the batch at an offset is valid, or there is none.

    A damaged batch may name any producer; as an open transaction it would hide all records after it.
    """
    row = bisect_right(extents, offset, key=lambda extent: extent.first_offset) - 1
    if row < 0 or offset >= extents[row].end_offset:
        return True
    with OpenSegment(extents[row].segment) as opened:
        table = opened.batch_at(offset, extents[row].end.end_bytes)
        return table is not None and valid_batch(opened.file, table.position[0]) is not None
