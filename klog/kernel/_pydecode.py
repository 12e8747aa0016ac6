"""Decodes the records of batches, in pure Python: part of `_pykernel`.

It accepts what Kafka's own reader accepts (`DefaultRecordBatch`, `DefaultRecord`,
`AbstractLegacyRecordBatch`, `LegacyRecord`): any negative length is null, a batch of no records may have any
content, inner messages may be of the other magic. Anything else ends the batch with a problem.
"""

from __future__ import annotations

from klog.formats.checksums import Bytes, confirm_crc32, crc32
from klog.formats.constants import (
    BATCH_HEADER_BYTES,
    CODEC_MASK,
    ENTRY_PREFIX_BYTES,
    MAGIC_POSITION,
    MESSAGE_CRC_FROM,
    MESSAGE_V0_HEADER_BYTES,
    MESSAGE_V1_HEADER_BYTES,
    MIN_ENTRY_BYTES,
    MIN_MESSAGE_SIZE,
    TIMESTAMP_TYPE_BIT,
)
from klog.formats.errors import CorruptRecordError, UsageError
from klog.formats.packed import ENTRY_PREFIX, INT32, MESSAGE_FIELDS
from klog.formats.wrapping import wrap_int64
from klog.kernel.columns import BatchTable, RecordTable


def decode(data: Bytes, table: BatchTable, first: int, last: int, records: RecordTable) -> int:
    """Append the records of the batches `first` to `last` (exclusive) to `records`.

    Spans point into `data`, the buffer that `table` was scanned from. Returns the row after the last batch
    that was decoded completely. That is `last`; or the row of the batch with `records.problem`; or the row of
    the first compressed batch with records, for which `decode_payload` must be called (no problem then).
    `records.problem` is that of the last call only.
    """
    _forget_problem(records)
    if not 0 <= first <= last <= len(table):
        raise UsageError(f"batches {first} to {last} of a table of {len(table)}")
    view = memoryview(data)
    for row in range(first, last):
        at, end = batch_bounds(view, table, row)
        if table.attributes[row] & CODEC_MASK and table.count[row] != 0:
            return row
        if table.magic[row] < 2:
            offset, timestamp = table.last_offset[row], table.max_timestamp[row]
            _append_message(view, at, end, table.magic[row], row, offset, timestamp, records)
        else:
            decode_v2(view, min(at + BATCH_HEADER_BYTES, end), end, table, row, records)
        if records.problem is not None:
            return row
    return last


def decode_payload(payload: Bytes, table: BatchTable, row: int, records: RecordTable) -> bool:
    """Append the records of compressed batch `row`; `payload` is its decompressed block.

    Spans point into `payload`. For magic 0 and 1 the payload is the inner message set, and the batch's
    `base_offset` becomes known. False if `records.problem` was set, which is that of the last call only.
    """
    _forget_problem(records)
    if not 0 <= row < len(table):
        raise UsageError(f"batch {row} of a table of {len(table)}")
    view = memoryview(payload)
    if table.magic[row] < 2:
        _decode_inner(view, table, row, records)
    else:
        decode_v2(view, 0, len(view), table, row, records)
    return records.problem is None


def payload_span(data: Bytes, table: BatchTable, row: int) -> tuple[int, int]:
    """Start and size of the (compressed) block of batch `row` in `data`; size -1 if there is none.

    In magic 2 it is everything after the header; in magic 0 and 1 it is the message's value.
    """
    if not 0 <= row < len(table):
        raise UsageError(f"batch {row} of a table of {len(table)}")
    view = memoryview(data)
    at, end = batch_bounds(view, table, row)
    if table.magic[row] >= 2:
        return min(at + BATCH_HEADER_BYTES, end), max(end - at - BATCH_HEADER_BYTES, 0)
    fields = _message_fields(view, at, end, table.magic[row])
    return (fields[2], fields[3]) if fields is not None else (at, -1)


def headers(payload: Bytes, start: int, count: int) -> list[tuple[bytes, bytes | None]]:
    """The headers of one decoded record, as (key, value or None) in their order.

    Raises CorruptRecordError if `start` and `count` are not those of a record in `payload`.
    """
    view = memoryview(payload)
    end = len(view)
    found: list[tuple[bytes, bytes | None]] = []
    at = start if start >= 0 else end
    for _ in range(count):
        key_size, at = varint(view, at, end, 32)
        if at < 0 or key_size < 0 or at + key_size > end:
            raise CorruptRecordError("headers do not fit the payload")
        key = bytes(view[at : at + key_size])
        value_size, at = varint(view, at + key_size, end, 32)
        if at < 0 or at + value_size > end:
            raise CorruptRecordError("headers do not fit the payload")
        found.append((key, bytes(view[at : at + value_size]) if value_size >= 0 else None))
        at += max(value_size, 0)
    return found


def batch_bounds(view: memoryview, table: BatchTable, row: int) -> tuple[int, int]:
    """Start and end of batch `row` in the buffer that `table` was scanned from."""
    at = table.position[row] - table.origin
    size = table.size[row]
    if at < 0 or size < MIN_ENTRY_BYTES or at + size > len(view):
        raise UsageError(f"batch {row} of the table does not lie in the buffer")
    return at, at + size


def append_row(table: BatchTable | RecordTable, *values: int) -> None:
    """Append a row with these values, in the order of the table's columns."""
    for name, value in zip(table.COLUMNS, values, strict=False):
        getattr(table, name).append(value)


def _forget_problem(records: RecordTable) -> None:
    records.problem = None
    records.problem_batch = -1


def _fail(records: RecordTable, row: int, problem: str) -> None:
    records.problem = problem
    records.problem_batch = row


# Magic 0 and 1


def _message_fields(view: memoryview, at: int, end: int, magic: int) -> tuple[int, int, int, int] | None:
    """Key start and size, value start and size of the message at `at`; None if they do not fit it."""
    cursor = at + (MESSAGE_V0_HEADER_BYTES if magic == 0 else MESSAGE_V1_HEADER_BYTES)
    if cursor + 4 > end:
        return None
    key_size = max(INT32.unpack_from(view, cursor)[0], -1)
    key_start = cursor + 4
    cursor = key_start + max(key_size, 0)
    if cursor + 4 > end:
        return None
    value_size = max(INT32.unpack_from(view, cursor)[0], -1)
    value_start = cursor + 4
    if value_start + max(value_size, 0) > end:
        return None
    return key_start, key_size, value_start, value_size


def _append_message(
    view: memoryview,
    at: int,
    end: int,
    magic: int,
    row: int,
    offset: int,
    timestamp: int,
    records: RecordTable,
) -> bool:
    fields = _message_fields(view, at, end, magic)
    if fields is None:
        _fail(records, row, "message has a key or value that does not fit it")
        return False
    crc, _, _ = MESSAGE_FIELDS.unpack_from(view, at)
    checked = view[at + MESSAGE_CRC_FROM : end]
    computed = crc32(checked)
    if computed != crc:
        confirm_crc32(checked, computed)
    append_row(records, row, offset, timestamp, *fields, end, 0, end - at, crc, int(computed == crc))
    return True


def _walk_inner(view: memoryview) -> tuple[int, int, str | None]:
    """The end of the whole inner messages, the offset field of the last one, and the problem that ended the
    search.

    An incomplete last message is ignored, as in Kafka's reader.
    """
    at = 0
    last_offset = -1
    while len(view) - at >= ENTRY_PREFIX_BYTES:
        offset, follows = ENTRY_PREFIX.unpack_from(view, at)
        if follows < MIN_MESSAGE_SIZE:
            return at, last_offset, f"inner message of {follows} bytes, the smallest has {MIN_MESSAGE_SIZE}"
        if len(view) - at < follows + ENTRY_PREFIX_BYTES:
            break
        last_offset = offset
        at += follows + ENTRY_PREFIX_BYTES
    return at, last_offset, None if at else "compressed message set holds no message"


def _decode_inner(view: memoryview, table: BatchTable, row: int, records: RecordTable) -> None:
    """The messages of a wrapper. Magic 0 holds absolute offsets, magic 1 offsets relative to its first."""
    wrapper_magic = table.magic[row]
    if wrapper_magic < 0:
        _fail(records, row, f"compressed message set of magic {wrapper_magic}")
        return
    stop, last_inner, problem = _walk_inner(view)
    if problem is not None and wrapper_magic == 1:
        # All offsets depend on the last inner offset. Without it no message has an offset.
        _fail(records, row, problem)
        return
    wrapper_offset = table.last_offset[row]
    shift = 0
    if wrapper_magic == 1 and wrapper_offset != 0:  # 0: a librdkafka that did not set the offset
        shift = wrapper_offset - last_inner
        if shift < 0:
            problem = f"wrapper offset {wrapper_offset} is below its last inner offset {last_inner}"
            _fail(records, row, problem)
            return
    first_record = len(records)
    _append_inner(view, stop, shift, table, row, records)
    if problem is not None and records.problem is None:
        _fail(records, row, problem)
    if len(records) > first_record:
        table.base_offset[row] = records.offset[first_record]


def _append_inner(
    view: memoryview, stop: int, shift: int, table: BatchTable, row: int, records: RecordTable
) -> None:
    log_append_time = table.magic[row] == 1 and table.attributes[row] & TIMESTAMP_TYPE_BIT
    at = 0
    while at < stop:
        offset, follows = ENTRY_PREFIX.unpack_from(view, at)
        end = at + follows + ENTRY_PREFIX_BYTES
        magic = view[at + MAGIC_POSITION]
        _, attributes, stored_timestamp = MESSAGE_FIELDS.unpack_from(view, at)
        if attributes & CODEC_MASK:
            _fail(records, row, "inner message is compressed itself")
            return
        timestamp = -1
        if magic == 1 and log_append_time:
            timestamp = table.max_timestamp[row]
        elif magic != 0:
            timestamp = stored_timestamp
        if not _append_message(view, at, end, magic, row, wrap_int64(offset + shift), timestamp, records):
            return
        at = end


# Magic 2


def varint(view: memoryview, at: int, end: int, bits: int) -> tuple[int, int]:
    """Zig-zag varint at `at`: (value, position after it); position -1 if it does not end.

    At most 5 bytes for 32 bits, 10 for 64; further bits are dropped, as in Kafka's readers.
    """
    value = shift = 0
    while at < end:
        byte = view[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            value &= (1 << bits) - 1
            return (value >> 1) ^ -(value & 1), at
        shift += 7
        if shift >= (35 if bits == 32 else 70):
            break
    return 0, -1


def _varint_size(length: int) -> int:
    """The size of a length of 0 or more as a zig-zag varint."""
    return max(1, ((length << 1).bit_length() + 6) // 7)


def decode_v2(view: memoryview, at: int, end: int, table: BatchTable, row: int, records: RecordTable) -> None:
    count = table.count[row]
    if count < 0:
        _fail(records, row, f"batch has a record count of {count}")
        return
    for number in range(count):
        length, at = varint(view, at, end, 32)
        if at < 0:
            _fail(records, row, f"batch ends after {number} of {count} records")
            return
        stop = at + length
        if length < 0 or stop > end:
            _fail(records, row, f"record {number} of {count} is {length} bytes long with {end - at} left")
            return
        if not _append_v2_record(view, at, stop, table, row, records):
            _fail(records, row, f"record {number} of {count} has fields that do not fit its length")
            return
        at = stop
    if at != end and count:
        _fail(records, row, f"{end - at} bytes remain after the {count} records that the batch declares")


def _append_v2_record(
    view: memoryview, body: int, stop: int, table: BatchTable, row: int, records: RecordTable
) -> bool:
    at = body + 1  # attributes, unused
    if at > stop:
        return False
    timestamp_delta, at = varint(view, at, stop, 64)
    if at < 0:
        return False
    offset_delta, at = varint(view, at, stop, 32)
    if at < 0:
        return False
    key_size, key_start = varint(view, at, stop, 32)
    at = key_start + max(key_size, 0)
    if key_start < 0 or at > stop:
        return False
    value_size, value_start = varint(view, at, stop, 32)
    at = value_start + max(value_size, 0)
    if value_start < 0 or at > stop:
        return False
    header_count, headers_start = varint(view, at, stop, 32)
    if headers_start < 0 or not headers_fit(view, headers_start, stop, header_count):
        return False
    timestamp = wrap_int64(table.base_timestamp[row] + timestamp_delta)
    if table.attributes[row] & TIMESTAMP_TYPE_BIT:
        timestamp = table.max_timestamp[row]
    append_row(
        records,
        row,
        wrap_int64(table.base_offset[row] + offset_delta),
        timestamp,
        key_start,
        max(key_size, -1),
        value_start,
        max(value_size, -1),
        headers_start,
        header_count,
        _varint_size(stop - body) + stop - body,
        -1,
        1,
    )
    return True


def headers_fit(view: memoryview, at: int, stop: int, count: int) -> bool:
    """Whether `count` headers fill exactly the bytes up to `stop`."""
    if count < 0 or count > stop - at:
        return False
    for _ in range(count):
        key_size, at = varint(view, at, stop, 32)
        if at < 0 or key_size < 0 or at + key_size > stop:
            return False
        value_size, at = varint(view, at + key_size, stop, 32)
        if at < 0:
            return False
        at += max(value_size, 0)
        if at > stop:
            return False
    return at == stop
