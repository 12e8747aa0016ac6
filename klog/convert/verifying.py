"""Compares the new segments of a task with their originals, record by record, before they are swapped in.

Compared are the records (offset, timestamp, key, value, headers), and of their batches the timestamp type,
leader epoch, producer, sequence numbers, the bits of transactions and control batches, and delete horizons.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from klog.convert.converting import BUFFER_BYTES, located, read
from klog.convert.tasks import ConvertTask, TaskResult
from klog.formats.checksums import Bytes
from klog.formats.constants import (
    CODEC_MASK,
    DELETE_HORIZON_BIT,
    MAGIC_V2,
    NO_PRODUCER_ID,
    TIMESTAMP_TYPE_BIT,
)
from klog.formats.errors import KlogError
from klog.formats.names import FileKind
from klog.kernel.columns import BatchTable, RecordTable
from klog.kernel.conversion import same_records
from klog.storage.cleaner.decoding import decode_one
from klog.storage.cleaner.source import verified_batches
from klog.storage.cleaner.task import CLEANED

_CURE: Final = "the originals are unchanged; please report this, with the segment"


class DifferentRecordsError(KlogError):
    """A converted record is not the same as its original."""


@dataclass(slots=True)
class _Batch:
    """A decoded batch, and how many of its records were compared."""

    path: str
    payload: Bytes
    table: BatchTable
    row: int
    records: RecordTable
    done: int = 0

    @property
    def left(self) -> int:
        return len(self.records) - self.done

    @property
    def end_offset(self) -> int:
        """The last offset; of older messages that of the last record."""
        if self.table.magic[self.row] < MAGIC_V2 and len(self.records):
            return self.records.offset[-1]
        return self.table.last_offset[self.row]


def verify(task: ConvertTask, result: TaskResult, on_bytes: Callable[[int], None] = lambda _: None) -> int:
    """The number of records compared. Raises `DifferentRecordsError` at the first difference, and other
    `KlogError`s if files cannot be read.
    """
    originals = _originals(task, on_bytes)
    compared = 0
    original: _Batch | None = None
    for new in _converted(task, result):
        while True:
            if original is None:
                original = next(originals, None)
                if original is None:
                    raise _different(new, "has no original")
            _require_same_batch(original, new)
            count = min(original.left, new.left)
            same = same_records(
                original.payload, original.records, original.done, new.payload, new.records, new.done, count
            )
            if same < count:
                raise _different(new, f"record {new.records.offset[new.done + same]} is not the same")
            compared += count
            original.done += count
            new.done += count
            ended = original if not original.left else None
            original = None if ended is not None else original
            if not new.left:
                if ended is None or ended.end_offset != new.end_offset:
                    raise _different(new, "does not end where an original ends")
                break
    if original is not None or next(originals, None) is not None:
        raise DifferentRecordsError("records are missing at the end", file=task.target, cure=_CURE)
    return compared


def _different(new: _Batch, what: str) -> DifferentRecordsError:
    return DifferentRecordsError(what, file=new.path, position_bytes=new.table.position[new.row], cure=_CURE)


def _originals(task: ConvertTask, on_bytes: Callable[[int], None]) -> Iterator[_Batch]:
    for source in task.sources:
        path = task.source_path(FileKind.LOG, source)
        for data, table in read(task, source):
            yield from _decoded(path, data, table)
            on_bytes(table.consumed_bytes)


def _converted(task: ConvertTask, result: TaskResult) -> Iterator[_Batch]:
    for segment in result.segments:
        path = task.path(FileKind.LOG, segment.base_offset) + CLEANED
        table = BatchTable()
        for data in verified_batches(path, segment.size_bytes, table, buffer_bytes=BUFFER_BYTES):
            yield from _decoded(path, data, table)


def _decoded(path: str, data: memoryview, table: BatchTable) -> Iterator[_Batch]:
    for row in range(len(table)):
        records = RecordTable()
        with located(path):
            payload = decode_one(data, table, row, records)
        yield _Batch(path, payload, table, row, records)


def _require_same_batch(original: _Batch, new: _Batch) -> None:
    a, b, i, j = original.table, new.table, original.row, new.row
    if a.magic[i] < MAGIC_V2:
        time_type = a.attributes[i] & TIMESTAMP_TYPE_BIT if a.magic[i] else 0
        same = (
            b.attributes[j] & ~CODEC_MASK == time_type
            and b.producer_id[j] == NO_PRODUCER_ID
            and b.leader_epoch[j] >= 0
        )
    else:
        same = (
            (a.attributes[i] ^ b.attributes[j]) & ~CODEC_MASK == 0
            and a.leader_epoch[i] == b.leader_epoch[j]
            and a.producer_id[i] == b.producer_id[j]
            and a.producer_epoch[i] == b.producer_epoch[j]
            and _first_sequence(a, i, b.base_offset[j]) == b.base_sequence[j]
        )
        if a.attributes[i] & DELETE_HORIZON_BIT or not len(original.records):
            same = same and (a.base_offset[i], a.base_timestamp[i]) == (b.base_offset[j], b.base_timestamp[j])
    if not same or b.magic[j] != MAGIC_V2:
        raise _different(new, f"the batch differs from the original of offset {a.last_offset[i]}")


def _first_sequence(table: BatchTable, row: int, base_offset: int) -> int:
    """The sequence that a batch with this base offset has, if batch `row` is part of it."""
    sequence = table.base_sequence[row]
    return sequence if sequence < 0 else sequence - (table.base_offset[row] - base_offset)
