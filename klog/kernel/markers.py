"""Reads control records: their type, and the end transaction markers of coordinators; builds such markers.

Rules: KIP-98. `control_records` defines the formats; this is the fast reader beside the definitions.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from klog.formats import fixed_fields
from klog.formats.checksums import Bytes
from klog.formats.compression import ZSTD
from klog.formats.constants import (
    BATCH_HEADER_BYTES,
    CODEC_MASK,
    CONTROL_ABORT,
    CONTROL_BIT,
    CONTROL_COMMIT,
    CONTROL_TYPES,
    ENTRY_PREFIX_BYTES,
    MAGIC_V2,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
)
from klog.formats.packed import CONTROL_KEY, END_TXN_MARKER
from klog.kernel import kernel
from klog.kernel.batch_builder import single
from klog.kernel.columns import BatchTable, RecordTable

_VERSION: Final = 0
_HEADER: Final = fixed_fields.run("RecordBatch").only(
    "batchLength", "magic", "attributes", "baseTimestamp", "maxTimestamp", "recordCount"
)

# The record of a marker as brokers write it: its size, attributes, deltas of timestamp and offset, size of
# the key and the key, size of the value and the value, number of headers. Sizes are zigzag varints of a byte.
_USUAL_RECORD: Final = struct.Struct(f">5B{CONTROL_KEY.format[1:]}B{END_TXN_MARKER.format[1:]}B")
_USUAL_BEGIN: Final = [2 * (_USUAL_RECORD.size - 1), 0, 0, 0, 2 * CONTROL_KEY.size, _VERSION]
_USUAL_VALUE_SIZE: Final = 2 * END_TXN_MARKER.size
_USUAL_BATCH_BYTES: Final = BATCH_HEADER_BYTES + _USUAL_RECORD.size


class Marker(NamedTuple):
    """An end transaction marker. `timestamp` is in ms since the epoch."""

    aborted: bool
    coordinator_epoch: int
    timestamp: int


def control_key(key: Bytes | None) -> tuple[int, int] | None:
    """Version and type of a control record; None if the key is too short."""
    if key is None or len(key) < CONTROL_KEY.size:
        return None
    version, kind = CONTROL_KEY.unpack_from(key)
    return version, kind


def control_type_name(key: Bytes | None) -> str | None:
    """The name of a control record's type (`COMMIT`, `ABORT`, ...); None if the key is too short.

    A type of later versions is `UNKNOWN(n)`.
    """
    known = control_key(key)
    if known is None:
        return None
    kind = known[1]
    return CONTROL_TYPES[kind] if 0 <= kind < len(CONTROL_TYPES) else f"UNKNOWN({kind})"


def first_key(payload: Bytes, records: RecordTable) -> Bytes | None:
    """The key of the first record of the table; None if there is no record, or it has no key."""
    if not len(records) or records.key_size[0] < 0:
        return None
    start = records.key_start[0]
    return memoryview(payload)[start : start + records.key_size[0]]


def decoded_marker(payload: Bytes, records: RecordTable) -> Marker | None:
    """The marker in the first record of the table; None if that is not an end transaction marker."""
    known = control_key(first_key(payload, records))
    if known is None or known[0] < 0 or known[1] not in (CONTROL_ABORT, CONTROL_COMMIT):
        return None
    if records.value_size[0] < END_TXN_MARKER.size:
        return None
    value_version, coordinator_epoch = END_TXN_MARKER.unpack_from(payload, records.value_start[0])
    if value_version < 0:
        return None
    return Marker(known[1] == CONTROL_ABORT, coordinator_epoch, records.timestamp[0])


class BadMarker(NamedTuple):
    """Why a control batch has no end transaction marker, and what Kafka throws when it reads it."""

    what: str
    exception: str

    @property
    def is_invalid_record(self) -> bool:
        """Whether Kafka takes the record for invalid. Its recovery of a segment knows what to do then."""
        return self.exception == _INVALID_RECORD


_INVALID_RECORD: Final = "InvalidRecordException"
_ILLEGAL: Final = "IllegalArgumentException"
_NULL: Final = "NullPointerException"


def bad_marker(payload: Bytes, records: RecordTable, codec: int) -> BadMarker:
    """Why `decoded_marker` has returned None for a control batch that was decoded into `records`.

    Rules: Kafka's `EndTransactionMarker.deserialize` and `ControlRecordType.parse`.
    """
    if codec > ZSTD:
        return BadMarker(f"control batch has the unknown codec {codec}", _ILLEGAL)
    if not len(records):
        exception = "KafkaException" if codec else _INVALID_RECORD
        return BadMarker(records.problem or "control batch has no record", exception)
    key = first_key(payload, records)
    known = control_key(key)
    if key is None:
        return BadMarker("control record has no key", _NULL)
    if known is None:
        return BadMarker(f"control record's key has only {len(key)} bytes", _INVALID_RECORD)
    version, kind = known
    if version < 0:
        return BadMarker(f"control record's key has the version {version}", _INVALID_RECORD)
    if kind not in (CONTROL_ABORT, CONTROL_COMMIT):
        return BadMarker(f"control record of type {kind} ends no transaction", _ILLEGAL)
    if records.value_size[0] < 0:
        return BadMarker("control record has no value", _NULL)
    return BadMarker("control record's value is no end transaction marker", _INVALID_RECORD)


def marker_of_batch(data: Bytes) -> Marker | None:
    """The marker in a buffer that starts with a control batch; None if the batch holds none."""
    return _usual_marker(data) or _any_marker(data)


def _usual_marker(data: Bytes) -> Marker | None:
    """The marker of a batch as brokers write it; None for any other."""
    if len(data) < _USUAL_BATCH_BYTES:
        return None
    size, magic, attributes, base_timestamp, max_timestamp, count = _HEADER.unpack_from(data)
    *begin, kind, value_size, value_version, coordinator_epoch, headers = _USUAL_RECORD.unpack_from(
        data, BATCH_HEADER_BYTES
    )
    if (
        (size, magic, count, headers) != (_USUAL_BATCH_BYTES - ENTRY_PREFIX_BYTES, MAGIC_V2, 1, 0)
        or attributes & CODEC_MASK
        or begin != _USUAL_BEGIN
        or value_size != _USUAL_VALUE_SIZE
        or value_version != _VERSION
        or kind not in (CONTROL_ABORT, CONTROL_COMMIT)
    ):
        return None
    timestamp = max_timestamp if attributes & TIMESTAMP_TYPE_BIT else base_timestamp
    return Marker(kind == CONTROL_ABORT, coordinator_epoch, timestamp)


def _any_marker(data: Bytes) -> Marker | None:
    table, records = BatchTable(), RecordTable()
    kernel.scan(data, 0, True, table)
    kernel.decode(data, table, 0, 1, records)
    return decoded_marker(data, records)


def build_marker(producer_id: int, producer_epoch: int, marker: Marker) -> bytearray:
    """The control batch with the marker that ends a producer's transaction."""
    kind = CONTROL_ABORT if marker.aborted else CONTROL_COMMIT
    record = _USUAL_RECORD.pack(*_USUAL_BEGIN, kind, _USUAL_VALUE_SIZE, _VERSION, marker.coordinator_epoch, 0)
    at_ms = marker.timestamp
    return single(record, at_ms, at_ms, TRANSACTIONAL_BIT | CONTROL_BIT, producer_id, producer_epoch)
