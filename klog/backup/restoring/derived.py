"""What follows from the batches of a log while they are written: indexes, transaction indexes, producer
snapshots and leader epochs. So nothing is read again.
"""

from __future__ import annotations

from typing import NamedTuple

from klog.backup.moment.view import PartitionView
from klog.formats.checkpoints import EpochEntry
from klog.formats.constants import INT64_MAX
from klog.formats.errors import CorruptRecordError, FormatError
from klog.kernel import kernel
from klog.kernel.columns import BatchTable, IndexState
from klog.storage.reading.producer_history import History
from klog.storage.reading.producer_state import ProducerState, pack_aborted, unpack_snapshot
from klog.storage.repair.recovery_epochs import note_epochs
from klog.storage.repair.segment_scan import IndexSettings, index_files, why_not_indexed


class SegmentIndexes(NamedTuple):
    """The files beside a segment; `aborted` is empty if no transaction was aborted in it."""

    offset_index: bytes
    time_index: bytes
    aborted: bytes


class DerivedFiles:
    """Follows the segments of a log from its first batch on. `snapshot` is the backup's, if it has one.

    `problem` is the first thing that is wrong with a batch, with its position in the segment: a batch fails
    its own checksum or does not belong into its segment. Nothing is followed from there on.
    """

    def __init__(self, view: PartitionView, snapshot: bytes | None, settings: IndexSettings) -> None:
        self.epochs: list[EpochEntry] = []
        self.problem: CorruptRecordError | None = None
        self.producers = Producers(view, snapshot)
        self._settings = settings
        self._table = BatchTable()
        self._state = IndexState(0, settings.interval_bytes)

    def begin_segment(self, base_offset: int) -> None:
        """What comes is in a new segment."""
        self._state = IndexState(base_offset, self._settings.interval_bytes)

    def follow(self, data: memoryview | bytearray, position_bytes: int) -> None:
        """Take whole batches that begin at a position of the segment."""
        if self.problem is not None:
            return
        table = self._table
        kernel.scan(data, position_bytes, True, table)
        kernel.verify(data, table)
        if not kernel.index(table, self._state):
            what, position_bytes = why_not_indexed(table, self._state), self._state.stopped_at or 0
            self.problem = CorruptRecordError(what, position_bytes=position_bytes)
            return
        if self._state.last_offset >= INT64_MAX:
            what = f"batch ends at the largest offset there is, {INT64_MAX}"
            self.problem = CorruptRecordError(what, position_bytes=table.position[len(table) - 1])
            return
        self.producers.follow(data, table, len(table))
        note_epochs(table, len(table), self.epochs)

    def end_segment(self) -> SegmentIndexes:
        """The files beside the segment that ends here."""
        return SegmentIndexes(*index_files(self._state), self.producers.take_aborted())


class Producers:
    """Follows the producers of a log. What the backup's snapshot says counts from its offset on: it also has
    producers whose batches were deleted.
    """

    def __init__(self, view: PartitionView, snapshot: bytes | None) -> None:
        self._state = ProducerState(view.log_start_offset, History())
        self._snapshot = snapshot
        self._offset = view.snapshot.offset if view.snapshot is not None else -1

    def follow(self, data: memoryview | bytearray, table: BatchTable, rows: int) -> None:
        """Take the first rows of a table."""
        first = 0
        if self._snapshot is not None:
            while first < rows and table.base_offset[first] < self._offset:
                first += 1
            self._state.follow(data, table, 0, first)
            if first < rows:
                self._load()
        self._state.follow(data, table, first, rows)

    def snapshot_at(self, offset: int) -> bytes:
        """The bytes of a snapshot at an offset that all batches so far lie below."""
        if self._snapshot is not None and self._offset <= offset:
            self._load()
        return self._state.snapshot()

    @property
    def largest_producer_id(self) -> int:
        """-1 if there is no producer."""
        return max(self._state.producers, default=-1)

    def take_aborted(self) -> bytes:
        """The transaction index of what was aborted since the last call; empty if nothing was."""
        aborted = pack_aborted(self._state.aborted)
        self._state.aborted.clear()
        return aborted

    def _load(self) -> None:
        data, self._snapshot = self._snapshot, None
        try:
            entries = unpack_snapshot(data or b"")
        except FormatError:
            return  # a broker would delete it, too, and take what the batches say
        aborted = self._state.aborted
        self._state = ProducerState(self._offset, History())
        self._state.load(entries)
        self._state.aborted = aborted
