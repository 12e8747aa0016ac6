"""JSON Lines in pure Python: the twin of `_jsontext`, for installs without a compiler.

One object a line, with field names as in Kafka's code (camelCase), always the same fields in the same order.
A value that does not exist is `null` (`controlType` and `coordinatorEpoch` of other records than control
records, `count` of magic 0 and 1). Functions write into `out` from `at` on and return the end of the text, as
in `_pytext`.
"""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Final

from klog.formats.checksums import Bytes
from klog.formats.constants import CODEC_MASK, CONTROL_TYPES, DELETE_HORIZON_BIT, TRANSACTIONAL_BIT
from klog.formats.packed import CONTROL_KEY, END_TXN_MARKER
from klog.kernel._pytext import (
    AUTO,
    BASE64,
    CODEC_NAMES,
    HEX,
    NONE,
    UTF8,
    check_record,
    check_rows,
    headers_of,
    is_control,
    java_text,
    last_sequence,
    record_sequence,
    store,
    timestamp_type,
)
from klog.kernel.columns import BatchTable, RecordTable

IMPLEMENTATION: Final = "python"

_BOOLEANS: Final = ("false", "true")


def _string(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _shown(data: bytes | None, mode: int) -> str:
    if data is None:
        return "null"
    if mode == NONE:
        return f'{{"size":{len(data)}}}'
    if mode == BASE64:
        return f'"{b64encode(data).decode()}"'
    if mode == HEX:
        return f'"{data.hex()}"'
    if mode == UTF8:
        return _string(java_text(data))
    try:
        return _string(data.decode("utf-8"))
    except UnicodeDecodeError:
        return f'{{"base64":"{b64encode(data).decode()}"}}'


def _control(records: RecordTable, row: int, view: memoryview) -> str:
    kind = -1
    if records.key_size[row] >= CONTROL_KEY.size:
        _, kind = CONTROL_KEY.unpack_from(view, records.key_start[row])
    name = CONTROL_TYPES[kind] if 0 <= kind < len(CONTROL_TYPES) else "UNKNOWN"
    epoch = "null"
    if kind in (0, 1) and records.value_size[row] >= END_TXN_MARKER.size:
        epoch = str(END_TXN_MARKER.unpack_from(view, records.value_start[row])[1])
    return f'"controlType":"{name}","coordinatorEpoch":{epoch}'


def _record_line(table: BatchTable, records: RecordTable, row: int, view: memoryview, mode: int) -> str:
    check_record(table, records, row, len(view))
    batch = records.batch[row]
    attributes = table.attributes[batch]
    headers = ",".join(
        f"[{_shown(key, mode)},{_shown(value, mode)}]" for key, value in headers_of(view, records, row)
    )
    key = records.key(row, view)
    value = records.value(row, view)
    control = is_control(table, batch)
    kind = _control(records, row, view) if control else '"controlType":null,"coordinatorEpoch":null'
    transactional = table.magic[batch] >= 2 and bool(attributes & TRANSACTIONAL_BIT)
    return (
        f',"offset":{records.offset[row]},"timestamp":{records.timestamp[row]}'
        f',"timestampType":"{timestamp_type(table, batch)}"'
        f',"key":{_shown(key, mode)}'
        f',"value":{_shown(value, mode)}'
        f',"headers":[{headers}],"magic":{table.magic[batch]}'
        f',"codec":"{CODEC_NAMES[attributes & CODEC_MASK]}"'
        f',"isTransactional":{_BOOLEANS[transactional]},"isControl":{_BOOLEANS[control]},{kind}'
        f',"producerId":{table.producer_id[batch]},"producerEpoch":{table.producer_epoch[batch]}'
        f',"sequence":{record_sequence(table, batch, records.offset[row])}'
        f',"leaderEpoch":{table.leader_epoch[batch]},"batchBaseOffset":{table.base_offset[batch]}'
        f',"batchPosition":{table.position[batch]},"recordSize":{records.record_size[row]}}}\n'
    )


def jsonl_records(
    table: BatchTable,
    records: RecordTable,
    first: int,
    last: int,
    payload: Bytes,
    prefix: bytes,
    mode: int,
    out: bytearray,
    at: int,
) -> int:
    """Rows `first` to `last` (exclusive) of `records`, whose spans point into `payload`.

    `prefix` is the start of each object: `{"file":...,"topic":...,"partition":...`.
    """
    check_rows(len(records), first, last)
    if not AUTO <= mode <= NONE:
        raise ValueError(f"no bytes mode {mode}")
    view = memoryview(payload)
    lines = [prefix + _record_line(table, records, row, view, mode).encode() for row in range(first, last)]
    return store(b"".join(lines), out, at)


def _error(table: BatchTable, row: int) -> str:
    if table.valid[row]:
        return "null"
    if table.crc[row] == table.computed_crc[row]:
        return '"batch is shorter than its header"'
    return f'"checksum is {table.crc[row]}, the bytes give {table.computed_crc[row]}"'


def _batch_line(table: BatchTable, row: int) -> str:
    attributes = table.attributes[row]
    legacy = table.magic[row] < 2
    base: int | str = table.base_offset[row]
    if legacy and attributes & CODEC_MASK and base == -1:
        base = "null"  # it is inside the compressed block
    horizon: int | str = "null"
    if not legacy and attributes & DELETE_HORIZON_BIT:
        horizon = table.base_timestamp[row]
    transactional = not legacy and bool(attributes & TRANSACTIONAL_BIT)
    return (
        f',"position":{table.position[row]},"size":{table.size[row]},"baseOffset":{base}'
        f',"lastOffset":{table.last_offset[row]},"magic":{table.magic[row]}'
        f',"count":{"null" if legacy else table.count[row]},"maxTimestamp":{table.max_timestamp[row]}'
        f',"timestampType":"{timestamp_type(table, row)}","codec":"{CODEC_NAMES[attributes & CODEC_MASK]}"'
        f',"checksum":{table.crc[row]},"valid":{_BOOLEANS[bool(table.valid[row])]}'
        f',"error":{_error(table, row)}'
        f',"producerId":{table.producer_id[row]},"producerEpoch":{table.producer_epoch[row]}'
        f',"baseSequence":{table.base_sequence[row]},"lastSequence":{last_sequence(table, row)}'
        f',"partitionLeaderEpoch":{table.leader_epoch[row]},"isTransactional":{_BOOLEANS[transactional]}'
        f',"isControl":{_BOOLEANS[is_control(table, row)]},"deleteHorizonMs":{horizon}}}\n'
    )


def jsonl_batches(table: BatchTable, first: int, last: int, prefix: bytes, out: bytearray, at: int) -> int:
    """The batches `first` to `last` (exclusive) of a verified table.

    `prefix` is the start of each object: `{"file":...`. `baseOffset` of a compressed batch of magic 0 or 1 is
    null until it has been decoded.
    """
    check_rows(len(table), first, last)
    lines = [prefix + _batch_line(table, row).encode() for row in range(first, last)]
    return store(b"".join(lines), out, at)
