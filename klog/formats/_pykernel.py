"""The record kernel in pure Python: the same functions as `_kernel`, for installs without a compiler.

Meaning and rules are stated here, once; `_kernel.pyx` is the fast version of the same and the tests hold
the two equal. Layouts are those of the definitions in `record_batch` and `message_set` (KIP-98, KIP-32),
and the tests hold both kernels equal to them. What Kafka's own reader (`FileLogInputStream`,
`DefaultRecordBatch`, `AbstractLegacyRecordBatch`) accepts is accepted here.
"""

from __future__ import annotations

import struct
from typing import Final

from klog.formats.checksums import Bytes, crc32, crc32c
from klog.formats.columns import (
    CODEC_MASK,
    COUNT_UNKNOWN,
    OFFSET_UNKNOWN,
    STOP_BAD_SIZE,
    TIMESTAMP_TYPE_BIT,
    BatchTable,
    IndexState,
    RecordTable,
)

IMPLEMENTATION: Final = "python"

_PREFIX = struct.Struct(">qi")  # offset, size of what follows
_PREFIX_BYTES: Final = 12
_UP_TO_MAGIC_BYTES: Final = 17
_SMALLEST_SIZE: Final = 14  # of a magic 0 message after the prefix
_V2 = struct.Struct(">qiiBIhiqqqhii")  # the 61-byte header of magic 2
_V2_BYTES: Final = 61
_V2_CRC_FROM: Final = 21
_LEGACY_CRC_FROM: Final = 16
_INT32_MAX: Final = 2**31 - 1


def scan(data: Bytes, origin: int, final: bool, table: BatchTable) -> None:
    """Fill `table` with the headers of the whole batches in `data`, which starts at file position `origin`.

    Nothing is checked but what is needed to find the next batch, as Kafka's reader does. `final` says that
    the file ends where `data` ends. `table.stop` tells why the scan ended, `table.consumed_bytes` how far it
    got, `table.need_bytes` how large the batch is that the buffer cuts (0 when its size field is cut too).
    """
    table.clear(origin)
    view = memoryview(data)
    end = len(view)
    at = 0
    while end - at >= _UP_TO_MAGIC_BYTES:
        first_offset, follows = _PREFIX.unpack_from(view, at)
        if follows < _SMALLEST_SIZE:
            table.stop = STOP_BAD_SIZE
            table.stop_size = follows
            break
        size = follows + _PREFIX_BYTES
        magic = view[at + 16]
        magic = magic - 256 if magic > 127 else magic
        # A magic 2 header is read whole even where a damaged size field claims that it is shorter.
        need = size if magic < 2 else max(size, _V2_BYTES)
        if end - at < size or (end - at < need and not final):
            table.need_bytes = need
            break
        if magic < 2:
            _append_legacy(table, view, at, origin + at, first_offset, size, magic)
        else:
            _append_v2(table, view, at, origin + at, size, magic)
        at += size
    table.consumed_bytes = at


def _append_v2(table: BatchTable, view: memoryview, at: int, position: int, size: int, magic: int) -> None:
    header = bytes(view[at : at + _V2_BYTES]).ljust(_V2_BYTES, b"\0")
    (
        base_offset,
        _,
        leader_epoch,
        _,
        crc,
        attributes,
        last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        count,
    ) = _V2.unpack(header)
    table.position.append(position)
    table.size.append(size)
    table.base_offset.append(base_offset)
    table.last_offset.append(_wrap_int64(base_offset + last_offset_delta))
    table.magic.append(magic)
    table.crc.append(crc)
    table.attributes.append(attributes)
    table.count.append(count)
    table.base_timestamp.append(base_timestamp)
    table.max_timestamp.append(max_timestamp)
    table.producer_id.append(producer_id)
    table.producer_epoch.append(producer_epoch)
    table.base_sequence.append(base_sequence)
    table.leader_epoch.append(leader_epoch)


def _append_legacy(
    table: BatchTable, view: memoryview, at: int, position: int, offset: int, size: int, magic: int
) -> None:
    crc = int.from_bytes(view[at + 12 : at + 16], "big")
    attributes = view[at + 17]
    timestamp = -1
    if magic == 1 and size >= _PREFIX_BYTES + _SMALLEST_SIZE:
        timestamp = int.from_bytes(view[at + 18 : at + 26], "big", signed=True)
    compressed = attributes & CODEC_MASK
    table.position.append(position)
    table.size.append(size)
    table.base_offset.append(OFFSET_UNKNOWN if compressed else offset)
    table.last_offset.append(offset)
    table.magic.append(magic)
    table.crc.append(crc)
    table.attributes.append(attributes)
    table.count.append(COUNT_UNKNOWN)
    table.base_timestamp.append(timestamp)
    table.max_timestamp.append(timestamp)
    table.producer_id.append(-1)
    table.producer_epoch.append(-1)
    table.base_sequence.append(-1)
    table.leader_epoch.append(-1)


def verify(data: Bytes, table: BatchTable) -> int:
    """Fill `valid` and `computed_crc` of all rows of `table` (scanned from `data`); returns how many fail.

    A magic 2 batch shorter than its header is bad whatever its checksum says.
    """
    view = memoryview(data)
    bad = 0
    for row in range(len(table)):
        at = table.position[row] - table.origin
        end = at + table.size[row]
        if table.magic[row] < 2:
            computed = crc32(view[at + _LEGACY_CRC_FROM : end])
            good = computed == table.crc[row]
        else:
            computed = crc32c(view[at + _V2_CRC_FROM : end]) if end - at > _V2_CRC_FROM else 0
            good = end - at >= _V2_BYTES and computed == table.crc[row]
        table.computed_crc.append(computed)
        table.valid.append(1 if good else 0)
        bad += not good
    return bad


def index(table: BatchTable, state: IndexState) -> bool:
    """Take the batches of a verified `table` into an index rebuild; False where the log must end.

    Stops at the first batch that is not valid, or whose last offset does not fit the segment's index
    (`state.stopped_at` and `why` say where and why).
    """
    for row in range(len(table)):
        last = table.last_offset[row]
        relative = last - state.base_offset
        if not table.valid[row]:
            state.stopped_at, state.why = table.position[row], "checksum"
            return False
        if not 0 <= relative <= _INT32_MAX:
            state.stopped_at, state.why = table.position[row], "offset"
            return False
        if table.max_timestamp[row] > state.max_timestamp:
            state.max_timestamp = table.max_timestamp[row]
            state.max_timestamp_offset = last
        if state.bytes_since_entry > state.interval_bytes:
            state.offsets.append(relative)
            state.positions.append(table.position[row])
            if state.max_timestamp > state.last_index_timestamp:
                state.timestamps.append(state.max_timestamp)
                state.timestamp_offsets.append(state.max_timestamp_offset - state.base_offset)
                state.last_index_timestamp = state.max_timestamp
            state.bytes_since_entry = 0
        state.bytes_since_entry += table.size[row]
        state.last_offset = last
    return True


def decode(data: Bytes, table: BatchTable, first: int, last: int, records: RecordTable) -> int:
    """Append the records of the uncompressed batches `first` to `last` (exclusive) to `records`.

    Spans point into `data`, the buffer that `table` was scanned from. Returns the row after the last batch
    that was decoded whole: `last`, or the row of the batch in which `records.problem` was found.
    """
    view = memoryview(data)
    for row in range(first, last):
        at = table.position[row] - table.origin
        end = at + table.size[row]
        if table.magic[row] < 2:
            _decode_message(view, at, table, row, records)
        else:
            _decode_v2(view, min(at + _V2_BYTES, end), end, table, row, records)
        if records.problem is not None:
            return row
    return last


def decode_payload(payload: Bytes, table: BatchTable, row: int, records: RecordTable) -> bool:
    """Append the records of compressed batch `row`; `payload` is what its block decompressed to.

    Spans point into `payload`. For magic 0 and 1 the payload is the inner message set, and the batch's
    `base_offset` becomes known. False where `records.problem` was found.
    """
    view = memoryview(payload)
    if table.magic[row] < 2:
        _decode_inner(view, table, row, records)
    else:
        _decode_v2(view, 0, len(view), table, row, records)
    return records.problem is None


def payload_span(data: Bytes, table: BatchTable, row: int) -> tuple[int, int]:
    """Start and size of the (compressed) block of batch `row` in `data`; size -1 where there is none.

    For magic 2 all after the header; for magic 0 and 1 the message's value.
    """
    at = table.position[row] - table.origin
    size = table.size[row]
    if table.magic[row] >= 2:
        return at + _V2_BYTES, max(size - _V2_BYTES, 0)
    view = memoryview(data)
    fields = _message_fields(view, at, at + size, table.magic[row])
    return (fields[2], fields[3]) if fields is not None else (at, -1)


def _fail(records: RecordTable, row: int, problem: str) -> None:
    records.problem = problem
    records.problem_batch = row


def _message_fields(view: memoryview, at: int, end: int, magic: int) -> tuple[int, int, int, int] | None:
    """Key start and size, value start and size of the message at `at`; None where they do not fit it."""
    cursor = at + (18 if magic == 0 else 26)
    if cursor + 4 > end:
        return None
    key_size = int.from_bytes(view[cursor : cursor + 4], "big", signed=True)
    key_start = cursor + 4
    cursor = key_start + max(key_size, 0)
    if key_size < -1 or cursor + 4 > end:
        return None
    value_size = int.from_bytes(view[cursor : cursor + 4], "big", signed=True)
    value_start = cursor + 4
    if value_size < -1 or value_start + max(value_size, 0) > end:
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
    crc = int.from_bytes(view[at + 12 : at + 16], "big")
    key_start, key_size, value_start, value_size = fields
    records.batch.append(row)
    records.offset.append(offset)
    records.timestamp.append(timestamp)
    records.key_start.append(key_start)
    records.key_size.append(key_size)
    records.value_start.append(value_start)
    records.value_size.append(value_size)
    records.headers_start.append(end)
    records.header_count.append(0)
    records.record_size.append(end - at)
    records.crc.append(crc)
    records.valid.append(1 if crc32(view[at + _LEGACY_CRC_FROM : end]) == crc else 0)
    return True


def _decode_message(view: memoryview, at: int, table: BatchTable, row: int, records: RecordTable) -> None:
    end = at + table.size[row]
    _append_message(
        view, at, end, table.magic[row], row, table.last_offset[row], table.max_timestamp[row], records
    )


def _decode_inner(view: memoryview, table: BatchTable, row: int, records: RecordTable) -> None:
    """The messages of a wrapper. Magic 0 holds absolute offsets, magic 1 offsets relative to its first."""
    wrapper_magic = table.magic[row]
    first_record = len(records)
    log_append_time = wrapper_magic == 1 and table.attributes[row] & TIMESTAMP_TYPE_BIT
    at = 0
    end = len(view)
    offset = -1
    while end - at >= _PREFIX_BYTES:
        offset, follows = _PREFIX.unpack_from(view, at)
        size = follows + _PREFIX_BYTES
        if follows < _SMALLEST_SIZE:
            _fail(records, row, f"inner message of {follows} bytes, the smallest has {_SMALLEST_SIZE}")
            break
        if end - at < size:
            break  # a partial last message is dropped, as Kafka's reader does
        if view[at + 16] != wrapper_magic:
            _fail(records, row, f"inner message of magic {view[at + 16]} in one of magic {wrapper_magic}")
            break
        if view[at + 17] & CODEC_MASK:
            _fail(records, row, "inner message is compressed itself")
            break
        timestamp = -1
        if wrapper_magic == 1:
            timestamp = int.from_bytes(view[at + 18 : at + 26], "big", signed=True)
            timestamp = table.max_timestamp[row] if log_append_time else timestamp
        if not _append_message(view, at, at + size, wrapper_magic, row, offset, timestamp, records):
            break
        at += size
    if len(records) == first_record:
        if records.problem is None:
            _fail(records, row, "compressed message set holds no message")
        return
    if wrapper_magic == 1:
        base = table.last_offset[row] - offset
        for record in range(first_record, len(records)):
            records.offset[record] += base
    table.base_offset[row] = records.offset[first_record]


def _varint(view: memoryview, at: int, end: int, bits: int) -> tuple[int, int]:
    """Zig-zag varint of at most `bits` bits at `at`: (value, position after it); position -1: bad."""
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


def _wrap_int64(value: int) -> int:
    return (value + 2**63) % 2**64 - 2**63


def _decode_v2(
    view: memoryview, at: int, end: int, table: BatchTable, row: int, records: RecordTable
) -> None:
    count = table.count[row]
    if count < 0:
        _fail(records, row, f"batch has a record count of {count}")
        return
    for number in range(count):
        start = at
        length, at = _varint(view, at, end, 32)
        if at < 0:
            _fail(records, row, f"batch ends after {number} of {count} records")
            return
        stop = at + length
        if length < 0 or stop > end:
            _fail(records, row, f"record {number} of {count} is {length} bytes long with {end - at} left")
            return
        if not _append_v2_record(view, start, at, stop, table, row, records):
            _fail(records, row, f"record {number} of {count} has fields that do not fit its length")
            return
        at = stop
    if at != end:
        _fail(records, row, f"{end - at} bytes remain after the {count} records that the batch declares")


def _append_v2_record(
    view: memoryview, start: int, at: int, stop: int, table: BatchTable, row: int, records: RecordTable
) -> bool:
    at += 1  # attributes, unused
    if at > stop:
        return False
    timestamp_delta, at = _varint(view, at, stop, 64)
    if at < 0:
        return False
    offset_delta, at = _varint(view, at, stop, 32)
    if at < 0:
        return False
    key_size, key_start = _varint(view, at, stop, 32)
    at = key_start + max(key_size, 0)
    if key_start < 0 or key_size < -1 or at > stop:
        return False
    value_size, value_start = _varint(view, at, stop, 32)
    at = value_start + max(value_size, 0)
    if value_start < 0 or value_size < -1 or at > stop:
        return False
    header_count, headers_start = _varint(view, at, stop, 32)
    if headers_start < 0 or not _headers_fit(view, headers_start, stop, header_count):
        return False
    timestamp = _wrap_int64(table.base_timestamp[row] + timestamp_delta)
    if table.attributes[row] & TIMESTAMP_TYPE_BIT:
        timestamp = table.max_timestamp[row]
    records.batch.append(row)
    records.offset.append(_wrap_int64(table.base_offset[row] + offset_delta))
    records.timestamp.append(timestamp)
    records.key_start.append(key_start)
    records.key_size.append(max(key_size, -1))
    records.value_start.append(value_start)
    records.value_size.append(max(value_size, -1))
    records.headers_start.append(headers_start)
    records.header_count.append(header_count)
    records.record_size.append(stop - start)
    records.crc.append(-1)
    records.valid.append(1)
    return True


def _headers_fit(view: memoryview, at: int, stop: int, count: int) -> bool:
    """Whether `count` headers fill exactly the bytes up to `stop`."""
    if count < 0 or count > stop - at:
        return False
    for _ in range(count):
        key_size, at = _varint(view, at, stop, 32)
        if at < 0 or key_size < 0 or at + key_size > stop:
            return False
        value_size, at = _varint(view, at + key_size, stop, 32)
        if at < 0 or value_size < -1:
            return False
        at += max(value_size, 0)
        if at > stop:
            return False
    return at == stop


def headers(payload: Bytes, start: int, count: int) -> list[tuple[bytes, bytes | None]]:
    """The headers of one decoded record: (key, value or None) in their order."""
    view = memoryview(payload)
    end = len(view)
    found: list[tuple[bytes, bytes | None]] = []
    at = start
    for _ in range(count):
        key_size, at = _varint(view, at, end, 32)
        key = bytes(view[at : at + key_size])
        value_size, at = _varint(view, at + key_size, end, 32)
        found.append((key, bytes(view[at : at + value_size]) if value_size >= 0 else None))
        at += max(value_size, 0)
    return found
