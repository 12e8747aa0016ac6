"""Writes the directory of one partition: the same batches up to the cut, what is added, and derived files.

Rules: Kafka's `LogSegment`, `ProducerStateManager` and `LeaderEpochFileCache`. The files are those of a log
that was closed: indexes as a recovery would make them, and a producer snapshot at the start of each segment
and at the end. The caller forces all of them to disk at once; large segments are sent there while they are
written, so that little is left then.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import BinaryIO

from klog.backup.moment.values import AddedMarker
from klog.backup.moment.view import PartitionView
from klog.backup.restoring.batches import Rows
from klog.backup.restoring.derived import DerivedFiles
from klog.export.outputs import BackgroundSyncedFile
from klog.formats import partition_metadata
from klog.formats.checkpoints import EpochCheckpoint, EpochEntry, build_epochs
from klog.formats.constants import ENTRY_PREFIX_BYTES
from klog.formats.names import FileKind, segment_file
from klog.formats.packed import BATCH_HEADER_TO_LEADER_EPOCH
from klog.formats.partition_metadata import PartitionMetadata
from klog.kernel.columns import BatchTable
from klog.kernel.markers import build_marker
from klog.storage.files.chunks import chunks
from klog.storage.files.files import open_for_reading, storage_error, write_atomically
from klog.storage.repair.leader_epochs import LeaderEpochs
from klog.storage.repair.segment_scan import IndexSettings


@dataclass(frozen=True, slots=True)
class WrittenPartition:
    """A partition's log as it was written. `segment_start` is the base offset of its first segment.
    `largest_producer_id` is -1 if no producer has an id.
    """

    segment_start: int
    log_start_offset: int
    end_offset: int
    latest_epoch: int
    size_bytes: int
    largest_producer_id: int


class PartitionWriter:
    """Writes one partition into a directory that is empty. `snapshot` is the backup's, if it has one.

    A batch that fails its own checksum is an error only at the end: until then the checksum of its object may
    say more. Raises `StorageError`, `KlogError`.
    """

    def __init__(
        self, directory: str, view: PartitionView, settings: IndexSettings, snapshot: bytes | None
    ) -> None:
        self.directory = directory
        self._view = view
        self._derived = DerivedFiles(view, snapshot, settings)
        self._segments: list[int] = []
        self._file: BinaryIO | None = None
        self._synced: BackgroundSyncedFile | None = None
        self.end_offset = view.log_start_offset
        self._last_batch_end = view.log_start_offset
        self._epoch = -1
        self._size_bytes = 0
        self._segment_bytes = 0
        self.largest_producer_id = -1

    def copy(self, rows: Rows) -> None:
        """Write batches as they are into the segment of their piece."""
        base = rows.segment_base_offset
        if not self._segments:
            for empty in self._view.empty_segments:
                if empty < base:
                    self._roll(empty)
        if not self._segments or base > self._segments[-1]:
            self._roll(base)
        self._write(rows.span())
        table = rows.table
        self._last_batch_end = table.last_offset[rows.last - 1] + 1
        self.end_offset = max(self._last_batch_end, self._view.log_start_offset)
        self._epoch = max(self._epoch, table.leader_epoch[rows.last - 1])

    def append(self, batch: bytearray, records: int) -> None:
        """Append a batch that was built for the offset 0, in the latest leader epoch."""
        if not self._segments:
            self._roll(self.end_offset)
        follows = len(batch) - ENTRY_PREFIX_BYTES
        BATCH_HEADER_TO_LEADER_EPOCH.pack_into(
            batch, 0, self.end_offset, follows, max(self._latest_epoch(), 0)
        )
        self._write(batch)
        self.end_offset += records
        self._last_batch_end = self.end_offset

    def append_marker(self, added: AddedMarker) -> None:
        """Append the marker that ends a transaction."""
        self.append(build_marker(added.producer_id, added.epoch, added.marker), 1)

    def batches(self) -> Iterator[Rows]:
        """What was written so far."""
        if self._file is not None:
            with self._writing():
                self._file.flush()
        table = BatchTable()
        for base in self._segments:
            with open_for_reading(self._path(FileKind.LOG, base)) as file:
                for data in chunks(file, table):
                    yield Rows(base, data, table, 0, len(table))

    def finish(self) -> WrittenPartition:
        """Write the files that follow from all batches."""
        if not self._segments or self._ends_with_empty_segment():
            self._roll(self.end_offset)
        self._end_segment()
        derived = self._derived
        if self.end_offset > self._segments[0]:
            self._save(
                FileKind.PRODUCER_SNAPSHOT, self.end_offset, derived.producers.snapshot_at(self.end_offset)
            )
        known = self._epochs()
        self._save_plain(FileKind.LEADER_EPOCH_CHECKPOINT, build_epochs(EpochCheckpoint(known.entries)))
        if self._view.topic_id is not None:
            metadata = partition_metadata.build(PartitionMetadata(self._view.topic_id))
            self._save_plain(FileKind.PARTITION_METADATA, metadata)
        return WrittenPartition(
            self._segments[0],
            max(self._view.log_start_offset, self._segments[0]),
            self.end_offset,
            known.entries[-1].epoch if known.entries else -1,
            self._size_bytes,
            max(self.largest_producer_id, derived.producers.largest_producer_id),
        )

    def _epochs(self) -> LeaderEpochs:
        """Those that runs have found, and those of the batches. If records were deleted before a run came, it
        did not find the epochs of batches of an earlier run, or one that begins later than they do."""
        known = LeaderEpochs(self._view.epochs)
        known.truncate_from_end(self.end_offset)
        starts = {each.epoch: each.start_offset for each in known.entries}
        log_start = self._view.log_start_offset
        of_batches = list(self._derived.epochs)
        for entry, following in itertools.zip_longest(of_batches, of_batches[1:]):
            if following is None or following.start_offset > log_start:
                start_offset = max(entry.start_offset, log_start)
                starts[entry.epoch] = min(start_offset, starts.get(entry.epoch, start_offset))
        return LeaderEpochs(itertools.starmap(EpochEntry, sorted(starts.items())))

    def close(self) -> None:
        """Close the segment that is being written. Raises `StorageError`."""
        synced, self._synced, self._file = self._synced, None, None
        if synced is not None:
            with self._writing():
                synced.close()

    def _ends_with_empty_segment(self) -> bool:
        """Whether the log ends with a segment without batches.

        It did at its source; or all that was there at the moment was deleted before a run came, and the batch
        that reaches the log start came later.
        """
        is_empty = self.end_offset in self._view.empty_segments and self.end_offset > self._segments[-1]
        return is_empty or self._last_batch_end < self.end_offset

    def _latest_epoch(self) -> int:
        started = [each.epoch for each in self._view.epochs if each.start_offset <= self.end_offset]
        return max([self._epoch, *started])

    def _roll(self, base_offset: int) -> None:
        if self._segments:
            self._end_segment()
            self._save(
                FileKind.PRODUCER_SNAPSHOT, base_offset, self._derived.producers.snapshot_at(base_offset)
            )
        self._derived.begin_segment(base_offset)
        self._segment_bytes = 0
        self._segments.append(base_offset)
        with self._writing():
            self._file = open(self._path(FileKind.LOG, base_offset), "xb")  # noqa: SIM115 (see `close`)
        self._synced = BackgroundSyncedFile(self._file)

    def _write(self, data: memoryview | bytearray) -> None:
        if self._synced is not None:
            with self._writing():
                self._synced.write(data)
        self._derived.follow(data, self._segment_bytes)
        self._segment_bytes += len(data)
        self._size_bytes += len(data)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Turn errors of the current segment's file into `StorageError`s."""
        try:
            yield
        except OSError as error:
            path = self._path(FileKind.LOG, self._segments[-1])
            raise storage_error("cannot be written", path, error) from error

    def _end_segment(self) -> None:
        """Close the segment, and write the files that belong to it."""
        self.close()
        base = self._segments[-1]
        if self._derived.problem is not None:
            raise self._derived.problem.at(self._path(FileKind.LOG, base))
        made = self._derived.end_segment()
        self._save(FileKind.OFFSET_INDEX, base, made.offset_index)
        self._save(FileKind.TIME_INDEX, base, made.time_index)
        if made.aborted:
            self._save(FileKind.TXN_INDEX, base, made.aborted)

    def _path(self, kind: FileKind, offset: int) -> str:
        return os.path.join(self.directory, segment_file(kind, offset))

    def _save(self, kind: FileKind, offset: int, data: bytes) -> None:
        write_atomically(self._path(kind, offset), data, sync=False)

    def _save_plain(self, kind: FileKind, data: bytes) -> None:
        write_atomically(os.path.join(self.directory, kind), data, sync=False)
