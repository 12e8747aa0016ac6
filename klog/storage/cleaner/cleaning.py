"""Cleans one log: maps its dirty keys, then rewrites it group by group. It reads files and writes files.

Rules: Kafka's `Cleaner` (`buildOffsetMap`, `doClean`, `cleanSegments`). It reads closed segments, changes
none of them and needs no lock. Each group becomes `.cleaned` files, which the owner of the log swaps in.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from klog.formats.checksums import Bytes
from klog.formats.constants import CODEC_MASK, CONTROL_BIT, TRANSACTIONAL_BIT
from klog.formats.errors import CorruptRecordError
from klog.formats.names import FileKind
from klog.kernel.columns import BatchTable, RecordTable
from klog.kernel.compaction import OffsetMap
from klog.storage.cleaner.decoding import control_type, decode_one, decode_plain
from klog.storage.cleaner.filtering import BatchFilter
from klog.storage.cleaner.output import CleanedSegment
from klog.storage.cleaner.selection import group_segments
from klog.storage.cleaner.source import aborted_txns, position_of, verified_batches
from klog.storage.cleaner.task import CleanedGroup, CleanResult, CleanStats, CleanTask
from klog.storage.cleaner.transactions import CleanedTransactions
from klog.storage.cleaner.view import SegmentView
from klog.storage.reading.producer_state import AbortedTxn

OnBytes = Callable[[int], None]
"""Called with the number of bytes read or written, for progress and throttling. May raise to end the
cleaning.
"""
OnGroup = Callable[[CleanedGroup], None]
"""Called with a finished group; returns after it was swapped in."""

_SECRET_BYTES: Final = 16
_OWN_STEP: Final = CODEC_MASK | CONTROL_BIT | TRANSACTIONAL_BIT  # bits of batches that are handled one by one


def clean(task: CleanTask, on_group: OnGroup, on_bytes: OnBytes = lambda _: None) -> CleanResult:
    """Carry out `task`. If it ends early, groups whose swap has not begun leave no files.

    Raises `KlogError` if a segment cannot be read, is damaged or cannot be written, and what the callbacks
    raise.
    """
    return _Cleaning(task, on_group, on_bytes).run()


class _Cleaning:
    def __init__(self, task: CleanTask, on_group: OnGroup, on_bytes: OnBytes) -> None:
        self._task = task
        self._on_group = on_group
        self._on_bytes = on_bytes
        self._stats = CleanStats()
        settings = task.settings
        self._offsets = OffsetMap(
            settings.dedupe_buffer_bytes, settings.load_factor, os.urandom(_SECRET_BYTES)
        )

    def run(self) -> CleanResult:
        started = time.monotonic()
        task, stats = self._task, self._stats
        _MapBuilder(task, self._offsets, stats, self._on_bytes).build()
        stats.map_utilization = self._offsets.size / self._offsets.slots
        # A batch with a wrong offset may seem to lie above the segments that are cleaned.
        mapped_end = min(self._offsets.latest_offset + 1, task.first_uncleanable_offset)
        end_offset = max(mapped_end, task.first_dirty_offset)
        groups = group_segments(
            [segment for segment in task.segments if segment.base_offset < end_offset],
            segment_bytes=task.segment_bytes,
            index_bytes=task.segment_index_bytes,
            first_uncleanable_offset=task.first_uncleanable_offset,
        )
        transactions = CleanedTransactions()
        keeper = BatchFilter(task, self._offsets, transactions, stats)
        for group in groups if self._offsets.latest_offset >= 0 else []:
            self._clean_group(group, keeper, transactions)
        stats.seconds = time.monotonic() - started
        return CleanResult(end_offset, stats)

    def _clean_group(
        self, group: Sequence[SegmentView], keeper: BatchFilter, transactions: CleanedTransactions
    ) -> None:
        base_offset = group[0].base_offset
        output = CleanedSegment(self._task, base_offset)
        transactions.kept.clear()
        try:
            for number, segment in enumerate(group):
                following = group[number + 1].base_offset if number + 1 < len(group) else None
                self._clean_segment(segment, following, keeper, transactions, output)
            output.finish(transactions.kept, group[-1].modified_ms)
            replaced = tuple(segment.base_offset for segment in group)
            self._on_group(CleanedGroup(base_offset, replaced, output.size_bytes))
        except BaseException:
            output.abandon()
            raise

    def _clean_segment(
        self,
        segment: SegmentView,
        following_offset: int | None,
        keeper: BatchFilter,
        transactions: CleanedTransactions,
        output: CleanedSegment,
    ) -> None:
        task = self._task
        end = following_offset if following_offset is not None else self._next_base(segment)
        transactions.expect(_aborted_between(task, segment.base_offset, end))
        keeper.keep_legacy_tombstones = segment.modified_ms > self._legacy_horizon_ms()
        path = task.path(FileKind.LOG, segment.base_offset)
        table, stats = BatchTable(), self._stats
        with _located(path):
            for data in verified_batches(
                path, segment.size_bytes, table, buffer_bytes=task.settings.buffer_bytes
            ):
                self._on_bytes(table.consumed_bytes)
                stats.bytes_read += table.consumed_bytes
                written = output.append(keeper.filter(data, table))
                self._on_bytes(written)
                stats.bytes_written += written

    def _next_base(self, segment: SegmentView) -> int:
        """An offset above the segment. Transactions that begin in a later segment are at worst expected
        early.
        """
        later = [one.base_offset for one in self._task.segments if one.base_offset > segment.base_offset]
        return min(later, default=self._task.first_uncleanable_offset)

    def _legacy_horizon_ms(self) -> int:
        """Tombstones of magic 0 and 1 are removed from segments with a modification time up to this."""
        task = self._task
        clean = [one for one in task.segments if one.base_offset < task.first_dirty_offset]
        return clean[-1].modified_ms - task.delete_retention_ms if clean else 0


class _MapBuilder:
    """Fills the offset map with the keys of the dirty segments, in log order, until it is full."""

    def __init__(self, task: CleanTask, offsets: OffsetMap, stats: CleanStats, on_bytes: OnBytes) -> None:
        self._task = task
        self._offsets = offsets
        self._stats = stats
        self._on_bytes = on_bytes
        self._transactions = CleanedTransactions()
        self._records = RecordTable()

    def build(self) -> None:
        task = self._task
        dirty = _dirty_segments(task)
        if not dirty:
            return
        start, end = task.first_dirty_offset, task.first_uncleanable_offset
        self._transactions.expect(_aborted_between(task, start, end))
        ends = [*(segment.base_offset for segment in dirty[1:]), end]
        for segment, following in zip(dirty, ends, strict=True):
            if not self._add_segment(segment):
                return
            # The last offsets of a segment may be missing.
            self._offsets.latest_offset = following - 1

    def _add_segment(self, segment: SegmentView) -> bool:
        """Add the keys of a segment; False if the map is full."""
        task = self._task
        path = task.path(FileKind.LOG, segment.base_offset)
        index_path = task.path(FileKind.OFFSET_INDEX, segment.base_offset)
        position = position_of(index_path, segment.base_offset, task.first_dirty_offset)
        table = BatchTable()
        with _located(path):
            for data in verified_batches(
                path,
                segment.size_bytes,
                table,
                start_bytes=position,
                buffer_bytes=task.settings.buffer_bytes,
            ):
                self._on_bytes(table.consumed_bytes)
                if not self._add_batches(data, table):
                    return False
        return True

    def _add_batches(self, data: memoryview, table: BatchTable) -> bool:
        row = 0
        while row < len(table):
            if table.magic[row] >= 2 and table.attributes[row] & (CONTROL_BIT | TRANSACTIONAL_BIT):
                if not self._follow(data, table, row) and not self._add_rows(data, table, row, row + 1):
                    return False
                end = row + 1
            else:
                end = _plain_end(table, row)
                if not self._add_rows(data, table, row, end):
                    return False
            row = end
            last_offset = table.last_offset[row - 1]
            if last_offset >= self._task.first_dirty_offset:
                self._offsets.latest_offset = last_offset
        return True

    def _follow(self, data: memoryview, table: BatchTable, row: int) -> bool:
        """Follow a transactional or control batch; True if it holds no data that counts."""
        producer_id, last_offset = table.producer_id[row], table.last_offset[row]
        if table.attributes[row] & CONTROL_BIT:
            payload = decode_one(data, table, row, self._records)
            self._transactions.marker(producer_id, last_offset, control_type(payload, self._records))
            return True
        return self._transactions.data(producer_id, last_offset)

    def _add_rows(self, data: memoryview, table: BatchTable, first: int, last: int) -> bool:
        """Add the keys of some data batches: all of them uncompressed, or one of them compressed."""
        records = self._records
        if last - first == 1:
            payload: Bytes = decode_one(data, table, first, records)
        else:
            payload = data
            decode_plain(data, table, first, last, records)
        count = len(records)
        done = self._offsets.put(payload, records, 0, count, self._task.first_dirty_offset)
        if done == count:
            return True
        # The map is full: all records of the batches before this one are covered.
        before = records.batch[done] - 1
        if before >= first and table.last_offset[before] >= self._task.first_dirty_offset:
            self._offsets.latest_offset = max(self._offsets.latest_offset, table.last_offset[before])
        return False


def _plain_end(table: BatchTable, row: int) -> int:
    """The row after the uncompressed batches that start at `row`; a compressed batch is alone."""
    attributes, magic = table.attributes, table.magic
    end = row
    while end < len(table):
        if attributes[end] & (CODEC_MASK if magic[end] < 2 else _OWN_STEP):
            break
        end += 1
    return max(end, row + 1)


@contextmanager
def _located(path: str) -> Iterator[None]:
    """Adds the path to the errors of its block."""
    try:
        yield
    except CorruptRecordError as error:
        error.at(path)
        raise


def _dirty_segments(task: CleanTask) -> list[SegmentView]:
    start, end = task.first_dirty_offset, task.first_uncleanable_offset
    if start >= end:
        return []
    floor = max((one.base_offset for one in task.segments if one.base_offset <= start), default=start)
    return [one for one in task.segments if floor <= one.base_offset < end]


def _aborted_between(task: CleanTask, start_offset: int, end_offset: int) -> list[AbortedTxn]:
    """The aborted transactions that overlap [start, end), from the transaction indexes."""
    bases = [*(segment.base_offset for segment in task.segments), *task.later_bases]
    floor = max((base for base in bases if base <= start_offset), default=bases[0])
    found: list[AbortedTxn] = []
    for base in bases:
        if base < floor:
            continue
        for txn in aborted_txns(task.path(FileKind.TXN_INDEX, base)):
            if txn.last_offset >= start_offset and txn.first_offset < end_offset:
                found.append(txn)
            if txn.last_stable_offset >= end_offset:
                return found
    return found
