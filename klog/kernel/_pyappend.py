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
    MIN_MESSAGE_SIZE,
)
from klog.formats.packed import ENTRY_PREFIX, INT32
from klog.formats.wrapping import wrap_int64
from klog.kernel._pydecode import headers_fit, varint


def check_records(
    data: Bytes, start: int, base_timestamp: int, count: int
) -> tuple[int, int, bool, bool] | None:
    """Check the uncompressed records of one magic 2 batch, from `start` to the end of `data`.

    Returns the smallest timestamp other than -1 ("no timestamp"; -1 if no record has another one), the
    largest (at least -1), whether the offset deltas count up from 0, and whether any record has no key. None
    if the bytes are not exactly `count` valid records.
    """
    view = memoryview(data)
    end = len(view)
    if not 0 <= start <= end or count < 0:
        return None
    at, smallest, largest, in_order, keyless = start, -1, -1, True, False
    for number in range(count):
        length, body = varint(view, at, end, 32)
        stop = body + length
        if body < 0 or length < 1 or stop > end:
            return None
        delta, at = varint(view, body + 1, stop, 64)
        if at < 0:
            return None
        offset_delta, at = varint(view, at, stop, 32)
        if at < 0:
            return None
        for is_key in (True, False):
            size, at = varint(view, at, stop, 32)
            if at < 0 or at + size > stop:
                return None
            keyless = keyless or (is_key and size < 0)
            at += max(size, 0)
        header_count, at = varint(view, at, stop, 32)
        if at < 0 or not headers_fit(view, at, stop, header_count):
            return None
        timestamp = wrap_int64(base_timestamp + delta)
        if timestamp != -1:
            smallest = timestamp if smallest == -1 else min(smallest, timestamp)
            largest = max(largest, timestamp)
        in_order = in_order and offset_delta == number
        at = stop
    return (smallest, largest, in_order, keyless) if at == end or count == 0 else None


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
