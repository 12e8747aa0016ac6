"""Checks and searches magic 2 batches for a broker's append and read paths, without tables, in pure Python.

The compiled twins are in `_record_checks.pxi` and `_append.pxi`. Records are valid if `_pydecode` accepts
them. To find out what is wrong, the caller decodes them into a table.
"""

from __future__ import annotations

from klog.formats.checksums import Bytes
from klog.formats.constants import (
    BATCH_LAST_OFFSET_DELTA_POSITION,
    ENTRY_PREFIX_BYTES,
    MAGIC_POSITION,
    MAGIC_V2,
    MIN_MESSAGE_SIZE,
)
from klog.formats.packed import ENTRY_PREFIX, INT32
from klog.formats.wrapping import wrap_int64
from klog.kernel._pydecode import append_row, decode_v2
from klog.kernel.columns import BatchTable, RecordTable


def check_records(
    data: Bytes, start: int, base_timestamp: int, count: int
) -> tuple[int, int, bool, bool] | None:
    """Check the uncompressed records of one magic 2 batch, from `start` to the end of `data`.

    Returns the smallest timestamp other than -1 ("no timestamp"; -1 if no record has another one), the
    largest (at least -1), whether the offset deltas count up from 0, and whether any record has no key. None
    if the bytes are not exactly `count` valid records.
    """
    view = memoryview(data)
    if not 0 <= start <= len(view) or count < 0:
        return None
    table, records = BatchTable(), RecordTable()
    append_row(table, 0, len(view), 0, 0, MAGIC_V2, 0, 0, count, base_timestamp, base_timestamp)
    decode_v2(view, start, len(view), table, 0, records)
    if records.problem is not None:
        return None
    timestamps = [each for each in records.timestamp if each != -1]
    in_order = all(offset == number for number, offset in enumerate(records.offset))
    keyless = any(size < 0 for size in records.key_size)
    return min(timestamps, default=-1), max([-1, *timestamps]), in_order, keyless


def seek(data: Bytes, offset: int) -> int:
    """The position in `data`, which starts with a batch, of the first batch that ends at or above `offset`.

    If `data` does not hold the header of such a batch, the result is -1 minus the position of the first batch
    that was not read: after `data`, at its incomplete end, or a batch whose size field is below the smallest.
    """
    view = memoryview(data)
    at = 0
    while len(view) - at > MAGIC_POSITION:
        last, follows = ENTRY_PREFIX.unpack_from(view, at)
        if follows < MIN_MESSAGE_SIZE:
            break
        if 2 <= view[at + MAGIC_POSITION] < 0x80:
            if len(view) - at < BATCH_LAST_OFFSET_DELTA_POSITION + INT32.size:
                break
            last = wrap_int64(last + INT32.unpack_from(view, at + BATCH_LAST_OFFSET_DELTA_POSITION)[0])
        if last >= offset:
            return at
        at += follows + ENTRY_PREFIX_BYTES
    return -1 - at
