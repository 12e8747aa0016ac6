"""Partition directories made for tests of the planner: segments of built batches, with indexes and what
stands beside them, as a broker lays them out."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from klog.formats.checkpoints import (
    EpochCheckpoint,
    EpochEntry,
    OffsetCheckpoint,
    OffsetEntry,
    build_epochs,
    build_offsets,
)
from klog.formats.names import FileKind, TopicPartition, segment_file
from klog.kernel.batch_builder import BatchFields, RecordData, build_batch
from klog.storage.reading.producer_state import ProducerState, pack_aborted, pack_snapshot

ABORT, COMMIT = 0, 1


def batch(first: int, count: int = 1, *, at: int = 0, size: int = 10, **fields: object) -> bytes:
    """A batch of records from an offset on, values of `size` bytes; the first record has timestamp `at`."""
    records = [
        RecordData(first + n, at + n, b"k%d" % (first + n), bytes([97 + (first + n) % 26]) * size)
        for n in range(count)
    ]
    return bytes(build_batch(records, BatchFields(**fields)))  # type: ignore[arg-type]


def marker(offset: int, producer_id: int, kind: int, *, at: int = 0) -> bytes:
    """The marker that ends a transaction."""
    record = RecordData(offset, at, struct.pack(">hh", 0, kind), struct.pack(">hi", 0, 0))
    fields = BatchFields(
        producer_id=producer_id, producer_epoch=0, is_transactional=True, is_control=True, leader_epoch=0
    )
    return bytes(build_batch([record], fields))


def transactional(first: int, count: int, producer_id: int, **fields: object) -> bytes:
    """Data of an open transaction."""
    return batch(
        first,
        count,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=True,
        **fields,
    )


def span(batch_bytes: bytes) -> tuple[int, int, int]:
    """First offset, last offset and largest timestamp of a batch of magic 2."""
    first, delta = struct.unpack_from(">q", batch_bytes)[0], struct.unpack_from(">i", batch_bytes, 23)[0]
    return first, first + delta, struct.unpack_from(">q", batch_bytes, 35)[0]


def write_segment(
    directory: Path,
    batches: Sequence[bytes],
    base: int | None = None,
    *,
    index: bool = True,
    suffix: str = "",
) -> Path:
    """A segment with an index entry for each batch but the first, and a time index as a broker leaves it."""
    directory.mkdir(parents=True, exist_ok=True)
    base = span(batches[0])[0] if base is None else base
    entries, times = bytearray(), bytearray()
    position, largest = 0, -1
    for one in batches:
        _, last, timestamp = span(one)
        if position:
            entries += struct.pack(">ii", last - base, position)
        if timestamp > largest:
            largest = timestamp
            times += struct.pack(">qi", timestamp, last - base)
        position += len(one)
    log = directory / f"{segment_file(FileKind.LOG, base)}{suffix}"
    log.write_bytes(b"".join(batches))
    if index:
        (directory / f"{segment_file(FileKind.OFFSET_INDEX, base)}{suffix}").write_bytes(entries)
        (directory / f"{segment_file(FileKind.TIME_INDEX, base)}{suffix}").write_bytes(times)
    return log


def write_epochs(directory: Path, *entries: tuple[int, int]) -> None:
    """The leader epochs: (epoch, start offset)."""
    checkpoint = EpochCheckpoint(tuple(EpochEntry(*entry) for entry in entries))
    (directory / FileKind.LEADER_EPOCH_CHECKPOINT).write_bytes(build_epochs(checkpoint))


def write_checkpoint(log_directory: Path, kind: FileKind, **offsets: int) -> None:
    """A checkpoint of a log directory: partitions named as `topic_0`."""
    entries = []
    for name, offset in offsets.items():
        topic, _, partition = name.rpartition("_")
        entries.append(OffsetEntry(TopicPartition(topic, int(partition)), offset))
    (log_directory / kind).write_bytes(build_offsets(OffsetCheckpoint(tuple(entries))))


def write_topic_id(directory: Path, topic_id: str) -> None:
    """`partition.metadata` with a topic id of 22 characters."""
    (directory / FileKind.PARTITION_METADATA).write_text(f"version: 0\ntopic_id: {topic_id}")


@dataclass(slots=True)
class Log:
    """A partition directory that is written batch by batch: `roll` ends a segment."""

    directory: Path
    segments: list[list[bytes]] = field(default_factory=lambda: [[]])

    def append(self, *batches: bytes) -> Log:
        self.segments[-1].extend(batches)
        return self

    def roll(self) -> Log:
        self.segments.append([])
        return self

    def write(self, *, index: bool = True) -> Path:
        for batches in self.segments:
            if batches:
                write_segment(self.directory, batches, index=index)
        return self.directory

    def write_transaction_files(self, *, indexes: bool = True, snapshots: bool = True) -> None:
        """The transaction indexes and the producer snapshots at the end of each segment."""
        from klog.kernel import kernel
        from klog.kernel.columns import BatchTable

        state = ProducerState()
        for batches in filter(None, self.segments):
            data, table = b"".join(batches), BatchTable()
            kernel.scan(data, 0, True, table)
            state.aborted.clear()
            state.take(data, table)
            base, end = table.base_offset[0], table.last_offset[-1] + 1
            if indexes and state.aborted:
                path = self.directory / segment_file(FileKind.TXN_INDEX, base)
                path.write_bytes(pack_aborted(state.aborted))
            if snapshots:
                path = self.directory / segment_file(FileKind.PRODUCER_SNAPSHOT, end)
                path.write_bytes(pack_snapshot(state.producers))


def replica(
    directory: Path, batches: Iterable[bytes], *epochs: tuple[int, int], segment_batches: int = 4
) -> Path:
    """A replica's directory: batches in segments of so many, and its leader epochs."""
    log = Log(directory)
    for number, one in enumerate(batches):
        if number and number % segment_batches == 0:
            log.roll()
        log.append(one)
    log.write()
    if epochs:
        write_epochs(directory, *epochs)
    return directory
