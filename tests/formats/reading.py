"""Reads a log with a record kernel into plain values, for comparison with the twin or with Kafka."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from klog.formats import compression
from klog.formats.constants import CODEC_MASK
from klog.formats.errors import KlogError
from klog.kernel.columns import BatchTable, IndexState, RecordTable

LIMIT_BYTES = 64 << 20


@dataclass
class ReadBatch:
    """One batch: its row of the table, its records, and its problem."""

    row: dict[str, int]
    records: list[dict[str, Any]] = field(default_factory=list)
    problem: str | None = None


@dataclass
class ReadLog:
    """What a kernel read from a buffer."""

    batches: list[ReadBatch]
    consumed_bytes: int
    need_bytes: int
    stop: int
    stop_size: int


def rows_of(table: BatchTable | RecordTable) -> list[dict[str, int]]:
    """The rows of a table as dictionaries."""
    columns = {name: getattr(table, name).tolist() for name in table.COLUMNS}
    return [{name: values[row] for name, values in columns.items()} for row in range(len(table))]


def read(kernel: ModuleType, data: bytes, *, origin: int = 0, final: bool = True) -> ReadLog:
    """Scan, verify and decode all of `data`, and decompress compressed batches."""
    table = BatchTable()
    kernel.scan(data, origin, final, table)
    kernel.verify(data, table)
    batches = [read_batch(kernel, data, table, row) for row in range(len(table))]
    return ReadLog(batches, table.consumed_bytes, table.need_bytes, table.stop, table.stop_size)


def read_batch(kernel: ModuleType, data: bytes, table: BatchTable, row: int) -> ReadBatch:
    """Decode one batch of a scanned table."""
    records = RecordTable()
    payload: bytes = data
    if kernel.decode(data, table, row, row + 1, records) == row and records.problem is None:
        start, size = kernel.payload_span(data, table, row)
        if size < 0:
            return ReadBatch(rows_of(table)[row], problem="no block")
        codec, magic = table.attributes[row] & CODEC_MASK, table.magic[row]
        try:
            block = data[start : start + size]
            payload = compression.decompress(codec, block, magic=magic, limit_bytes=LIMIT_BYTES)
        except KlogError as error:
            return ReadBatch(rows_of(table)[row], problem=str(error))
        assert kernel.decode_payload(payload, table, row, records) is (records.problem is None)
    return ReadBatch(rows_of(table)[row], read_records(kernel, payload, records), records.problem)


def read_records(kernel: ModuleType, payload: bytes, records: RecordTable) -> list[dict[str, Any]]:
    """The rows of a record table with the bytes of their spans."""
    found: list[dict[str, Any]] = rows_of(records)
    for row in found:
        for name in ("key", "value"):
            start, size = row[f"{name}_start"], row[f"{name}_size"]
            row[name] = payload[start : start + size] if size >= 0 else None
            assert size == -1 or 0 <= start <= start + size <= len(payload)
        row["headers"] = kernel.headers(payload, row["headers_start"], row["header_count"])
    return found


def index_of(kernel: ModuleType, data: bytes, base_offset: int, interval_bytes: int) -> dict[str, Any]:
    """The state of an index rebuild after `data`."""
    table, state = BatchTable(), IndexState(base_offset, interval_bytes)
    kernel.scan(data, 0, True, table)
    kernel.verify(data, table)
    went_on = kernel.index(table, state)
    return vars(state) | {"went_on": went_on}
