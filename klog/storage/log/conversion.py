"""Converts records that cannot be written as they came to one magic 2 batch, or refuses them.

Rules: Kafka's `LogValidator` (conversion of magic 0 and 1, recompression to the topic's `compression.type`,
inner offsets that do not count up) and KIP-467 (which records of a batch are bad). `validation`
handles batches that need none of this.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final, NamedTuple

from klog.config.topic import TopicConfig
from klog.formats import compression
from klog.formats.constants import (
    BATCH_COUNT_POSITION,
    BATCH_HEADER_BYTES,
    CODEC_MASK,
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    MAGIC_V2,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
)
from klog.formats.errors import FormatError
from klog.formats.packed import UINT32
from klog.kernel import kernel
from klog.kernel.batch_builder import BatchFields, RecordData, assemble, build_batch
from klog.kernel.columns import BatchTable, RecordTable
from klog.storage.log.append_values import (
    AppendError,
    BatchInfo,
    OwnLimitError,
    RecordError,
    Validated,
    decompression_refused,
)

# A few hundred compressed bytes may contain millions of equal records. A record takes a hundred bytes in a
# table. As an object it takes several hundred and ten microseconds, for which all other clients wait. A
# normal client with so many records splits its batch after the error.
_MOST_IN_TABLES: Final = 1_000_000
_MOST_ONE_BY_ONE: Final = 100_000


class Placing(NamedTuple):
    """The offset, epoch and time at which records are appended."""

    next_offset: int
    leader_epoch: int
    now_ms: int


def target_codec(config: TopicConfig, codec: int) -> int:
    """The codec in which the topic stores what came in `codec`."""
    wanted = config.compression_type
    if wanted == "producer":
        return codec
    return compression.NONE if wanted == "uncompressed" else compression.CODEC_NAMES.index(wanted)


def decoded(data: memoryview, payload: memoryview | bytes) -> tuple[BatchTable, RecordTable]:
    """Header and records of the magic 2 batch `data`; `payload` is its block, decompressed, or `data`."""
    _require_few(UINT32.unpack_from(data, BATCH_COUNT_POSITION)[0], _MOST_IN_TABLES)
    table, records = BatchTable(), RecordTable()
    kernel.scan(data, 0, True, table)
    if payload is data:
        kernel.decode(data, table, 0, 1, records)
    else:
        kernel.decode_payload(payload, table, 0, records)
    return table, records


def _require_few(count: int, most: int) -> None:
    if count > most:
        what = f"{count} records and headers are not looked at one by one, {most} at most"
        raise OwnLimitError(what)


def refuse_records(data: memoryview, payload: memoryview | bytes, config: TopicConfig, now_ms: int) -> None:
    """Raise `AppendError` with every bad record of a magic 2 batch; return if there is none."""
    table, records = decoded(data, payload)
    _check_records(records, table.attributes[0], config, now_ms)


def _check_records(
    records: RecordTable,
    attributes: int,
    config: TopicConfig,
    now_ms: int,
    misfits: Collection[int] = (),
) -> None:
    """Check every single record; one bad record fails its whole batch.

    `misfits` are the indexes of records that do not fit their batch.
    """
    _require_few(len(records), _MOST_ONE_BY_ONE)
    compact, create_time = config.compact, not config.log_append_time
    before, after = config.message_timestamp_before_max_ms, config.message_timestamp_after_max_ms
    errors: list[RecordError] = []
    bad_times = False
    for index, timestamp in enumerate(records.timestamp):
        if index in misfits:
            errors.append(RecordError(index, "the message's magic is not that of the message set around it"))
        elif compact and records.key_size[index] < 0:
            errors.append(RecordError(index, "a compacted topic takes no record without a key"))
        elif create_time and timestamp != NO_TIMESTAMP:
            if now_ms - timestamp > before or timestamp - now_ms > after:
                bad_times = True
                what = f"timestamp {timestamp} is outside of {now_ms - before} to {now_ms + after}"
                errors.append(RecordError(index, what))
        elif attributes & TIMESTAMP_TYPE_BIT:
            bad_times = True
            errors.append(RecordError(index, "a producer may not set the timestamp type LogAppendTime"))
    if errors:
        error, why = ("INVALID_TIMESTAMP", "timestamp") if bad_times else ("INVALID_RECORD", "record")
        count = f"1 {why} of the batch is" if len(errors) == 1 else f"{len(errors)} {why}s of the batch are"
        raise AppendError(error, f"{count} not allowed", tuple(errors))


def _level(codec: int, config: TopicConfig) -> int | None:
    """The codec's level if the topic sets another one than Kafka's default; else the codec's own default."""
    default, wanted = {
        compression.GZIP: (-1, config.compression_gzip_level),
        compression.LZ4: (9, config.compression_lz4_level),
        compression.ZSTD: (3, config.compression_zstd_level),
    }.get(codec, (0, 0))
    return None if wanted == default else wanted


def convert_batch(
    data: memoryview,
    payload: memoryview | bytes,
    config: TopicConfig,
    place: Placing,
    *,
    in_order: bool,
) -> Validated:
    """A checked magic 2 batch in the topic's codec, with consecutive offsets."""
    table, records = decoded(data, payload)
    attributes = table.attributes[0]
    codec = target_codec(config, attributes & CODEC_MASK)
    if codec == attributes & CODEC_MASK:
        # Kafka tries to rewrite them, but has not kept their keys and values.
        raise AppendError("UNKNOWN_SERVER_ERROR", "compressed records have offsets that do not count up")
    fields = _fields(table, codec, config, place)
    _require_buildable(records.timestamp, fields)
    append_time = fields.log_append_time_ms
    if in_order and not attributes & (TIMESTAMP_TYPE_BIT | DELETE_HORIZON_BIT):
        largest = max(NO_TIMESTAMP, *records.timestamp)
        block = payload[BATCH_HEADER_BYTES:] if payload is data else payload
        batch = assemble(
            bytes(block),
            fields,
            base_offset=place.next_offset,
            last_offset_delta=len(records) - 1,
            base_timestamp=table.base_timestamp[0],
            max_timestamp=largest if append_time is None else append_time,
            count=len(records),
        )
        return _placed(batch, fields, place, len(records), largest, config)
    copies = _copies(memoryview(payload), records, place.next_offset)
    return _built(copies, fields, place, config)


def convert_messages(data: memoryview, table: BatchTable, config: TopicConfig, place: Placing) -> Validated:
    """Messages of magic 0 or 1 (verified) as one magic 2 batch. Raises `AppendError`."""
    codec = next((bits & CODEC_MASK for bits in table.attributes if bits & CODEC_MASK), compression.NONE)
    fields = _fields(table, target_codec(config, codec), config, place)
    found: list[RecordData] = []
    for row, magic in enumerate(table.magic):
        if magic != table.magic[0]:
            raise AppendError("INVALID_RECORD", f"batch of magic {magic} after one of magic {table.magic[0]}")
        records = RecordTable()
        payload = _message_payload(data, table, row, records)
        misfits = [at for at in range(len(records)) if records.message_magic(at, payload) != magic]
        if not all(valid or at in misfits for at, valid in enumerate(records.valid)):
            raise AppendError("CORRUPT_MESSAGE", "an inner message fails its checksum")
        # Magic 0 has no timestamp type.
        attributes = table.attributes[row] if magic else 0
        _check_records(records, attributes, config, place.now_ms, misfits)
        _require_buildable(records.timestamp, fields)
        found.extend(_copies(memoryview(payload), records, place.next_offset + len(found)))
    if not found:
        raise AppendError("INVALID_RECORD", "a compressed message set holds no message")
    return _built(found, fields, place, config)


def _message_payload(
    data: memoryview, table: BatchTable, row: int, records: RecordTable
) -> memoryview | bytes:
    codec = table.attributes[row] & CODEC_MASK
    payload: memoryview | bytes = data
    if codec == compression.ZSTD:
        raise AppendError("INVALID_RECORD", f"messages of magic {table.magic[row]} cannot be in zstd")
    if codec:
        start, size = kernel.payload_span(data, table, row)
        if size < 0:
            raise AppendError("INVALID_RECORD", "a compressed message set has no value")
        try:
            payload = compression.decompress(codec, data[start : start + size], magic=table.magic[row])
        except FormatError as error:
            raise decompression_refused(error) from error
        kernel.decode_payload(payload, table, row, records)
    else:
        kernel.decode(data, table, row, row + 1, records)
    if records.problem is not None:
        raise AppendError("INVALID_RECORD", records.problem)
    _require_few(len(records), _MOST_ONE_BY_ONE)
    return payload


def _fields(table: BatchTable, codec: int, config: TopicConfig, place: Placing) -> BatchFields:
    v2_bits = table.attributes[0] if table.magic[0] >= MAGIC_V2 else 0
    return BatchFields(
        codec=codec,
        level=_level(codec, config),
        log_append_time_ms=place.now_ms if config.log_append_time else None,
        leader_epoch=place.leader_epoch,
        producer_id=table.producer_id[0],
        producer_epoch=table.producer_epoch[0],
        base_sequence=table.base_sequence[0],
        is_transactional=bool(v2_bits & TRANSACTIONAL_BIT),
        is_control=bool(v2_bits & CONTROL_BIT),
    )


def _require_buildable(timestamps: Iterable[int], fields: BatchFields) -> None:
    """Check what a batch must fulfil to be rewritten, and need not to be written as it came.

    Rules: `MemoryRecordsBuilder`, whose exceptions Kafka answers with UNKNOWN_SERVER_ERROR.
    """
    what = None
    if any(timestamp < NO_TIMESTAMP for timestamp in timestamps):
        what = "a record has a negative timestamp"
    elif fields.is_transactional and fields.producer_id == NO_PRODUCER_ID:
        what = "a transactional batch has no producer"
    elif fields.producer_id != NO_PRODUCER_ID and fields.producer_epoch == NO_PRODUCER_EPOCH:
        what = "the batch's producer has no epoch"
    elif fields.producer_id != NO_PRODUCER_ID and fields.base_sequence < 0 and not fields.is_control:
        what = f"the batch's producer has the sequence {fields.base_sequence}"
    if what is not None:
        raise AppendError("UNKNOWN_SERVER_ERROR", what)


def _copies(payload: memoryview, records: RecordTable, next_offset: int) -> list[RecordData]:
    _require_few(len(records) + sum(records.header_count), _MOST_ONE_BY_ONE)

    return [
        RecordData(
            next_offset + row,
            records.timestamp[row],
            records.key(row, payload),
            records.value(row, payload),
            kernel.headers(payload, records.headers_start[row], records.header_count[row]),
        )
        for row in range(len(records))
    ]


def _built(found: list[RecordData], fields: BatchFields, place: Placing, config: TopicConfig) -> Validated:
    largest = max(NO_TIMESTAMP, *(record.timestamp for record in found))
    return _placed(build_batch(found, fields), fields, place, len(found), largest, config)


def _placed(
    batch: bytearray, fields: BatchFields, place: Placing, count: int, largest: int, config: TopicConfig
) -> Validated:
    if len(batch) > config.max_message_bytes:
        what = f"batch of {len(batch)} bytes after conversion"
        raise AppendError("MESSAGE_TOO_LARGE", f"{what} exceeds the maximum of {config.max_message_bytes}")
    append_time = fields.log_append_time_ms
    first_offset, last_offset = place.next_offset, place.next_offset + count - 1
    max_timestamp = largest if append_time is None else append_time
    info = BatchInfo(
        first_offset,
        last_offset,
        max_timestamp,
        fields.producer_id,
        fields.producer_epoch,
        fields.base_sequence,
        fields.attributes,
        len(batch),
        place.leader_epoch,
    )
    stamp = -1 if append_time is None else append_time
    return Validated(batch, (info,), first_offset, last_offset, max_timestamp, stamp, first_offset, True)
