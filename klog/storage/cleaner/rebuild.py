"""Rebuilds batches with fewer records, as Kafka's cleaner writes them.

Rules: `MemoryRecords.buildRetainedRecordsInto` with `MemoryRecordsBuilder`, `LegacyRecord`; KIP-534. Offsets,
sequences, leader epoch, codec and the last offset of a magic 2 batch stay. Timestamps are relative to the
first remaining record, or to the delete horizon. The compression level is the codec's default.
"""

from __future__ import annotations

from array import array

from klog.formats import compression
from klog.formats.checksums import Bytes
from klog.formats.constants import (
    CODEC_MASK,
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    INT32_MAX,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
)
from klog.formats.errors import CorruptRecordError
from klog.kernel.batch_builder import BatchFields, assemble, empty_batch
from klog.kernel.columns import BatchTable, RecordTable
from klog.kernel.compaction import rewrite
from klog.kernel.message_builder import build_message, build_wrapper


def rebuild(
    payload: Bytes,
    table: BatchTable,
    row: int,
    records: RecordTable,
    rows: range,
    keep: array[int],
    new_horizon_ms: int | None,
) -> Bytes:
    """Batch `row` with those of its records (`rows`) that `keep` marks, at least one.

    `new_horizon_ms` gives a magic 2 batch a delete horizon. Raises `CorruptRecordError` if the records cannot
    be in one batch.
    """
    if table.magic[row] < 2:
        return _rebuild_legacy(payload, table, row, records, [at for at in rows if keep[at]])
    attributes = table.attributes[row]
    horizon = new_horizon_ms
    if horizon is None and attributes & DELETE_HORIZON_BIT:
        horizon = table.base_timestamp[row]
    base_offset = table.base_offset[row]
    last_offset_delta = _last_offset_delta(table, row)
    data, count, base_timestamp, largest = rewrite(
        payload, records, rows.start, rows.stop, keep, base_offset, horizon
    )
    max_timestamp = table.max_timestamp[row] if attributes & TIMESTAMP_TYPE_BIT else largest
    return assemble(
        data,
        _fields(table, row, attributes & CODEC_MASK, horizon),
        base_offset=base_offset,
        last_offset_delta=last_offset_delta,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        count=count,
    )


def emptied(table: BatchTable, row: int) -> bytearray:
    """Batch `row` (of magic 2) without its records; its header still has the producer's last sequence.

    Raises `CorruptRecordError` if its offsets are impossible.
    """
    _last_offset_delta(table, row)
    return empty_batch(
        _fields(table, row, compression.NONE, None),
        base_offset=table.base_offset[row],
        last_offset=table.last_offset[row],
        max_timestamp=table.max_timestamp[row],
    )


def _last_offset_delta(table: BatchTable, row: int) -> int:
    """Raises `CorruptRecordError` if the last offset is before the first, or beyond the largest there is.

    The checksum does not cover the first offset.
    """
    base_offset, last_offset = table.base_offset[row], table.last_offset[row]
    if not 0 <= last_offset - base_offset <= INT32_MAX:
        raise CorruptRecordError(
            f"batch has the offsets {base_offset} to {last_offset}",
            position_bytes=table.position[row],
            cure="its first offset is damaged: `klog recover` shows what Kafka would do",
        )
    return last_offset - base_offset


def _fields(table: BatchTable, row: int, codec: int, horizon: int | None) -> BatchFields:
    attributes = table.attributes[row]
    return BatchFields(
        codec=codec,
        log_append_time_ms=table.max_timestamp[row] if attributes & TIMESTAMP_TYPE_BIT else None,
        leader_epoch=table.leader_epoch[row],
        producer_id=table.producer_id[row],
        producer_epoch=table.producer_epoch[row],
        base_sequence=table.base_sequence[row],
        is_transactional=bool(attributes & TRANSACTIONAL_BIT),
        is_control=bool(attributes & CONTROL_BIT),
        delete_horizon_ms=horizon,
    )


# Magic 0 and 1


def _rebuild_legacy(
    payload: Bytes, table: BatchTable, row: int, records: RecordTable, rows: list[int]
) -> Bytes:
    """A compressed message set, or a single message of an older format."""
    magic, attributes = table.magic[row], table.attributes[row]
    time_type = attributes & TIMESTAMP_TYPE_BIT if magic else 0
    wrapper_timestamp = table.max_timestamp[row]
    base_offset = records.offset[rows[0]] if magic else 0
    view = memoryview(payload)
    parts: list[bytes] = []
    largest, previous = NO_TIMESTAMP, -1
    for at in rows:
        offset = records.offset[at]
        timestamp = wrapper_timestamp if time_type else records.timestamp[at]
        if offset <= previous or timestamp < NO_TIMESTAMP:
            raise CorruptRecordError(f"message {offset} follows {previous} with timestamp {timestamp}")
        previous = offset
        largest = max(largest, timestamp)
        parts.append(
            build_message(
                offset - base_offset,
                magic,
                time_type,
                timestamp,
                records.key(at, view),
                records.value(at, view),
            )
        )
    max_timestamp = wrapper_timestamp if time_type else largest
    codec = attributes & CODEC_MASK
    return build_wrapper(b"".join(parts), magic, codec, time_type, previous, max_timestamp)
