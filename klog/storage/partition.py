"""Partition directories and log directories as values of the library: what is in them, in Kafka's order.

Which files belong together is Kafka's grammar of names (`klog.formats.names`); what a replica's files say
is read when it is asked for and at each time anew, for the directory may be a running broker's. Nothing
here is changed; recovery and rebuilding have modules of their own.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

from klog.formats import clean_shutdown, meta_properties, partition_metadata
from klog.formats.checkpoints import EpochEntry
from klog.formats.clean_shutdown import CleanShutdown
from klog.formats.compression import DEFAULT_LIMIT_BYTES
from klog.formats.errors import KlogError, StorageError
from klog.formats.meta_properties import MetaProperties
from klog.formats.names import FileKind, FileState, TopicPartition, parse_directory
from klog.storage.checkpoint_files import read_leader_epochs, read_offsets, read_parsed
from klog.storage.files import open_for_reading
from klog.storage.reader import OnProblem
from klog.storage.segment import Segment
from klog.storage.select import Bounds
from klog.storage.values import Batch, Record
from klog.storage.walk import KafkaFile, files_of, partition_directories, partition_of

if TYPE_CHECKING:
    import pyarrow as pa

_Parsed = TypeVar("_Parsed")
_PAST_EVERY_OFFSET = 2**63 - 1


class PartitionDirectory:
    """The files of one replica. `topic`, `partition` and `state` come from the directory's name (None: it
    says nothing).

    Reading methods take the arguments of `Segment`'s and go through all segments in order.
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
        """The live segments by base offset (files that are being swapped or deleted are none)."""
        return [
            Segment(file.path, max_decompressed_bytes=self.max_decompressed_bytes)
            for file in self.files()
            if file.kind is FileKind.LOG and file.state is FileState.NORMAL
        ]

    @property
    def snapshot_offsets(self) -> list[int]:
        """Offsets up to which (exclusive) there is a producer snapshot, ascending."""
        return [
            file.base_offset
            for file in self.files()
            if file.kind is FileKind.PRODUCER_SNAPSHOT
            and file.state is FileState.NORMAL
            and file.base_offset is not None
        ]

    @property
    def leader_epochs(self) -> tuple[EpochEntry, ...]:
        """(epoch, start offset) of each leader, ascending; empty where there is no such file."""
        return read_leader_epochs(self.path)

    @property
    def topic_id(self) -> str | None:
        """The topic's id in Kafka's text form (22 characters); None where there is no
        `partition.metadata`."""
        path = os.path.join(self.path, FileKind.PARTITION_METADATA)
        if not os.path.exists(path):
            return None
        return read_parsed(path, partition_metadata.parse).topic_id

    @property
    def log_start_offset(self) -> int:
        """First offset that consumers may read: the log directory's checkpoint, or the first segment's
        base."""
        bases = [segment.base_offset for segment in self.segments if segment.base_offset is not None]
        first = min(bases, default=0)
        path = os.path.join(os.path.dirname(os.path.abspath(self.path)), FileKind.LOG_START_CHECKPOINT)
        if self.topic is None or self.partition is None or not os.path.exists(path):
            return first
        starts = read_offsets(path)
        return max(first, starts.get(TopicPartition(self.topic, self.partition), first))

    @property
    def log_end_offset(self) -> int:
        """The offset that the next record would get, by the last batch that is whole."""
        segments = self.segments
        if not segments:
            return self.log_start_offset
        last = segments[-1]
        end = last.base_offset or 0
        bounds = Bounds(first_offset=_PAST_EVERY_OFFSET)
        with open_for_reading(last.path) as file:
            # What follows the last whole batch is no part of the log yet, so it is no problem here.
            reader = last.reader(file, bounds=bounds, verify=False, on_problem=_pass_over_tail)
            for _ in reader.chunks():
                if len(reader.batches):
                    end = reader.batches.last_offset[-1] + 1
        return end

    def batches(
        self,
        *,
        start_offset: int | None = None,
        end_offset: int | None = None,
        since_ms: int | None = None,
        on_problem: OnProblem | None = None,
        strict: bool = False,
    ) -> Iterator[Batch]:
        """The batches of all segments in order; arguments as of `Segment.batches`."""
        for segment in self._between(start_offset, end_offset):
            yield from segment.batches(
                start_offset=start_offset,
                end_offset=end_offset,
                since_ms=since_ms,
                on_problem=on_problem,
                strict=strict,
            )

    def records(
        self,
        *,
        start_offset: int | None = None,
        end_offset: int | None = None,
        since_ms: int | None = None,
        until_ms: int | None = None,
        verify: bool = True,
        on_problem: OnProblem | None = None,
        strict: bool = False,
    ) -> Iterator[Record]:
        """The records of all segments in order; arguments as of `Segment.records`.

        What is on disk comes: also control records, and records below the log start offset.
        """
        for segment in self._between(start_offset, end_offset):
            yield from segment.records(
                start_offset=start_offset,
                end_offset=end_offset,
                since_ms=since_ms,
                until_ms=until_ms,
                verify=verify,
                on_problem=on_problem,
                strict=strict,
            )

    def arrow_batches(
        self,
        columns: Sequence[str] | None = None,
        *,
        start_offset: int | None = None,
        end_offset: int | None = None,
        since_ms: int | None = None,
        until_ms: int | None = None,
        verify: bool = True,
        on_problem: OnProblem | None = None,
        strict: bool = False,
    ) -> Iterator[pa.RecordBatch]:
        """The records as Arrow record batches, none across two segments; as `Segment.arrow_batches`."""
        for segment in self._between(start_offset, end_offset):
            yield from segment.arrow_batches(
                columns,
                start_offset=start_offset,
                end_offset=end_offset,
                since_ms=since_ms,
                until_ms=until_ms,
                verify=verify,
                on_problem=on_problem,
                strict=strict,
            )

    def first_offset_at(self, timestamp_ms: int) -> tuple[int, int] | None:
        """(offset, timestamp) of the first record that is `timestamp_ms` old or younger, None where there
        is none.

        Kafka's answer to ListOffsets: below the log start offset nothing counts, control records do.
        """
        start = self.log_start_offset
        for segment in self._between(start, None):
            for record in segment.records(start_offset=start, since_ms=timestamp_ms):
                return record.offset, record.timestamp_ms
        return None

    def _between(self, start_offset: int | None, end_offset: int | None) -> Iterator[Segment]:
        """The segments that may hold such offsets, by their names and their neighbours' names."""
        segments = self.segments
        for number, segment in enumerate(segments):
            base = segment.base_offset
            following = segments[number + 1].base_offset if number + 1 < len(segments) else None
            if start_offset is not None and following is not None and following <= start_offset:
                continue
            if end_offset is not None and base is not None and base >= end_offset:
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
        """All partition directories by topic and number; deleted, future and stray ones too (see their
        `state`)."""
        return [
            PartitionDirectory(path, max_decompressed_bytes=self.max_decompressed_bytes)
            for path in partition_directories(self.path)
        ]

    def partition(self, topic: str, partition: int) -> PartitionDirectory:
        """The current replica of one partition. Raises `StorageError` where there is none."""
        path = os.path.join(self.path, str(TopicPartition(topic, partition)))
        return PartitionDirectory(path, max_decompressed_bytes=self.max_decompressed_bytes)

    @property
    def recovery_points(self) -> dict[TopicPartition, int]:
        """First offset not known to be flushed, per partition."""
        return self._checkpoint(FileKind.RECOVERY_POINT_CHECKPOINT)

    @property
    def log_start_offsets(self) -> dict[TopicPartition, int]:
        """Log start offset, of the partitions whose first segment starts below it."""
        return self._checkpoint(FileKind.LOG_START_CHECKPOINT)

    @property
    def high_watermarks(self) -> dict[TopicPartition, int]:
        """High watermark per partition."""
        return self._checkpoint(FileKind.REPLICATION_CHECKPOINT)

    @property
    def cleaner_offsets(self) -> dict[TopicPartition, int]:
        """First dirty offset of each compacted partition."""
        return self._checkpoint(FileKind.CLEANER_CHECKPOINT)

    @property
    def meta_properties(self) -> MetaProperties | None:
        """Whose log directory it is; None where there is no `meta.properties`."""
        path = os.path.join(self.path, FileKind.META_PROPERTIES)
        return read_parsed(path, meta_properties.parse) if os.path.exists(path) else None

    @property
    def clean_shutdown(self) -> CleanShutdown | None:
        """The marker of a clean stop; None where there is none (the broker runs, or died)."""
        path = os.path.join(self.path, FileKind.CLEAN_SHUTDOWN)
        return read_parsed(path, clean_shutdown.parse) if os.path.exists(path) else None

    def _checkpoint(self, kind: FileKind) -> dict[TopicPartition, int]:
        path = os.path.join(self.path, kind)
        return read_offsets(path)


def _pass_over_tail(problem: KlogError) -> None:
    if isinstance(problem, StorageError):
        raise problem


def open_path(
    path: str | os.PathLike[str], *, max_decompressed_bytes: int = DEFAULT_LIMIT_BYTES
) -> Segment | PartitionDirectory | LogDirectory:
    """What is at `path`: a segment, a partition directory or a log directory.

    `max_decompressed_bytes` bounds what one compressed batch may grow to. Raises `StorageError` where there
    is nothing that can be read.
    """
    name = os.fspath(path)
    if not os.path.isdir(name):
        return Segment(name, max_decompressed_bytes=max_decompressed_bytes)
    # A log directory may be called kafka-1, like a partition: what is in it decides.
    children = partition_directories(name)
    kinds = {file.kind for file in files_of(name)}
    if (
        not children
        and FileKind.META_PROPERTIES not in kinds
        and (partition_of(name) or FileKind.LOG in kinds)
    ):
        return PartitionDirectory(name, max_decompressed_bytes=max_decompressed_bytes)
    if children or kinds:
        return LogDirectory(name, max_decompressed_bytes=max_decompressed_bytes)
    raise StorageError(
        "holds neither segments nor partition directories",
        file=name,
        cure="name a segment, a partition directory (topic-0) or one of the broker's log.dirs",
    )
