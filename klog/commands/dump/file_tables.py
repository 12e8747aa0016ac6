"""Prints files without records as tables: indexes, snapshots, checkpoints, identity files.

Each file is parsed by its definition in `klog.formats`. Every entry of an index is printed, valid or not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, Final

from klog.commands.dump.cells import NULL, Cell, human_time, zone
from klog.commands.dump.file_objects import read_content
from klog.commands.dump.plan import DumpFile
from klog.commands.dump.table_writer import Column, Row, TableWriter
from klog.formats import (
    checkpoints,
    clean_shutdown,
    meta_properties,
    partition_metadata,
)
from klog.formats.errors import FormatError
from klog.formats.names import FileKind
from klog.storage.indexes import offset_index_entries, time_index_entries

Content = tuple[list[Column], Iterable[Row]]


def show(file: DumpFile, writer: TableWriter, limit: int | None) -> int:
    """Write the table of one file; returns how many rows it has. Raises FormatError, StorageError."""
    reader = _READERS.get(file.kind)
    if reader is None:
        raise FormatError(f"a {file.kind} file cannot be shown as a table", file=file.path)
    columns, rows = reader(file, read_content(file))
    shown = writer.table(columns, islice(rows, limit))
    if not shown:
        writer.line("no entries", NULL)
    return shown


def _number(value: int) -> Cell:
    return Cell("" if value == -1 else str(value))


def _offset_index(file: DumpFile, data: bytes) -> Content:
    base = file.base_offset or 0
    rows = (
        [Cell(str(base + relative)), Cell(str(position))] for relative, position in offset_index_entries(data)
    )
    return [Column("offset", right=True), Column("position", right=True)], rows


def _time_index(file: DumpFile, data: bytes) -> Content:
    base = file.base_offset or 0
    rows = (
        [Cell(str(timestamp)), Cell(human_time(timestamp)), Cell(str(base + relative))]
        for timestamp, relative in time_index_entries(data)
    )
    columns = [Column("timestamp", right=True), Column(f"time ({zone()})"), Column("offset", right=True)]
    return columns, rows


def _txn_index(_: DumpFile, data: bytes) -> Content:
    from klog.formats import transaction_index

    names = ("producerId", "firstOffset", "lastOffset", "lastStableOffset")
    columns = [
        Column("producer", right=True),
        Column("first offset", right=True),
        Column("last offset", right=True),
        Column("last stable offset", right=True),
    ]
    return columns, ([Cell(str(entry[name])) for name in names] for entry in transaction_index.parse(data))


def _snapshot(_: DumpFile, data: bytes) -> Content:
    from klog.formats import producer_snapshot

    columns = [
        Column("producer"),
        Column("last sequence", right=True),
        Column("last offset", right=True),
        Column("batch starts", right=True),
        Column(f"time ({zone()})"),
        Column("coordinator epoch", right=True),
        Column("open transaction from", right=True),
    ]
    return columns, (_producer_row(entry) for entry in producer_snapshot.parse(data).producers)


def _producer_row(entry: Any) -> Row:  # noqa: ANN401 (Construct's container)
    first = entry.lastOffset - entry.offsetDelta if entry.lastOffset >= 0 else -1
    return [
        Cell(f"{entry.producerId}:{entry.producerEpoch}"),
        _number(entry.lastSequence),
        _number(entry.lastOffset),
        _number(first),
        Cell(human_time(entry.timestamp)),
        _number(entry.coordinatorEpoch),
        Cell("" if entry.currentTxnFirstOffset == -1 else str(entry.currentTxnFirstOffset), "magenta"),
    ]


def _offsets(_: DumpFile, data: bytes) -> Content:
    columns = [Column("topic"), Column("partition", right=True), Column("offset", right=True)]
    rows = (
        [Cell(entry.partition.topic), Cell(str(entry.partition.partition)), Cell(str(entry.offset))]
        for entry in sorted(checkpoints.parse_offsets(data).entries)
    )
    return columns, rows


def _epochs(_: DumpFile, data: bytes) -> Content:
    rows = (
        [Cell(str(entry.epoch)), Cell(str(entry.start_offset))]
        for entry in checkpoints.parse_epochs(data).entries
    )
    return [Column("leader epoch", right=True), Column("start offset", right=True)], rows


def _named(pairs: Iterable[tuple[str, object]]) -> Content:
    rows = ([Cell(name), Cell(str(value))] for name, value in pairs if value is not None)
    return [Column("property"), Column("value")], rows


def _meta_properties(_: DumpFile, data: bytes) -> Content:
    lines = meta_properties.parse(data).lines
    return _named((line.key, line.value) for line in lines if line.key is not None)


def _partition_metadata(_: DumpFile, data: bytes) -> Content:
    metadata = partition_metadata.parse(data)
    return _named([("version", metadata.version), ("topic id", metadata.topic_id)])


def _clean_shutdown(_: DumpFile, data: bytes) -> Content:
    marker = clean_shutdown.parse(data)
    return _named([("version", marker.version), ("broker epoch", marker.broker_epoch)])


def _text(_: DumpFile, data: bytes) -> Content:
    lines: Iterator[str] = iter(data.decode("utf-8", "replace").splitlines())
    return [Column("content")], ([Cell(line)] for line in lines)


_READERS: Final[dict[FileKind, Callable[[DumpFile, bytes], Content]]] = {
    FileKind.OFFSET_INDEX: _offset_index,
    FileKind.TIME_INDEX: _time_index,
    FileKind.TXN_INDEX: _txn_index,
    FileKind.PRODUCER_SNAPSHOT: _snapshot,
    FileKind.LEADER_EPOCH_CHECKPOINT: _epochs,
    FileKind.RECOVERY_POINT_CHECKPOINT: _offsets,
    FileKind.LOG_START_CHECKPOINT: _offsets,
    FileKind.REPLICATION_CHECKPOINT: _offsets,
    FileKind.CLEANER_CHECKPOINT: _offsets,
    FileKind.META_PROPERTIES: _meta_properties,
    FileKind.PARTITION_METADATA: _partition_metadata,
    FileKind.CLEAN_SHUTDOWN: _clean_shutdown,
    FileKind.QUORUM_STATE: _text,
}
