"""Reads a partition directory that no broker has open as the log that the cleaner needs.

Rules: a log after a clean stop, as Kafka's `LogLoader` opens it. It ends with its last batch, its newest
producer snapshot names the active producers, and everything up to the first open transaction is stable.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from klog.config.topic import TopicConfig
from klog.formats.errors import StorageError
from klog.formats.names import FileKind, TopicPartition
from klog.formats.packed import TIME_INDEX_ENTRY
from klog.kernel.columns import BatchTable
from klog.storage.cleaner.source import position_of
from klog.storage.cleaner.view import LastRecord, LastRecords, LogView, SegmentView
from klog.storage.files.chunks import chunks
from klog.storage.files.files import open_for_reading, read_whole
from klog.storage.files.partition_files import PartitionFiles, list_partition
from klog.storage.indexes.index_file import INDEX_ENTRIES
from klog.storage.reading.producer_history import DEFAULT_PRODUCER_EXPIRATION_MS
from klog.storage.reading.producer_state import ProducerState
from klog.storage.repair.producer_snapshots import Snapshots

_NS_PER_MS = 1_000_000
_FIRST_BATCH_BYTES = 4096
_TIMESTAMP_BYTES = 8


@dataclass(frozen=True, slots=True)
class ClosedLog:
    """The log, and the last records of its producers."""

    view: LogView
    last_records: LastRecords


def open_closed_log(
    directory: str,
    partition: TopicPartition,
    config: TopicConfig,
    *,
    log_start_offset: int,
    now_ms: int,
    high_watermark: int | None = None,
    producer_expiration_ms: int = DEFAULT_PRODUCER_EXPIRATION_MS,
    in_use: bool = False,
) -> ClosedLog | None:
    """Read a partition directory; None if it has no segment. Only headers of the last segments are read.

    Nothing at or above `high_watermark` is stable, because other replicas may not have it (None: everything
    is). If a broker has the log `in_use`, its files may be in any state of a running broker's.

    Raises `StorageError` if the directory cannot be read, or an interrupted change left files that recovery
    has to finish first.
    """
    files = list_partition(directory)
    unfinished = [name for name in files.transient if name.kind is not FileKind.METADATA_SNAPSHOT]
    if unfinished and not in_use:
        raise StorageError(
            f"{unfinished[0]} is left from something that was interrupted",
            file=directory,
            cure="run `klog recover` first",
        )
    if not files.segments:
        return None
    segments = tuple(_segment(files, base, in_use=in_use) for base in files.segments)
    start = max(log_start_offset, segments[0].base_offset)
    end = _end_offset(files)
    producers = _producers(files, start, end, now_ms, producer_expiration_ms)
    last_records = {
        pid: LastRecord(entry.last_offset, entry.epoch) for pid, entry in producers.producers.items()
    }
    committed = end if high_watermark is None else max(start, min(high_watermark, end))
    stable = min([committed, *(first for first in producers.open_txns if first >= start)])
    return ClosedLog(LogView(partition, directory, config, segments, start, end, stable), last_records)


def _segment(files: PartitionFiles, base_offset: int, *, in_use: bool) -> SegmentView:
    path = files.file(FileKind.LOG, base_offset)
    modified_ms = os.stat(path).st_mtime_ns // _NS_PER_MS
    time_index = _index(files, FileKind.TIME_INDEX, base_offset, in_use=in_use)
    largest = _last_timestamp(time_index)
    return SegmentView(
        base_offset,
        os.path.getsize(path),
        modified_ms,
        largest if largest >= 0 else modified_ms,
        _first_timestamp(path),
        len(_index(files, FileKind.OFFSET_INDEX, base_offset, in_use=in_use)),
        len(time_index),
    )


def _index(files: PartitionFiles, kind: FileKind, base_offset: int, *, in_use: bool) -> bytes:
    if not files.has(kind, base_offset):
        if kind is FileKind.TIME_INDEX:  # a broker that opens a segment of Kafka 0.9 creates an empty one
            return b""
        raise StorageError(
            f"segment {base_offset} has no .{kind}",
            file=files.path,
            cure="run `klog rebuild-index` first",
        )
    data = read_whole(files.file(kind, base_offset))
    entry_bytes = INDEX_ENTRIES[kind].size
    if in_use:  # a broker cuts the zeros off when it closes the segment
        used_bytes = len(data.rstrip(b"\0"))
        return data[: -(-used_bytes // entry_bytes) * entry_bytes]
    # One entry of zeros may be valid: a record at the segment's start with the timestamp 0.
    if len(data) >= 2 * entry_bytes and not any(data[-2 * entry_bytes :]):
        raise StorageError(
            "the index is still allocated in full: the broker did not stop cleanly",
            file=files.file(kind, base_offset),
            cure="run `klog recover` first",
        )
    return data


def _last_timestamp(time_index: bytes) -> int:
    """The timestamp of the last entry. It is the largest of the segment, because a clean stop adds an entry
    for it.
    """
    if len(time_index) < TIME_INDEX_ENTRY.size:
        return -1
    timestamp, _ = TIME_INDEX_ENTRY.unpack_from(time_index, len(time_index) - TIME_INDEX_ENTRY.size)
    return int(timestamp)


def _first_timestamp(path: str) -> int:
    table = BatchTable()
    with open_for_reading(path) as file:
        for _ in chunks(file, table, chunk_bytes=_FIRST_BATCH_BYTES):
            if len(table):
                return table.max_timestamp[0]
    return -1


def _end_offset(files: PartitionFiles) -> int:
    """The offset after the last batch, searched from the last index entry on."""
    base = files.segments[-1]
    table = BatchTable()
    end = base
    start = position_of(files.file(FileKind.OFFSET_INDEX, base), base, (1 << 63) - 1)
    with open_for_reading(files.file(FileKind.LOG, base)) as file:
        for _ in chunks(file, table, start_bytes=start):
            end = table.last_offset[-1] + 1 if len(table) else end
        size_bytes = file.seek(0, os.SEEK_END)
    if table.origin + table.consumed_bytes < size_bytes:
        raise StorageError(
            "the last segment does not end with a whole batch",
            file=files.path,
            cure="run `klog recover` first",
        )
    return end


def _producers(
    files: PartitionFiles, start: int, end: int, now_ms: int, producer_expiration_ms: int
) -> ProducerState:
    snapshots = Snapshots(
        {at: files.file(FileKind.PRODUCER_SNAPSHOT, at) for at in files.snapshots},
        now_ms=now_ms,
        expiration_ms=producer_expiration_ms,
    )
    paths = {base: files.file(FileKind.LOG, base) for base in files.segments}
    return snapshots.state_at(end, log_start_offset=start, segments=paths)
