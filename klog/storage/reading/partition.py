"""Partition directories and log directories as values of the library: what is in them, in Kafka's order.

Kafka's rules for names (`klog.formats.names`) say which files belong together. Files are read at each access,
because a running broker may change them. This module changes no file; recovery and rebuilding are elsewhere.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Unpack

from klog.formats import clean_shutdown, meta_properties, partition_metadata
from klog.formats.checkpoints import EpochEntry
from klog.formats.clean_shutdown import CleanShutdown
from klog.formats.compression import DEFAULT_LIMIT_BYTES
from klog.formats.errors import KlogError, StorageError
from klog.formats.meta_properties import MetaProperties
from klog.formats.names import FileKind, FileState, TopicPartition, parse_directory
from klog.storage.files.checkpoint_files import read_leader_epochs, read_offsets, read_parsed
from klog.storage.files.files import open_for_reading
from klog.storage.files.kafka_files import KafkaFile, files_of, partition_directories, partition_of
from klog.storage.reading.read_bounds import BatchKeywords, ReadBounds, RecordKeywords, read_bounds
from klog.storage.reading.segment import Segment, new_builder
from klog.storage.reading.select import Bounds
from klog.storage.reading.transactions import without_uncommitted
from klog.storage.reading.values import Batch, Record

if TYPE_CHECKING:
    import pyarrow as pa

    from klog.kernel.arrow import ArrowBuilder

_PAST_EVERY_OFFSET = 2**63 - 1


class PartitionDirectory:
    """The files of one replica.

    `topic`, `partition` and `state` come from the name of the directory; they are None if it is not a
    partition's name. Reading methods take the arguments of those of `Segment` and read all segments in order.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, max_decompressed_bytes: int = DEFAULT_LIMIT_BYTES
    ) -> None:
        self.path = os.fspath(path)
        self.max_decompressed_bytes = max_decompressed_bytes
        name = partition_of(self.path)
        self.topic = None if name is None else name.topic
        self.partition = None if name is None else name.partition
        self.state = (
            None if name is None else parse_directory(os.path.basename(os.path.abspath(self.path))).state
        )
        self.files()

    def __repr__(self) -> str:
        return f"<PartitionDirectory {self.path}>"

    def files(self) -> list[KafkaFile]:
        """All files with one of Kafka's names, in Kafka's order. Raises `StorageError`."""
        return files_of(self.path)

    @property
    def segments(self) -> list[Segment]:
        """The segments by base offset, without files that are being swapped in or deleted."""
        return [
            Segment(file.path, max_decompressed_bytes=self.max_decompressed_bytes)
            for file in self.files()
            if file.kind is FileKind.LOG and file.state is FileState.NORMAL
        ]

    @property
    def snapshot_offsets(self) -> list[int]:
        """Offsets of the producer snapshots, ascending. A snapshot covers the log before its offset."""
        return [
            file.base_offset
            for file in self.files()
            if file.kind is FileKind.PRODUCER_SNAPSHOT
            and file.state is FileState.NORMAL
            and file.base_offset is not None
        ]

    @property
    def leader_epochs(self) -> tuple[EpochEntry, ...]:
        """(epoch, start offset) of each leader, ascending; empty if there is no such file."""
        return read_leader_epochs(self.path)

    @property
    def topic_id(self) -> str | None:
        """The topic's id in Kafka's text form (22 characters); None if there is no `partition.metadata`."""
        path = os.path.join(self.path, FileKind.PARTITION_METADATA)
        if not os.path.exists(path):
            return None
        return read_parsed(path, partition_metadata.parse).topic_id

    @property
    def log_start_offset(self) -> int:
        """First offset that consumers may read, from the log directory's checkpoint or the first segment."""
        bases = [segment.base_offset for segment in self.segments if segment.base_offset is not None]
        first = min(bases, default=0)
        path = os.path.join(os.path.dirname(os.path.abspath(self.path)), FileKind.LOG_START_CHECKPOINT)
        if self.topic is None or self.partition is None or not os.path.exists(path):
            return first
        starts = read_offsets(path)
        return max(first, starts.get(TopicPartition(self.topic, self.partition), first))

    @property
    def log_end_offset(self) -> int:
        """The offset that the next record would get: one after the last whole batch."""
        segments = self.segments
        if not segments:
            return self.log_start_offset
        last = segments[-1]
        end = last.base_offset or 0
        bounds = Bounds(first_offset=_PAST_EVERY_OFFSET)
        with open_for_reading(last.path) as file:
            # Bytes after the last whole batch are not part of the log yet, so they are not a problem.
            reader = last.reader(file, bounds=bounds, verify=False, on_problem=_ignore_damage)
            for _ in reader.chunks():
                if len(reader.batches):
                    end = reader.batches.last_offset[-1] + 1
        return end

    def batches(self, **keywords: Unpack[BatchKeywords]) -> Iterator[Batch]:
        """The batches of all segments in order; keywords as of `Segment.batches`."""
        for segment in self._segments_within(read_bounds(**keywords).bounds):
            yield from segment.batches(**keywords)

    def records(self, **keywords: Unpack[RecordKeywords]) -> Iterator[Record]:
        """The records of all segments in order; keywords as of `Segment.records`.

        Everything on disk comes but control records, also records below the log start offset.
        """
        return self._records(read_bounds(**keywords))

    def _records(self, wanted: ReadBounds) -> Iterator[Record]:
        wanted = self._with_transactions(wanted)
        for segment in self._segments_within(wanted.bounds):
            yield from segment.records_within(wanted)

    def arrow_batches(
        self, columns: Sequence[str] | None = None, **keywords: Unpack[RecordKeywords]
    ) -> Iterator[pa.RecordBatch]:
        """The records as Arrow record batches, none across two segments; as `Segment.arrow_batches`."""
        return self._arrow_batches(new_builder(columns), read_bounds(**keywords))

    def _arrow_batches(self, builder: ArrowBuilder, wanted: ReadBounds) -> Iterator[pa.RecordBatch]:
        wanted = self._with_transactions(wanted)
        for segment in self._segments_within(wanted.bounds):
            yield from segment.arrow_batches_within(builder, wanted)

    def to_arrow(self, columns: Sequence[str] | None = None, **keywords: Unpack[RecordKeywords]) -> pa.Table:
        """All records within the bounds as one Arrow table, without rows if there are none.

        The arguments are those of `arrow_batches`.
        """
        from klog.kernel.arrow import table_of

        return table_of(self.arrow_batches(columns, **keywords), columns)

    def _with_transactions(self, wanted: ReadBounds) -> ReadBounds:
        if not wanted.committed:
            return wanted
        return without_uncommitted(wanted, self.files(), None, _starts_within)

    def first_offset_at(self, timestamp_ms: int) -> tuple[int, int] | None:
        """(offset, timestamp) of the first record with at least that timestamp; None if there is none.

        As in Kafka's ListOffsets, records below the log start offset do not count, control records do.
        """
        start = self.log_start_offset
        for segment in self._segments_within(Bounds(first_offset=start)):
            found = segment.records(start_offset=start, since_ms=timestamp_ms, control_records=True)
            for record in found:
                return record.offset, record.timestamp_ms
        return None

    def _segments_within(self, bounds: Bounds) -> Iterator[Segment]:
        """The segments that may hold records within the offsets, by the base offsets in their names."""
        segments = self.segments
        for number, segment in enumerate(segments):
            base = segment.base_offset
            following = segments[number + 1].base_offset if number + 1 < len(segments) else None
            if bounds.first_offset is not None and following is not None and following <= bounds.first_offset:
                continue
            if bounds.last_offset is not None and base is not None and base > bounds.last_offset:
                return
            yield segment


class LogDirectory:
    """One of a broker's `log.dirs`: its partitions, checkpoints and identity."""

    def __init__(
        self, path: str | os.PathLike[str], *, max_decompressed_bytes: int = DEFAULT_LIMIT_BYTES
    ) -> None:
        self.path = os.fspath(path)
        self.max_decompressed_bytes = max_decompressed_bytes
        files_of(self.path)

    def __repr__(self) -> str:
        return f"<LogDirectory {self.path}>"

    @property
    def partitions(self) -> list[PartitionDirectory]:
        """All partition directories by topic and number, also deleted, future and stray ones (see
        `state`).
        """
        return [
            PartitionDirectory(path, max_decompressed_bytes=self.max_decompressed_bytes)
            for path in partition_directories(self.path)
        ]

    def partition(self, topic: str, partition: int) -> PartitionDirectory:
        """The current replica of one partition. Raises `StorageError` if there is none."""
        path = os.path.join(self.path, str(TopicPartition(topic, partition)))
        return PartitionDirectory(path, max_decompressed_bytes=self.max_decompressed_bytes)

    @property
    def recovery_points(self) -> dict[TopicPartition, int]:
        """The first offset that is not known to be flushed, by partition."""
        return self._checkpoint(FileKind.RECOVERY_POINT_CHECKPOINT)

    @property
    def log_start_offsets(self) -> dict[TopicPartition, int]:
        """Log start offset of the partitions whose first segment starts below it."""
        return self._checkpoint(FileKind.LOG_START_CHECKPOINT)

    @property
    def high_watermarks(self) -> dict[TopicPartition, int]:
        """High watermark by partition."""
        return self._checkpoint(FileKind.REPLICATION_CHECKPOINT)

    @property
    def cleaner_offsets(self) -> dict[TopicPartition, int]:
        """First dirty offset of each compacted partition."""
        return self._checkpoint(FileKind.CLEANER_CHECKPOINT)

    @property
    def meta_properties(self) -> MetaProperties | None:
        """The broker and the cluster that own the directory; None if there is no `meta.properties`."""
        path = os.path.join(self.path, FileKind.META_PROPERTIES)
        return read_parsed(path, meta_properties.parse) if os.path.exists(path) else None

    @property
    def clean_shutdown(self) -> CleanShutdown | None:
        """The marker of a clean stop; None if there is none (the broker runs, or was killed)."""
        path = os.path.join(self.path, FileKind.CLEAN_SHUTDOWN)
        return read_parsed(path, clean_shutdown.parse) if os.path.exists(path) else None

    def _checkpoint(self, kind: FileKind) -> dict[TopicPartition, int]:
        return read_offsets(os.path.join(self.path, kind))


def _starts_within(file: KafkaFile, bounds: Bounds) -> bool:
    return bounds.last_offset is None or (file.base_offset or 0) <= bounds.last_offset


def _ignore_damage(problem: KlogError) -> None:
    if isinstance(problem, StorageError):
        raise problem
