"""Checks records before a leader appends them, and sets their offsets and times.

Rules: Kafka's `UnifiedLog.analyzeAndValidateRecords` and `LogValidator` (KIP-98, KIP-32, KIP-467, KIP-937).
A magic 2 batch that needs new offsets, leader epoch and maximum timestamp only is patched in the buffer in
which it arrived, without tables. `conversion` handles older magic and other codecs than the topic's.
"""

from __future__ import annotations

from klog.config.topic import TopicConfig
from klog.formats import compression
from klog.formats.checksums import confirm_crc32c, crc32, crc32c
from klog.formats.constants import (
    BATCH_ATTRIBUTES_POSITION,
    BATCH_CRC_FROM,
    BATCH_CRC_POSITION,
    BATCH_HEADER_BYTES,
    BATCH_MAX_TIMESTAMP_POSITION,
    CODEC_MASK,
    CONTROL_BIT,
    ENTRY_PREFIX_BYTES,
    ENTRY_SIZE_POSITION,
    MAGIC_POSITION,
    MAGIC_V2,
    MESSAGE_CRC_FROM,
    MIN_MESSAGE_SIZE,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_BIT,
)
from klog.formats.errors import FormatError
from klog.formats.packed import BATCH_HEADER, BATCH_HEADER_TO_LEADER_EPOCH, INT16, INT64, UINT32
from klog.kernel import kernel
from klog.kernel.columns import BatchTable
from klog.storage.log.append_values import AppendError, BatchInfo, Origin, Validated, decompression_refused
from klog.storage.log.conversion import (
    Placing,
    convert_batch,
    convert_messages,
    decoded,
    refuse_records,
    target_codec,
)
from klog.storage.log.second_opinions import SecondOpinions


def validate(
    data: memoryview,
    config: TopicConfig,
    next_offset: int,
    leader_epoch: int,
    now_ms: int,
    origin: Origin = Origin.CLIENT,
    opinions: SecondOpinions | None = None,
) -> Validated | None:
    """Check records and prepare them for the leader's log; None if there are none.

    `data` must be writable, because it is patched in place if that is enough. Bytes after the last whole
    batch are left out. `opinions` bounds what is computed about damaged records. Raises `AppendError`.
    """
    header = BATCH_HEADER.unpack_from(data) if len(data) >= BATCH_HEADER_BYTES else None
    if header is None or header[3] != MAGIC_V2 or header[1] + ENTRY_PREFIX_BYTES != len(data):
        table = BatchTable()
        kernel.scan(data, 0, True, table)
        if opinions is not None:
            opinions.require(_damaged_bytes(data, table), now_ms)
        kernel.verify(data, table)
        _check_batches(data, table, config, origin)
        if not len(table):
            return None
        if table.magic[0] < MAGIC_V2:
            place = Placing(next_offset, leader_epoch, now_ms)
            return convert_messages(data, table, config, place)
        data = data[: table.size[0]]
        header = BATCH_HEADER.unpack_from(data)
    return _validate_batch(data, header, config, next_offset, leader_epoch, now_ms, origin, opinions)


def _damaged_bytes(data: memoryview, table: BatchTable) -> int:
    """The size of the batches whose checksum does not match, by the fast libraries."""
    damaged = 0
    for at, size, magic, crc in zip(table.position, table.size, table.magic, table.crc, strict=True):
        begin, compute = (BATCH_CRC_FROM, crc32c) if magic >= MAGIC_V2 else (MESSAGE_CRC_FROM, crc32)
        if compute(data[at + begin : at + size]) != crc:
            damaged += size
    return damaged


def _check_batches(data: memoryview, table: BatchTable, config: TopicConfig, origin: Origin) -> None:
    """Check every batch (verified before), the bytes after the last one, and the number of batches."""
    for row in range(len(table)):
        _require_magic(table.magic[row])
        if table.magic[row] >= MAGIC_V2 and origin is Origin.CLIENT and table.base_offset[row] != 0:
            raise _refused_base(table.base_offset[row])
        if table.size[row] > config.max_message_bytes:
            raise _too_large(table.size[row], config)
        if not table.valid[row]:
            raise _corrupt(table.crc[row], table.computed_crc[row])
        _require_codec(table.attributes[row])
    require_possible_tail(data[table.consumed_bytes :])
    compressed = any(attributes & CODEC_MASK for attributes in table.attributes)
    if len(table) > 1 and (table.magic[0] >= MAGIC_V2 or compressed):
        raise AppendError("INVALID_RECORD", f"{len(table)} batches in one append, one is allowed")


def require_possible_tail(tail: memoryview) -> None:
    """Check that the bytes after the last whole batch can begin another one. Raises `AppendError`."""
    if len(tail) < ENTRY_PREFIX_BYTES:
        return
    size = int.from_bytes(tail[ENTRY_SIZE_POSITION:ENTRY_PREFIX_BYTES], "big", signed=True)
    if size < MIN_MESSAGE_SIZE:
        what = f"record size {size} is below the minimum ({MIN_MESSAGE_SIZE})"
        raise AppendError("CORRUPT_MESSAGE", what)
    if len(tail) > MAGIC_POSITION:
        _require_magic(tail[MAGIC_POSITION])


def _require_magic(magic: int) -> None:
    if not 0 <= magic <= MAGIC_V2:
        raise AppendError("CORRUPT_MESSAGE", f"there is no magic {magic}")


def _require_codec(attributes: int) -> None:
    if attributes & CODEC_MASK >= len(compression.CODEC_NAMES):
        raise AppendError("UNKNOWN_SERVER_ERROR", f"there is no codec {attributes & CODEC_MASK}")


def _refused_base(base_offset: int) -> AppendError:
    return AppendError(
        "INVALID_RECORD", f"base offset of a produced batch must be 0, but it is {base_offset}"
    )


def _too_large(size: int, config: TopicConfig) -> AppendError:
    what = f"batch of {size} bytes exceeds the maximum of {config.max_message_bytes}"
    return AppendError("MESSAGE_TOO_LARGE", what)


def _corrupt(stored: int, computed: int) -> AppendError:
    what = f"batch fails its checksum (stored {stored}, computed {computed})"
    return AppendError("CORRUPT_MESSAGE", what)


def _validate_batch(
    data: memoryview,
    header: tuple[int, ...],
    config: TopicConfig,
    next_offset: int,
    leader_epoch: int,
    now_ms: int,
    origin: Origin,
    opinions: SecondOpinions | None,
) -> Validated:
    """Check `data`, which is one magic 2 batch, and set its offsets."""
    (
        base,
        follows,
        _,
        _,
        crc,
        attributes,
        delta,
        base_timestamp,
        old_max,
        producer_id,
        epoch,
        sequence,
        count,
    ) = header
    size = len(data)
    client = origin is Origin.CLIENT
    if client and base != 0:
        raise _refused_base(base)
    if size > config.max_message_bytes:
        raise _too_large(size, config)
    computed = crc32c(data[BATCH_CRC_FROM:])
    if computed != crc:
        if opinions is not None:
            opinions.require(size, now_ms)
        confirm_crc32c(data[BATCH_CRC_FROM:], computed)
        raise _corrupt(crc, computed)
    if client and (
        delta + 1 != count or count <= 0 or attributes & CONTROL_BIT or (producer_id >= 0 and sequence < 0)
    ):
        raise _client_refusal(delta, count, attributes, sequence)
    codec = attributes & CODEC_MASK
    payload, start = (_decompressed(data, codec), 0) if codec else (data, BATCH_HEADER_BYTES)
    checked = kernel.check_records(payload, start, base_timestamp, count)
    if checked is None:
        raise _unsound(data, payload)
    smallest, max_timestamp, in_order, keyless = checked
    stamped = attributes & TIMESTAMP_TYPE_BIT
    append_time = config.log_append_time
    if stamped:
        smallest = max_timestamp = old_max
    if smallest < NO_TIMESTAMP:
        max_timestamp = max(max_timestamp, NO_TIMESTAMP)
    if (
        (keyless and config.compact)
        or (stamped and (append_time or old_max == -1))
        or (
            not append_time
            and smallest != -1
            and (
                now_ms - smallest > config.message_timestamp_before_max_ms
                or max_timestamp - now_ms > config.message_timestamp_after_max_ms
            )
        )
    ):
        refuse_records(data, payload, config, now_ms)
    if (target_codec(config, codec) != codec and not attributes & CONTROL_BIT) or (codec and not in_order):
        place = Placing(next_offset, leader_epoch, now_ms)
        return convert_batch(data, payload, config, place, in_order=in_order)
    last_offset = next_offset + count - 1
    first_offset = last_offset - delta
    BATCH_HEADER_TO_LEADER_EPOCH.pack_into(data, 0, first_offset, follows, leader_epoch)
    if append_time:
        max_timestamp = now_ms
        wanted = attributes | TIMESTAMP_TYPE_BIT
    else:
        wanted = attributes & ~TIMESTAMP_TYPE_BIT
    if max_timestamp != old_max or wanted != attributes:
        INT64.pack_into(data, BATCH_MAX_TIMESTAMP_POSITION, max_timestamp)
        INT16.pack_into(data, BATCH_ATTRIBUTES_POSITION, wanted)
        UINT32.pack_into(data, BATCH_CRC_POSITION, crc32c(data[BATCH_CRC_FROM:]))
    info = BatchInfo(
        first_offset,
        last_offset,
        max_timestamp,
        producer_id,
        epoch,
        sequence,
        wanted,
        size,
        leader_epoch,
    )
    return Validated(
        data,
        (info,),
        first_offset,
        last_offset,
        max_timestamp,
        now_ms if append_time else -1,
        first_offset,
    )


def _client_refusal(delta: int, count: int, attributes: int, sequence: int) -> AppendError:
    _require_codec(attributes)
    if delta < 0:
        what = f"batch has an invalid offset range: 0 to {delta}"
    elif count <= 0:
        what = f"batch of {count} records"
    elif delta + 1 != count:
        what = f"batch of {count} records with offsets 0 to {delta}"
    elif attributes & CONTROL_BIT:
        what = "clients may not write control records"
    else:
        what = f"sequence {sequence} of an idempotent batch"
    return AppendError("INVALID_RECORD", what)


def _decompressed(data: memoryview, codec: int) -> bytes:
    try:
        return compression.decompress(codec, data[BATCH_HEADER_BYTES:])
    except FormatError as error:
        raise decompression_refused(error) from error


def _unsound(data: memoryview, payload: memoryview | bytes) -> AppendError:
    _, records = decoded(data, payload)
    return AppendError("INVALID_RECORD", records.problem or "records do not fit their batch")
