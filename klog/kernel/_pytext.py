"""Kafka's dump lines in pure Python: the twin of `_text`, for installs without a compiler.

The lines equal those of Kafka 3.9's `kafka-dump-log`, byte for byte; the rules are stated here. A function
writes its text into the bytearray `out` from `at` on, which grows if necessary and may be reused, and returns
the end of the text. Keys and values are shown as Java's `new String(bytes, UTF_8)`. The caller must not pass
rows with which Kafka's tool fails (unknown codecs, records that do not fit).
"""

from __future__ import annotations

import re
from typing import Final

from klog.formats.checksums import Bytes
from klog.formats.constants import (
    CODEC_MASK,
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
)
from klog.formats.errors import CorruptRecordError, FormatError
from klog.formats.packed import CONTROL_KEY, END_TXN_MARKER, INT32
from klog.formats.wrapping import sequence_after, wrap_int32, wrap_int64
from klog.kernel._pydecode import headers
from klog.kernel.columns import BatchTable, RecordTable

IMPLEMENTATION: Final = "python"

# How keys, values and header keys are shown; the compiled twin has the same numbers.
AUTO: Final = 0  # a string if it is valid UTF-8, else {"base64": "..."}
UTF8: Final = 1  # a string; what is not UTF-8 becomes U+FFFD
BASE64: Final = 2
HEX: Final = 3
NONE: Final = 4  # {"size": n} only

CODEC_NAMES: Final = ("none", "gzip", "snappy", "lz4", "zstd", "unknown", "unknown", "unknown")
_BOOLEANS: Final = ("false", "true")

# Java replaces a whole encoded surrogate, Python each of its bytes. They do not differ otherwise.
_SURROGATE: Final = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")
_REPLACEMENT: Final = "\ufffd".encode()


def java_text(data: Bytes) -> str:
    """What Java's `new String(data, UTF_8)` holds."""
    return _SURROGATE.sub(_REPLACEMENT, bytes(data)).decode("utf-8", "replace")


def timestamp_type(table: BatchTable, row: int) -> str:
    """Kafka's name of the timestamp type of a batch."""
    if table.magic[row] == 0:
        return "NoTimestampType"
    return "LogAppendTime" if table.attributes[row] & TIMESTAMP_TYPE_BIT else "CreateTime"


def last_sequence(table: BatchTable, row: int) -> int:
    """Sequence number of a batch's last record; -1 if the batch has none."""
    if table.base_sequence[row] == -1:
        return -1
    delta = wrap_int32(table.last_offset[row] - table.base_offset[row])
    return sequence_after(table.base_sequence[row], delta)


def record_sequence(table: BatchTable, row: int, offset: int) -> int:
    """Sequence number of the record at `offset` in batch `row`; -1 if it has none."""
    if table.magic[row] < 2 or table.base_sequence[row] < 0:
        return -1
    return sequence_after(table.base_sequence[row], wrap_int32(offset - table.base_offset[row]))


def is_control(table: BatchTable, row: int) -> bool:
    """Whether batch `row` is a control batch."""
    return table.magic[row] >= 2 and bool(table.attributes[row] & CONTROL_BIT)


def check_rows(rows: int, first: int, last: int) -> None:
    """Raise ValueError unless the table has the rows."""
    if not 0 <= first <= last <= rows:
        raise ValueError(f"rows {first} to {last} of a table of {rows}")


def check_record(table: BatchTable, records: RecordTable, row: int, payload_bytes: int) -> None:
    """Raise FormatError if the table points outside of the payload."""
    spans = (
        (records.key_start[row], records.key_size[row]),
        (records.value_start[row], records.value_size[row]),
        (records.headers_start[row], records.header_count[row]),
    )
    inside = all(size <= 0 or (start >= 0 and start + size <= payload_bytes) for start, size in spans)
    if not (inside and 0 <= records.batch[row] < len(table)):
        raise FormatError(f"record {row} of the table points outside of its payload of {payload_bytes} bytes")


def headers_of(view: memoryview, records: RecordTable, row: int) -> list[tuple[bytes, bytes | None]]:
    """The keys and values of a record's headers. Raises FormatError."""
    try:
        return headers(view, records.headers_start[row], records.header_count[row])
    except CorruptRecordError:
        raise FormatError("a header lies outside of its payload") from None


def store(text: bytes, out: bytearray, at: int) -> int:
    """Put `text` at `at` of `out`, which grows if necessary; returns the end of the text. Raises
    ValueError.
    """
    if not 0 <= at <= len(out):
        raise ValueError(f"cannot write at {at} of a buffer of {len(out)} bytes")
    out[at : at + len(text)] = text
    return at + len(text)


def _batch_line(table: BatchTable, row: int) -> str:
    attributes = table.attributes[row]
    if table.magic[row] >= 2:
        horizon = (
            f"OptionalLong[{table.base_timestamp[row]}]"
            if attributes & DELETE_HORIZON_BIT
            else "OptionalLong.empty"
        )
        start = (
            f"baseOffset: {table.base_offset[row]} lastOffset: {table.last_offset[row]}"
            f" count: {table.count[row]} baseSequence: {table.base_sequence[row]}"
            f" lastSequence: {last_sequence(table, row)}"
            f" producerId: {table.producer_id[row]} producerEpoch: {table.producer_epoch[row]}"
            f" partitionLeaderEpoch: {table.leader_epoch[row]}"
            f" isTransactional: {_BOOLEANS[bool(attributes & TRANSACTIONAL_BIT)]}"
            f" isControl: {_BOOLEANS[bool(attributes & CONTROL_BIT)]} deleteHorizonMs: {horizon}"
        )
    else:
        start = f"offset: {table.last_offset[row]}"
    return (
        f"{start} position: {table.position[row]} {timestamp_type(table, row)}: {table.max_timestamp[row]}"
        f" size: {table.size[row]} magic: {table.magic[row]}"
        f" compresscodec: {CODEC_NAMES[attributes & CODEC_MASK]} crc: {table.crc[row]}"
        f" isvalid: {_BOOLEANS[bool(table.valid[row])]}\n"
    )


def _is_plain_control(records: RecordTable, row: int, view: memoryview) -> bool:
    if records.key_size[row] < CONTROL_KEY.size:
        return False
    version, kind = CONTROL_KEY.unpack_from(view, records.key_start[row])
    if version >= 0 and kind in (0, 1):
        fits = records.value_size[row] >= END_TXN_MARKER.size
        return fits and END_TXN_MARKER.unpack_from(view, records.value_start[row])[0] >= 0
    return version >= 0 and not 3 <= kind <= 6


def _control(records: RecordTable, row: int, view: memoryview) -> str:
    _, kind = CONTROL_KEY.unpack_from(view, records.key_start[row])
    if kind in (0, 1):
        _, epoch = END_TXN_MARKER.unpack_from(view, records.value_start[row])
        return f" endTxnMarker: {('ABORT', 'COMMIT')[kind]} coordinatorEpoch: {epoch}"
    return f" controlType: {'LEADER_CHANGE' if kind == 2 else 'UNKNOWN'}({kind})"


def _shown_size(magic: int, start: int, size: int, view: memoryview) -> int:
    """For messages of magic 0 and 1 the stored size field, even if it is not plausible."""
    if magic < 2 and INT32.size <= start <= len(view):
        return int(INT32.unpack_from(view, start - INT32.size)[0])
    return size


def _metadata(table: BatchTable, records: RecordTable, row: int, view: memoryview) -> str:
    batch = records.batch[row]
    magic = table.magic[batch]
    key_size = _shown_size(magic, records.key_start[row], records.key_size[row], view)
    value_size = _shown_size(magic, records.value_start[row], records.value_size[row], view)
    text = (
        f"| offset: {records.offset[row]} {timestamp_type(table, batch)}: {records.timestamp[row]}"
        f" keySize: {key_size} valueSize: {value_size}"
    )
    if magic < 2:
        # Kafka writes this brace, too.
        return f"{text} isValid: {_BOOLEANS[bool(records.valid[row])]} crc: {records.crc[row]}}}"
    keys = ",".join(java_text(key) for key, _ in headers_of(view, records, row))
    text += f" sequence: {record_sequence(table, batch, records.offset[row])} headerKeys: [{keys}]"
    if is_control(table, batch) and _is_plain_control(records, row, view):
        text += _control(records, row, view)
    return text


def _record_line(
    table: BatchTable, records: RecordTable, row: int, view: memoryview, print_data: bool, skip_metadata: bool
) -> str:
    check_record(table, records, row, len(view))
    text = "" if skip_metadata else _metadata(table, records, row, view)
    if print_data and not is_control(table, records.batch[row]):
        key, key_size = records.key_start[row], records.key_size[row]
        value, value_size = records.value_start[row], records.value_size[row]
        if key_size >= 0:
            text += f"{'|' if skip_metadata else ''} key: {java_text(view[key : key + key_size])}"
        if value_size >= 0:
            text += f" payload: {java_text(view[value : value + value_size])}"
    return text + "\n"


def kafka_batches(table: BatchTable, first: int, last: int, out: bytearray, at: int) -> int:
    """The batch lines of rows `first` to `last` (exclusive) of a verified table."""
    check_rows(len(table), first, last)
    return store("".join(_batch_line(table, row) for row in range(first, last)).encode(), out, at)


def kafka_records(
    table: BatchTable,
    records: RecordTable,
    first: int,
    last: int,
    payload: Bytes,
    print_data: bool,
    skip_metadata: bool,
    out: bytearray,
    at: int,
) -> int:
    """The record lines of rows `first` to `last` (exclusive) of `records`, whose spans point into `payload`.

    The lines of control records that `first_unshown_control` finds end after their header keys.
    """
    check_rows(len(records), first, last)
    view = memoryview(payload)
    lines = [_record_line(table, records, row, view, print_data, skip_metadata) for row in range(first, last)]
    return store("".join(lines).encode(), out, at)


def kafka_deep(
    table: BatchTable,
    first: int,
    last: int,
    records: RecordTable,
    first_record: int,
    payload: Bytes,
    print_data: bool,
    skip_metadata: bool,
    out: bytearray,
    at: int,
) -> int:
    """The batch lines of rows `first` to `last`, each followed by its records' lines.

    Row `first_record` of `records` is the first record of the first of these batches that has any.
    """
    check_rows(len(table), first, last)
    check_rows(len(records), first_record, len(records))
    view = memoryview(payload)
    lines = []
    record = first_record
    for row in range(first, last):
        lines.append(_batch_line(table, row))
        while record < len(records) and records.batch[record] == row:
            lines.append(_record_line(table, records, record, view, print_data, skip_metadata))
            record += 1
    return store("".join(lines).encode(), out, at)


def first_unshown_control(
    table: BatchTable, records: RecordTable, first: int, last: int, payload: Bytes
) -> int:
    """The first row of a control record that `kafka_records` cannot show completely; `last` if there is none.

    Its bytes are invalid, or KRaft's schemas are needed.
    """
    check_rows(len(records), first, last)
    view = memoryview(payload)
    for row in range(first, last):
        check_record(table, records, row, len(view))
        if is_control(table, records.batch[row]) and not _is_plain_control(records, row, view):
            return row
    return last


def offset_gaps(
    records: RecordTable, first: int, last: int, previous: int
) -> tuple[list[tuple[int, int]], int]:
    """Pairs of adjacent offsets that are not consecutive, and the last offset.

    `previous` is the offset before row `first`. As in Kafka's tool, -1 means that there is none yet.
    """
    check_rows(len(records), first, last)
    found = []
    for row in range(first, last):
        offset = records.offset[row]
        if previous != -1 and offset != wrap_int64(previous + 1):
            found.append((previous, offset))
        previous = offset
    return found, previous
