"""Prints files without records as tables: indexes, snapshots, checkpoints, identity files.

The rows are made of the entries of `file_entries`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Final, NamedTuple

from klog.commands.offline.dump.file_entries import Entry, entries_of
from klog.commands.offline.dump.table_writer import TableWriter
from klog.commands.shared.cells import NULL, human_time, zone
from klog.commands.shared.records.plan import DumpFile
from klog.commands.shared.table_layout import Cell, Column, Row
from klog.formats.names import OFFSET_CHECKPOINTS, FileKind
from klog.storage.files.files import read_small

Content = tuple[list[Column], Iterable[Row]]


def show(file: DumpFile, writer: TableWriter, limit: int | None) -> int:
    """Write the table of one file; returns how many rows it has. Raises FormatError, StorageError."""
    columns, rows = _content(file)
    shown = writer.table(columns, islice(rows, limit))
    if not shown:
        writer.line("no entries", NULL)
    return shown


def _content(file: DumpFile) -> Content:
    if file.kind is FileKind.QUORUM_STATE:
        lines = read_small(file.path).decode("utf-8", "replace").splitlines()
        return [Column("content")], ([Cell(line)] for line in lines)
    entries = entries_of(file)
    fields = _FIELDS.get(file.kind)
    if fields is None:
        return [Column("property"), Column("value")], _properties(entries)
    if file.kind in OFFSET_CHECKPOINTS:
        entries = sorted(entries, key=lambda entry: (entry["topic"], entry["partition"]))
    columns = [
        Column(field.title.format(zone=zone()), right=field.right, rank=field.rank) for field in fields
    ]
    return columns, ([field.cell(entry) for field in fields] for entry in entries)


def _properties(entries: Iterable[Entry]) -> Iterable[Row]:
    for entry in entries:
        for name, value in entry.get("properties", entry).items():
            if value is not None:
                yield [Cell(_TITLES.get(name, name)), Cell(str(value))]


_TITLES: Final = {"topicId": "topic id", "brokerEpoch": "broker epoch"}
"""Names of properties in the table that differ from those in JSON."""


class _Field(NamedTuple):
    title: str
    cell: Callable[[Entry], Cell]
    right: bool = True
    rank: int = 0


def _number(title: str, name: str, *, rank: int = 0) -> _Field:
    return _Field(title, lambda entry: _known(entry[name]), rank=rank)


def _known(value: int | None) -> Cell:
    return Cell("" if value in (None, -1) else str(value))


def _always(title: str, name: str, *, right: bool = True) -> _Field:
    return _Field(title, lambda entry: Cell(str(entry[name])), right)


def _time(name: str) -> _Field:
    return _Field("time ({zone})", lambda entry: Cell(human_time(entry[name])), right=False, rank=1)


def _producer(entry: Entry) -> Cell:
    return Cell(f"{entry['producerId']}:{entry['producerEpoch']}")


def _batch_start(entry: Entry) -> Cell:
    last = entry["lastOffset"]
    return _known(None if last is None else last - entry["offsetDelta"])


def _transaction(entry: Entry) -> Cell:
    first = entry["currentTxnFirstOffset"]
    return Cell("" if first is None else str(first), "magenta")


_OFFSETS: Final = (
    _always("topic", "topic", right=False),
    _always("partition", "partition"),
    _always("offset", "offset"),
)
_FIELDS: Final[dict[FileKind, Sequence[_Field]]] = {
    FileKind.OFFSET_INDEX: (_always("offset", "offset"), _always("position", "position")),
    FileKind.TIME_INDEX: (_always("timestamp", "timestamp"), _time("timestamp"), _always("offset", "offset")),
    FileKind.TXN_INDEX: (
        _always("producer", "producerId"),
        _always("first offset", "firstOffset"),
        _always("last offset", "lastOffset"),
        _always("last stable offset", "lastStableOffset"),
    ),
    FileKind.PRODUCER_SNAPSHOT: (
        _Field("producer", _producer, right=False),
        _number("last sequence", "lastSequence", rank=2),
        _number("last offset", "lastOffset"),
        _Field("batch starts", _batch_start, rank=3),
        _time("lastTimestamp"),
        _number("coordinator epoch", "coordinatorEpoch", rank=4),
        _Field("open transaction from", _transaction),
    ),
    FileKind.LEADER_EPOCH_CHECKPOINT: (
        _always("leader epoch", "epoch"),
        _always("start offset", "startOffset"),
    ),
    **dict.fromkeys(OFFSET_CHECKPOINTS, _OFFSETS),
}
