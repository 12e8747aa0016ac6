"""The record kernel in pure Python: the twin of `_kernel`, for installs without a compiler.

The meaning and the rules are stated here; `_kernel.pyx` is the fast version, and tests hold both equal. The
layouts are those of the definitions in `record_batch` and `message_set` (KIP-98, KIP-32); tests hold the
kernels equal to them. The kernel accepts what Kafka's own reader accepts (`FileLogInputStream`,
`DefaultRecordBatch`, `AbstractLegacyRecordBatch`).
"""

from __future__ import annotations

from typing import Final

from klog.formats import fixed_fields
from klog.formats.checksums import Bytes, confirm_crc32, confirm_crc32c, crc32, crc32c
from klog.formats.constants import (
    BATCH_CRC_FROM,
    BATCH_HEADER_BYTES,
    CODEC_MASK,
    ENTRY_PREFIX_BYTES,
    INT32_MAX,
    MAGIC_POSITION,
    MESSAGE_CRC_FROM,
    MIN_MESSAGE_SIZE,
)
from klog.formats.errors import UsageError
from klog.formats.packed import ENTRY_PREFIX, MESSAGE_FIELDS
from klog.formats.wrapping import wrap_int64
from klog.kernel._pyappend import check_records, seek
from klog.kernel._pydecode import append_row, batch_bounds, decode, decode_payload, headers, payload_span
from klog.kernel._pyfollow import follow
from klog.kernel.columns import COUNT_UNKNOWN, OFFSET_UNKNOWN, STOP_BAD_SIZE, BatchTable, IndexState

__all__ = [
    "IMPLEMENTATION",
    "check_records",
    "decode",
    "decode_payload",
    "follow",
    "headers",
    "index",
    "payload_span",
    "scan",
    "seek",
    "verify",
]

IMPLEMENTATION: Final = "python"

_HEADER: Final = fixed_fields.run("RecordBatch").only(
    "baseOffset",
    "partitionLeaderEpoch",
    "crc",
    "attributes",
    "lastOffsetDelta",
    "baseTimestamp",
    "maxTimestamp",
    "producerId",
    "producerEpoch",
    "baseSequence",
    "recordCount",
)


def scan(data: Bytes, origin: int, final: bool, table: BatchTable) -> None:
    """Fill `table` with the headers of the whole batches in `data`, which starts at file position `origin`.

    As in Kafka's reader, only what is needed to find the next batch is checked. `final` means that the file
    ends with `data`. `table.stop` says why the scan ended, `table.consumed_bytes` where, and
    `table.need_bytes` the size of the batch that the buffer cuts (0 if its size field is cut too).
    """
    table.clear(origin)
    view = memoryview(data)
    end = len(view)
    at = 0
    while end - at > MAGIC_POSITION + 1:  # Kafka does not read an entry of so few bytes
        first_offset, follows = ENTRY_PREFIX.unpack_from(view, at)
        if follows < MIN_MESSAGE_SIZE:
            table.stop = STOP_BAD_SIZE
            table.stop_size = follows
            break
        size = follows + ENTRY_PREFIX_BYTES
        magic = view[at + MAGIC_POSITION]
        magic = magic - 256 if magic > 127 else magic
        # A whole magic 2 header is read even if a damaged size field is smaller than the header.
        need = size if magic < 2 else max(size, BATCH_HEADER_BYTES)
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
    header = bytes(view[at : at + BATCH_HEADER_BYTES]).ljust(BATCH_HEADER_BYTES, b"\0")
    (
        base_offset,
        leader_epoch,
        crc,
        attributes,
        last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        count,
    ) = _HEADER.unpack(header)
    append_row(
        table,
        position,
        size,
        base_offset,
        wrap_int64(base_offset + last_offset_delta),
        magic,
        crc,
        attributes,
        count,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        leader_epoch,
    )


def _append_legacy(
    table: BatchTable, view: memoryview, at: int, position: int, offset: int, size: int, magic: int
) -> None:
    # The smallest entry contains the timestamp, but not the key of one that has a timestamp.
    crc, attributes, timestamp = MESSAGE_FIELDS.unpack_from(view, at)
    if magic == 0:
        timestamp = -1
    base = OFFSET_UNKNOWN if attributes & CODEC_MASK else offset
    row = position, size, base, offset, magic, crc, attributes, COUNT_UNKNOWN, timestamp, timestamp
    append_row(table, *row, -1, -1, -1, -1)  # neither a producer nor a leader epoch


def verify(data: Bytes, table: BatchTable) -> int:
    """Fill `valid` and `computed_crc` of all rows of `table` (scanned from `data`); returns how many are not
    valid.

    A magic 2 batch that is shorter than its header is not valid, whatever its checksum is. Raises
    `ChecksumCodeError`.
    """
    view = memoryview(data)
    bad = 0
    del table.valid[:], table.computed_crc[:]
    for row in range(len(table)):
        at, end = batch_bounds(view, table, row)
        if table.magic[row] < 2:
            checked = view[at + MESSAGE_CRC_FROM : end]
            computed = crc32(checked)
            good = computed == table.crc[row]
            if not good:
                confirm_crc32(checked, computed)
        else:
            checked = view[at + BATCH_CRC_FROM : end]
            computed = crc32c(checked)
            good = end - at >= BATCH_HEADER_BYTES and computed == table.crc[row]
            if computed != table.crc[row]:
                confirm_crc32c(checked, computed)
        table.computed_crc.append(computed)
        table.valid.append(1 if good else 0)
        bad += not good
    return bad


def index(table: BatchTable, state: IndexState) -> bool:
    """Add the batches of a verified `table` to an index rebuild; False if the log must end there.

    Stops at the first batch that is not valid, or whose last offset does not fit the segment's index
    (`state.stopped_at` and `why` say where and why).
    """
    if len(table.valid) != len(table):
        raise UsageError("index of a table that was not verified")
    for row in range(len(table)):
        last = table.last_offset[row]
        relative = last - state.base_offset
        if not table.valid[row]:
            state.stopped_at, state.why = table.position[row], "checksum"
            return False
        if not 0 <= relative <= INT32_MAX:
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
