"""Iterates over one batch as Kafka's own reader does, for batches that the kernel cannot print.

The kernel decodes valid batches. Kafka's tool ends with an exception at a damaged batch, after it has printed
what it read before: single records of an uncompressed batch of magic 2, nothing of a compressed one, and so
on. Rules: the observed behaviour of `DefaultRecordBatch`, `AbstractLegacyRecordBatch` and `LegacyRecord` of
Kafka 3.9.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from klog.formats.checksums import Bytes, confirm_crc32, crc32
from klog.formats.compression import decompress
from klog.formats.constants import (
    CODEC_MASK,
    MAGIC_POSITION,
    MESSAGE_CRC_FROM,
    MESSAGE_CRC_POSITION,
    MESSAGE_V0_HEADER_BYTES,
    MESSAGE_V1_HEADER_BYTES,
    MIN_MESSAGE_SIZE,
    TIMESTAMP_TYPE_BIT,
)
from klog.formats.errors import CorruptRecordError, KlogError
from klog.formats.packed import ENTRY_PREFIX, INT32, MESSAGE_FIELDS, UINT32
from klog.kernel import kernel
from klog.kernel.columns import BatchTable, RecordTable

ZSTD: Final = 4


@dataclass(slots=True)
class Iterated:
    """The result of an iteration: rows `first` to `last` of `records` over `payload`, then `problem`."""

    payload: Bytes
    records: RecordTable
    first: int
    last: int
    problem: KlogError | None = None


def damaged(what: str) -> CorruptRecordError:
    """The error for an exception that ends Kafka's tool."""
    return CorruptRecordError(
        what, cure="Kafka's own tool stops here, too; the other formats of this command go on"
    )


def iterate(
    data: Bytes, table: BatchTable, row: int, limit_bytes: int, *, read_sizes: bool = True
) -> Iterated:
    """The records of batch `row`, scanned from `data`, as far as Kafka's tool reads them.

    Without `read_sizes` the sizes of keys and values of legacy messages are neither read nor checked.
    """
    records = RecordTable()
    if table.magic[row] < 2:
        if table.attributes[row] & CODEC_MASK:
            return _legacy_set(data, table, row, limit_bytes, read_sizes)
        return _legacy_message(data, table, row, read_sizes)
    if table.size[row] < 61:
        return Iterated(data, records, 0, 0, damaged("batch is shorter than its header"))
    if table.count[row] == 0:
        return Iterated(data, records, 0, 0)
    if table.attributes[row] & CODEC_MASK:
        return _compressed(data, table, row, limit_bytes)
    kernel.decode(data, table, row, row + 1, records)
    if records.problem is None:
        return Iterated(data, records, 0, len(records))
    # Kafka checks the total size after it has read the last record, but before it returns it.
    seen = len(records) - 1 if len(records) == table.count[row] else len(records)
    return Iterated(data, records, 0, seen, damaged(records.problem))


def _compressed(data: Bytes, table: BatchTable, row: int, limit_bytes: int) -> Iterated:
    records = RecordTable()
    try:
        payload = _decompressed(data, table, row, limit_bytes)
    except KlogError as error:
        return Iterated(data, records, 0, 0, error)
    if kernel.decode_payload(payload, table, row, records):
        return Iterated(payload, records, 0, len(records))
    return Iterated(payload, records, 0, 0, damaged(records.problem or "batch does not decode"))


def _decompressed(data: Bytes, table: BatchTable, row: int, limit_bytes: int) -> Bytes:
    start, size = kernel.payload_span(data, table, row)
    if size < 0:
        raise damaged("compressed message has no value")
    codec = table.attributes[row] & CODEC_MASK
    block = memoryview(data)[start : start + size]
    return decompress(codec, block, magic=table.magic[row], limit_bytes=limit_bytes)


def _legacy_message(data: Bytes, table: BatchTable, row: int, read_sizes: bool) -> Iterated:
    at = table.position[row] - table.origin
    records = RecordTable()
    timestamp = table.max_timestamp[row]
    message = memoryview(data)[at : at + table.size[row]]
    problem = _append_message(records, row, message, at, table.last_offset[row], timestamp, read_sizes)
    return Iterated(data, records, 0, len(records), problem)


def _append_message(
    records: RecordTable,
    row: int,
    message: memoryview,
    at: int,
    offset: int,
    timestamp: int,
    read_sizes: bool,
) -> KlogError | None:
    """Append a message of magic 0 or 1 that starts at `at` of the payload; returns an error in its sizes.

    The tool prints a value's size before it reads the value. So a value that does not fit is no error here;
    the caller sees that `value_size` is larger than the payload.
    """
    key_at = MESSAGE_V0_HEADER_BYTES if message[MAGIC_POSITION] == 0 else MESSAGE_V1_HEADER_BYTES
    key_size = value_size = -1
    value_at = key_at
    if read_sizes:
        if key_at + 4 > len(message):
            return damaged("message ends before its key")
        (key_size,) = INT32.unpack_from(message, key_at)
        value_at = key_at + 4 + max(key_size, 0)
        if value_at + 4 > len(message):
            return damaged(f"message has a key of {key_size} bytes that does not fit it")
        (value_size,) = INT32.unpack_from(message, value_at)
    (crc,) = UINT32.unpack_from(message, MESSAGE_CRC_POSITION)
    records.batch.append(row)
    records.offset.append(offset)
    records.timestamp.append(timestamp)
    records.key_start.append(at + key_at + 4)
    records.key_size.append(key_size)
    records.value_start.append(at + value_at + 4)
    records.value_size.append(value_size)
    records.headers_start.append(at + len(message))
    records.header_count.append(0)
    records.record_size.append(len(message))
    records.crc.append(crc)
    computed = crc32(message[MESSAGE_CRC_FROM:])
    if computed != crc:
        confirm_crc32(message[MESSAGE_CRC_FROM:], computed)
    records.valid.append(1 if computed == crc else 0)
    return None


def _legacy_set(data: Bytes, table: BatchTable, row: int, limit_bytes: int, read_sizes: bool) -> Iterated:
    """The messages in a compressed one. Kafka separates all of them before it returns the first."""
    records = RecordTable()
    magic = table.magic[row]
    if magic < 0 or table.attributes[row] & CODEC_MASK == ZSTD:
        return Iterated(data, records, 0, 0, damaged(f"magic {magic} is not possible with this compression"))
    try:
        payload = memoryview(_decompressed(data, table, row, limit_bytes))
        spans, base = _cut(payload, magic, table.last_offset[row])
    except KlogError as error:
        return Iterated(data, records, 0, 0, error)
    log_append_time = magic == 1 and table.attributes[row] & TIMESTAMP_TYPE_BIT
    for at, size, offset in spans:
        message = payload[at : at + size]
        _, attributes, timestamp = MESSAGE_FIELDS.unpack_from(message)
        if attributes & CODEC_MASK:
            problem: KlogError | None = damaged("inner message is compressed itself")
        else:
            if message[MAGIC_POSITION] == 0:
                timestamp = -1
            elif log_append_time and message[MAGIC_POSITION] == 1:
                timestamp = table.max_timestamp[row]
            shown = offset + base if magic == 1 else offset
            problem = _append_message(records, row, message, at, shown, timestamp, read_sizes)
        if problem is not None:
            return Iterated(payload, records, 0, len(records), problem)
    return Iterated(payload, records, 0, len(records))


def _cut(payload: memoryview, magic: int, last_offset: int) -> tuple[list[tuple[int, int, int]], int]:
    """Start, size and stored offset of each inner message, and what to add to make the offsets absolute."""
    spans: list[tuple[int, int, int]] = []
    at = 0
    while len(payload) - at >= ENTRY_PREFIX.size:
        offset, follows = ENTRY_PREFIX.unpack_from(payload, at)
        if follows < MIN_MESSAGE_SIZE:
            raise damaged(f"inner message of {follows} bytes, the smallest has {MIN_MESSAGE_SIZE}")
        size = follows + ENTRY_PREFIX.size
        if len(payload) - at < size:
            break
        spans.append((at, size, offset))
        at += size
    if not spans:
        raise damaged("compressed message set holds no message")
    last_inner = spans[-1][2]
    if magic == 0 or last_offset == 0:
        return spans, 0
    if last_offset < last_inner:
        raise damaged(f"wrapper has offset {last_offset}, its last inner message {last_inner}")
    return spans, last_offset - last_inner
