"""One segment of a log that a broker serves: the `.log` file with its three indexes.

Rules: Kafka's `LogSegment` (index entries as batches are appended, roll conditions, lookups) and KIP-33. A
segment does not know its neighbours, the log's offsets or its producers. Not safe for threads: the log's lock
guards it. Readers may read bytes below a size that they have seen without the lock.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final

from klog.config.topic import TopicConfig
from klog.formats.constants import (
    INT32_MAX,
    INT64_MAX,
    MIN_ENTRY_BYTES,
    NO_TIMESTAMP,
)
from klog.formats.errors import CorruptRecordError
from klog.formats.names import FileKind, segment_file
from klog.formats.packed import TXN_INDEX_ENTRY
from klog.kernel import kernel
from klog.kernel.columns import BatchTable, IndexState
from klog.storage.log.aborted_transactions import NO_ABORTED, AbortedFound, aborted_between
from klog.storage.log.append_values import BatchInfo, run_batches
from klog.storage.log.batch_place import HEADER_BYTES, SMALLEST_HEADER_BYTES, BatchPlace, place_of
from klog.storage.log.batch_run import BatchRun
from klog.storage.log.cold_reads import read_at
from klog.storage.log.index_files import OffsetIndexFile, TimeIndexFile, TimestampOffset
from klog.storage.log.index_repair import KnownBatch, checked_largest, checked_start
from klog.storage.log.open_file import OpenFile, sync_file
from klog.storage.reading.producer_state import AbortedTxn, pack_aborted, unpack_aborted

INDEX_KINDS: Final = (FileKind.OFFSET_INDEX, FileKind.TIME_INDEX, FileKind.TXN_INDEX)
_SEEK_BYTES: Final = 4096
_FOUND_REMEMBERED: Final = 16
_BATCHES_REMEMBERED: Final = 1024


class LogSegment:
    """The files of one segment. `size` is the bytes of whole batches that have been written.

    All methods raise `OSError` if the disk fails.
    """

    def __init__(self, directory: str, base_offset: int, config: TopicConfig, created_ms: int) -> None:
        """Open the segment's files as they are, or new ones; `activate` makes it one that is appended to."""
        self.base_offset = base_offset
        self.directory = directory
        self.created_ms = created_ms
        self.config = config
        path = self.path(FileKind.LOG)
        # A link leads to somebody else's file, as in `klog serve --read-only`.
        self.file = OpenFile(path, os.O_RDONLY if os.path.islink(path) else os.O_RDWR | os.O_CREAT)
        self.size = os.fstat(self.file.descriptor).st_size
        self._offset_index: OffsetIndexFile | None = None
        self._time_index: TimeIndexFile | None = None
        self._preallocated = False
        self.bytes_since_index_entry = 0
        self._max_timestamp: TimestampOffset | None = None
        self._first_timestamp: int | None = None
        # Remembered, because each read of a read_committed consumer would look for the file.
        self._has_no_aborted = False
        # Positions that were found: a high watermark is looked up often and then fetched from.
        self._found: dict[int, BatchPlace] = {}
        # Batches that were seen at positions from the index.
        self.known_batches: dict[int, KnownBatch] = {}
        self.indexes_rebuilt = False

    def path(self, kind: FileKind) -> str:
        """The path of one of the segment's files."""
        return os.path.join(self.directory, segment_file(kind, self.base_offset))

    def __repr__(self) -> str:
        return f"LogSegment({self.base_offset}, {self.size} bytes)"

    @property
    def offset_index(self) -> OffsetIndexFile:
        """Opened at the first use."""
        if self._offset_index is None:
            path, max_bytes = self.path(FileKind.OFFSET_INDEX), self.config.segment_index_bytes
            self._offset_index = OffsetIndexFile(path, self.base_offset, max_bytes)
        return self._offset_index

    @property
    def time_index(self) -> TimeIndexFile:
        """Opened at the first use."""
        if self._time_index is None:
            path, max_bytes = self.path(FileKind.TIME_INDEX), self.config.segment_index_bytes
            self._time_index = TimeIndexFile(path, self.base_offset, max_bytes)
        return self._time_index

    @property
    def max_timestamp(self) -> TimestampOffset:
        """The largest timestamp in the segment, and the last offset of the batch that brought it."""
        if self._max_timestamp is None:
            self._max_timestamp = checked_largest(self)
        return self._max_timestamp

    def reconfigure(self, config: TopicConfig) -> None:
        """Use new configs of the topic; index sizes apply from the next segment on."""
        self.config = config

    def move_to(self, directory: str) -> None:
        """Use the new name of the log's directory."""
        self.directory = directory
        self.file.path = self.path(FileKind.LOG)
        if self._offset_index is not None:
            self._offset_index.path = self.path(FileKind.OFFSET_INDEX)
        if self._time_index is not None:
            self._time_index.path = self.path(FileKind.TIME_INDEX)

    def preallocate(self) -> None:
        """Make the file of a new segment as large as it may become, if the topic's `preallocate` is set. The
        file is cut when the segment ends.
        """
        if self.config.preallocate:
            os.ftruncate(self.file.descriptor, self.config.segment_bytes)
            self._preallocated = True

    def activate(self) -> None:
        """Allocate the indexes: the segment is (again) the active one."""
        if os.path.islink(self.file.path):
            self.file = OpenFile(self.file.path, os.O_RDWR)
        self.offset_index.activate()
        self.time_index.activate()

    # -- appending -------------------------------------------------------------------------------------------

    def append(self, data: memoryview | bytearray | bytes, batches: Sequence[BatchInfo]) -> None:
        """Write whole batches at the end of the active segment. If it raises, they do not count.

        Each of them may have an index entry, as when the segment is recovered.
        """
        position = self.size
        self.reserve(len(batches), len(data))
        self._write(data, position)
        largest = self._max_timestamp or self.max_timestamp
        if not position:
            self._first_timestamp = batches[0].max_timestamp
        for batch in batches:
            if batch.max_timestamp > largest.timestamp:
                self._max_timestamp = largest = TimestampOffset(batch.max_timestamp, batch.last_offset)
            if self.bytes_since_index_entry > self.config.index_interval_bytes:
                self.offset_index.append(batch.last_offset, position)
                self.time_index.maybe_append(largest.timestamp, largest.offset)
                self.bytes_since_index_entry = 0
            self.bytes_since_index_entry += batch.size
            position += batch.size
        self.size = position

    def append_scanned(self, data: memoryview, table: BatchTable) -> None:
        """Write the batches of a verified table, as `append` would, without Python for each of them."""
        position = self.size
        self.reserve(len(table), len(data))
        self._write(data, position)
        largest = self._max_timestamp or self.max_timestamp
        if not position:
            self._first_timestamp = table.max_timestamp[0]
        state = IndexState(self.base_offset, self.config.index_interval_bytes)
        state.bytes_since_entry = self.bytes_since_index_entry
        state.max_timestamp, state.max_timestamp_offset = largest
        state.last_index_timestamp = self.time_index.last.timestamp
        kernel.index(table, state)
        if len(state.offsets):
            self.offset_index.append_all(state.offsets, [position + each for each in state.positions])
        if len(state.timestamps):
            self.time_index.append_all(state.timestamps, state.timestamp_offsets)
        self._max_timestamp = TimestampOffset(state.max_timestamp, state.max_timestamp_offset)
        self.bytes_since_index_entry = state.bytes_since_entry
        self.size = position + len(data)

    def reserve(self, batches: int, size_bytes: int) -> None:
        """Make sure that the indexes have space on the disk for the next batches. Raises `OSError`."""
        most = min(batches, size_bytes // max(self.config.index_interval_bytes, 1) + 1)
        self.offset_index.reserve(most)
        self.time_index.reserve(most)

    def _write(self, data: memoryview | bytearray | bytes, position: int) -> None:
        descriptor, size = self.file.descriptor, len(data)
        written = os.pwrite(descriptor, data, position)
        while written < size:
            written += os.pwrite(descriptor, memoryview(data)[written:], position + written)

    def takes_run(self, run: BatchRun, last_offset: int, roll_ms: int) -> bool:
        """Whether all batches of a run belong in this segment, and its indexes have space for them.

        It may be false although no batch would roll the segment; then each batch is checked by itself.
        """
        size, offsets, times = self.size, self._offset_index, self._time_index
        first_ms, frames = self._first_timestamp, run.frames
        return (
            0 < size <= self.config.segment_bytes - run.size_bytes
            and first_ms is not None
            and first_ms >= 0
            and run.max_timestamp - first_ms <= roll_ms
            and last_offset - self.base_offset <= INT32_MAX
            and offsets is not None
            and times is not None
            and offsets.entries + frames < offsets.max_entries
            and times.entries + frames < times.max_entries - 1
        )

    def append_run(self, run: BatchRun, first_offset: int, leader_epoch: int) -> None:
        """Write the batches of a run that `takes_run` has accepted, as `append` would one after the other."""
        data = run.data(first_offset, leader_epoch)
        size_bytes = run.size_bytes
        since_entry = self.bytes_since_index_entry
        if since_entry + size_bytes - run.last_size_bytes > self.config.index_interval_bytes:
            self.append(data, run_batches(run, first_offset, leader_epoch))
            return
        self._write(data, self.size)
        largest = self._max_timestamp or self.max_timestamp
        max_timestamp = run.max_timestamp
        if max_timestamp > largest.timestamp:
            last_offset = first_offset + run.max_timestamp_records - 1
            self._max_timestamp = TimestampOffset(max_timestamp, last_offset)
        self.bytes_since_index_entry = since_entry + size_bytes
        self.size += size_bytes

    def append_aborted(self, txn: AbortedTxn) -> None:
        """Add an aborted transaction to the transaction index, which is created when it is first needed."""
        with open(self.path(FileKind.TXN_INDEX), "ab") as file:
            file.write(pack_aborted((txn,)))
        self._has_no_aborted = False

    def aborted(self) -> list[AbortedTxn]:
        """The entries of the transaction index."""
        if self._has_no_aborted:
            return []
        try:
            with open(self.path(FileKind.TXN_INDEX), "rb") as file:
                data = file.read()
        except FileNotFoundError:
            self._has_no_aborted = True
            return []
        return unpack_aborted(data)

    def aborted_between(self, offset: int, upper_offset: int) -> AbortedFound:
        """The aborted transactions that overlap a read from `offset` up to `upper_offset`."""
        if not self._has_no_aborted:
            try:
                with open(self.path(FileKind.TXN_INDEX), "rb", buffering=0) as file:
                    return aborted_between(file.fileno(), offset, upper_offset)
            except FileNotFoundError:
                self._has_no_aborted = True
        return NO_ABORTED

    def should_roll(
        self, incoming_bytes: int, last_offset: int, max_timestamp: int, now_ms: int, roll_ms: int
    ) -> bool:
        """Whether the next batches belong in a new segment.

        Age is by message time: from the first batch's timestamp to the incoming one's; by the clock only
        if the segment has no timestamps.
        """
        if self.size > self.config.segment_bytes - incoming_bytes:
            return True
        if self.size:
            first = self.first_timestamp()
            age_ms = max_timestamp - first if first >= 0 else now_ms - self.created_ms
            if age_ms > roll_ms:
                return True
        fits = 0 <= last_offset - self.base_offset <= INT32_MAX
        return not fits or self.offset_index.full or self.time_index.full

    def first_timestamp(self) -> int:
        """Largest timestamp of the first batch, -1 if there is none."""
        if self._first_timestamp is None:
            if not self.size:
                return NO_TIMESTAMP
            self._first_timestamp = self.batch_at(0).max_timestamp
        return self._first_timestamp

    def finish(self) -> None:
        """The segment is rolled, or its log closed: add the last time entry and trim all files."""
        self.time_index.maybe_append(*self.max_timestamp)
        self.offset_index.trim()
        self.time_index.trim()
        if self._preallocated:
            os.ftruncate(self.file.descriptor, self.size)
            self._preallocated = False

    # -- reading ---------------------------------------------------------------------------------------------

    def batch_at(self, position: int) -> BatchPlace:
        """The batch that starts at `position`. Raises `CorruptRecordError` if none does."""
        header = os.pread(self.file.descriptor, HEADER_BYTES, position) if position >= 0 else b""
        # The smallest message of magic 0 is a byte shorter than what is parsed.
        whole = header.ljust(SMALLEST_HEADER_BYTES, b"\0")
        place = place_of(whole, 0, position) if len(header) >= MIN_ENTRY_BYTES else None
        if place is None:
            raise CorruptRecordError("no batch starts here", file=self.file.path, position_bytes=position)
        return place

    def find(self, offset: int, may_wait: bool = True) -> BatchPlace | None:
        """The first batch whose last offset is at or above `offset`; None if there is none.

        Raises `CorruptRecordError` if the search from the index entry on meets bytes that are no batch, and
        `ColdReadError` if the disk is needed and the caller may not wait for it.
        """
        found = self._found.get(offset)
        if found is None:
            found = self._find(offset, may_wait)
            if found is not None:
                if len(self._found) >= _FOUND_REMEMBERED:
                    self._found.clear()
                self._found[offset] = found
        return found

    def start_before(self, offset: int, *, may_wait: bool = True) -> int:
        """The position of a batch at or before the first one that may hold `offset`.

        Raises `ColdReadError` if the disk is needed and the caller may not wait for it.
        """
        position = self.offset_index.lookup(offset, may_wait=may_wait).position
        known = self.known_batches.get(position)
        if known is not None and known.first_offset <= offset:
            return position
        if len(self.known_batches) >= _BATCHES_REMEMBERED:
            self.known_batches.clear()
        return checked_start(self, offset, may_wait=may_wait)

    def _find(self, offset: int, may_wait: bool) -> BatchPlace | None:
        position = self.start_before(offset, may_wait=may_wait)
        known = self.known_batches.get(position)
        if known is not None and known.last_offset < offset:
            # An entry of the index is for a batch's last offset, so the offset is mostly in the next one.
            position = known.end
        file = self.file
        while position < self.size:
            size_bytes = min(_SEEK_BYTES, self.size - position)
            chunk = read_at(file, file.descriptor, file.path, size_bytes, position, may_wait=may_wait)
            at = kernel.seek(chunk, offset)
            if at >= 0:
                return place_of(chunk, at, position + at) or self.batch_at(position + at)
            if at == -1:
                # No batch was skipped: the header is longer than the chunk, or its size is invalid.
                place = self.batch_at(position)
                if place.last_offset >= offset:
                    return place
                at = -1 - place.size
            position += -1 - at
        return None

    def next_offset(self) -> int:
        """The offset after the last batch, the base offset of an empty segment.

        Raises `CorruptRecordError` if the segment ends inside a batch.
        """
        position = self.start_before(INT64_MAX)
        next_offset = self.base_offset
        while position < self.size:
            place = self.batch_at(position)
            next_offset = place.last_offset + 1
            position += place.size
        if position > self.size:
            raise CorruptRecordError("the segment ends inside a batch", file=self.file.path)
        return next_offset

    def largest_timestamp(self) -> int:
        """The largest timestamp of its records; the file's modification time if they have none."""
        timestamp = self.max_timestamp.timestamp
        return timestamp if timestamp >= 0 else self.modified_ms()

    def modified_ms(self) -> int:
        """When the `.log` was last written to."""
        return os.fstat(self.file.descriptor).st_mtime_ns // 1_000_000

    # -- truncating, flushing, letting go --------------------------------------------------------------------

    def truncate_to(self, offset: int, now_ms: int) -> int:
        """Drop every batch whose last offset is at or above `offset`; returns the bytes dropped.

        The segment is the active one afterwards, and like a new one if it is empty.
        """
        place = self.find(offset)
        self._found.clear()
        self.known_batches.clear()
        self.offset_index.truncate_to(offset)
        self.time_index.truncate_to(offset)
        self._truncate_aborted(offset)
        dropped = 0
        if place is not None:
            dropped = self.size - place.position
            os.ftruncate(self.file.descriptor, place.position)
            self._preallocated = False
            self.size = place.position
        self.activate()
        self.bytes_since_index_entry = 0
        self._max_timestamp = self._largest_after_truncation()
        if not self.size:
            self._first_timestamp = None
            self.created_ms = now_ms
        return dropped

    def _truncate_aborted(self, offset: int) -> None:
        kept = [txn for txn in self.aborted() if txn.last_offset < offset]
        path = self.path(FileKind.TXN_INDEX)
        if os.path.exists(path):
            os.truncate(path, len(kept) * TXN_INDEX_ENTRY.size)

    def _largest_after_truncation(self) -> TimestampOffset:
        last = self.time_index.last
        position = self.start_before(last.offset) if self.time_index.entries else 0
        while position < self.size:
            place = self.batch_at(position)
            if place.max_timestamp > last.timestamp:
                last = TimestampOffset(place.max_timestamp, place.last_offset)
            position += place.size
        return last

    def flush(self) -> None:
        """Force everything to disk. It needs no lock, so the files may have other names by now."""
        os.fsync(self.file.descriptor)
        for kind in INDEX_KINDS:
            sync_file(self.path(kind))

    def forget_indexes(self) -> bool:
        """Close the indexes, which are about to be replaced; returns whether they were those of the active
        segment. The next use opens them again.
        """
        was_active = self._offset_index is not None and self._offset_index.is_active
        self.release()
        self._offset_index = self._time_index = self._max_timestamp = None
        self._found.clear()
        self.known_batches.clear()
        return was_active

    def release(self) -> None:
        """Close the indexes without changing them. Readers may still use the `.log` file."""
        if self._offset_index is not None:
            self._offset_index.release()
        if self._time_index is not None:
            self._time_index.release()
