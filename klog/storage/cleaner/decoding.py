"""Decodes the records of batches completely, or raises an error."""

from __future__ import annotations

from klog.formats import compression
from klog.formats.checksums import Bytes
from klog.formats.constants import CODEC_MASK, MAGIC_V2
from klog.formats.errors import CorruptRecordError
from klog.kernel import kernel
from klog.kernel.columns import BatchTable, RecordTable
from klog.kernel.markers import control_key, first_key


def decode_plain(data: memoryview, table: BatchTable, first: int, last: int, records: RecordTable) -> None:
    """Decode uncompressed batches into `records`, which is emptied first. Raises `CorruptRecordError`."""
    records.clear()
    kernel.decode(data, table, first, last, records)
    _require_valid(table, records, min(table.magic[first:last], default=MAGIC_V2))


def decode_one(data: memoryview, table: BatchTable, row: int, records: RecordTable) -> Bytes:
    """Decode one batch, compressed or not, into `records`, which is emptied first. Returns the payload of the
    spans.

    Raises `CorruptRecordError`.
    """
    records.clear()
    payload: Bytes = data
    if kernel.decode(data, table, row, row + 1, records) == row and records.problem is None:
        start, size = kernel.payload_span(data, table, row)
        block = data[start : start + max(size, 0)]
        payload = compression.decompress(table.attributes[row] & CODEC_MASK, block, magic=table.magic[row])
        kernel.decode_payload(payload, table, row, records)
    _require_valid(table, records, table.magic[row])
    return payload


def _require_valid(table: BatchTable, records: RecordTable, oldest_magic: int) -> None:
    if records.problem is not None:
        position = table.position[records.problem_batch]
        raise CorruptRecordError(records.problem, position_bytes=position)
    # Only messages of magic 0 and 1 have their own checksums.
    if len(records) and oldest_magic < MAGIC_V2 and not min(records.valid):
        position = table.position[records.batch[records.valid.index(0)]]
        raise CorruptRecordError("a message fails its checksum", position_bytes=position)


def control_type(payload: Bytes, records: RecordTable) -> int | None:
    """Type of a control batch's marker, None if the batch is empty. Raises `CorruptRecordError`."""
    if not len(records):
        return None
    key = control_key(first_key(payload, records))
    if key is None or key[0] < 0:
        raise CorruptRecordError(f"control record {records.offset[0]} has no type in its key")
    return key[1]
