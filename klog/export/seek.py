"""Batches of an open segment found without reading what is between them: at a position, one after the
other by their headers, or again after damage.

Nothing here decodes a record. The layouts are the kernel's; a position counts as a batch's only where
the checksum of the whole batch is good.
"""

from __future__ import annotations

import errno
import io
import os
import re
from collections.abc import Iterator
from typing import BinaryIO, Final

from klog.export.files import read_at
from klog.export.options import MAX_BATCH_BYTES
from klog.formats import kernel
from klog.formats.columns import STOP_BAD_SIZE, BatchTable
from klog.formats.constants import BATCH_HEADER_BYTES, INT32_MAX
from klog.storage.select import compact

FIRST_READ_BYTES: Final = 16 << 10
WALK_BYTES: Final = 64 << 10
_PREFIX_BYTES: Final = 12  # offset and size come before what the size field counts
_CHUNK_BYTES: Final = 1 << 20
_HEAD_BYTES: Final = 17  # offset, size, then epoch or checksum, up to the magic
# An offset, a size of at least 14, four bytes, a magic of 0 to 2; looked ahead, for matches may overlap.
_CANDIDATE: Final = re.compile(
    rb"(?=[\x00-\x7f].{7}(?!\x00\x00\x00[\x00-\x0d])[\x00-\x7f].{3}.{4}[\x00-\x02])", re.DOTALL
)
_TRIES: Final = 4
_FARTHEST: Final = 1 << 32
"""Offsets of a segment differ by less than 2^31; after a damaged one by twice that at most."""


def sound_batch(
    file: BinaryIO, position_bytes: int, largest_bytes: int = MAX_BATCH_BYTES
) -> BatchTable | None:
    """The header of the batch at a position, None where no whole batch with a good checksum starts there.

    Memory is bounded by the bytes that the file really has there, and by the `largest_bytes` that count as a
    batch.
    """
    table = BatchTable()
    data = read_at(file, position_bytes, FIRST_READ_BYTES)
    kernel.scan(data, position_bytes, True, table)
    if not len(table) and len(data) < table.need_bytes <= largest_bytes:
        data += read_at(file, position_bytes + len(data), table.need_bytes - len(data))
        kernel.scan(data, position_bytes, True, table)
    if not len(table):
        return None
    table_end = table.size[0]
    kernel.scan(data[:table_end], position_bytes, True, table)
    kernel.verify(data[:table_end], table)
    return table if table.valid[0] and 0 <= table.magic[0] <= 2 else None


def header_at(file: BinaryIO, position_bytes: int) -> BatchTable:
    """The header of the batch at a position, checked in no way; an empty table where there can be none."""
    table = BatchTable()
    data = read_at(file, position_bytes, BATCH_HEADER_BYTES)
    kernel.scan(data, position_bytes, False, table)
    if not len(table) and table.need_bytes:
        _scan_header(data, position_bytes, table.need_bytes, table)
    return table


def headers(file: BinaryIO, start_bytes: int, end_bytes: int) -> Iterator[tuple[bytes, BatchTable]]:
    """Buffers and tables (reused) of the headers of whole batches from a batch's position on.

    Bodies of large batches are not read: of such a one the buffer holds the beginning only. Ends where the
    next batch does not fit before `end_bytes` or its size field is none; `table.origin +
    table.consumed_bytes` is where that is.
    """
    table = BatchTable()
    position = start_bytes
    while True:
        data = read_at(file, position, min(WALK_BYTES, end_bytes - position))
        kernel.scan(data, position, False, table)
        if len(table):
            position += table.consumed_bytes
            yield data, table
            continue
        size = table.need_bytes
        if table.stop == STOP_BAD_SIZE or size <= len(data) or position + size > end_bytes:
            return
        _scan_header(data, position, size, table)
        if not len(table):
            return
        position += size
        yield data, table


def _scan_header(data: bytes, position: int, size: int, table: BatchTable) -> None:
    """Row of a batch whose header alone is in `data`: scanned as one that ends there, then told its size."""
    head = bytearray(data[:BATCH_HEADER_BYTES])
    head[8:12] = (len(head) - _PREFIX_BYTES).to_bytes(4, "big")
    kernel.scan(head, position, True, table)
    if len(table):
        table.size[0] = size
        table.consumed_bytes = size


def walk(
    file: BinaryIO, start_bytes: int, end_bytes: int, base_offset: int
) -> Iterator[tuple[bytes, BatchTable]]:
    """As `headers`, but goes on behind what is damaged, with the next sound batch; zeros at the end end it.

    `base_offset` is the segment's: an offset that does not fit it ends what is taken for sound. Checksums
    are looked at only to find the way back.
    """
    position, next_offset = start_bytes, base_offset
    while position < end_bytes:
        for data, table in headers(file, position, end_bytes):
            sound = _plausible_rows(table, base_offset)
            damaged = sound < len(table)
            if damaged:
                table.consumed_bytes = table.position[sound] - table.origin
                compact(table, list(range(sound)))
            position = table.origin + table.consumed_bytes
            if len(table):
                next_offset = table.last_offset[-1] + 1
                yield data, table
            if damaged:
                break
        filled = first_filled_byte(file, position, end_bytes)
        if filled is None:
            return
        batch = next_sound_batch(
            file, max(position + 1, filled - _PREFIX_BYTES), end_bytes, from_offset=next_offset
        )
        if batch is None:
            return
        position = batch.position[0]


def _plausible_rows(table: BatchTable, base_offset: int) -> int:
    """How many of the first rows could be batches of a segment with this base offset."""
    highest = base_offset + INT32_MAX
    sound = min(table.magic) >= 0 and max(table.magic) <= 2
    if sound and base_offset <= min(table.last_offset) and max(table.last_offset) <= highest:
        return len(table)
    for row, (magic, last) in enumerate(zip(table.magic, table.last_offset, strict=True)):
        if not 0 <= magic <= 2 or not base_offset <= last <= highest:
            return row
    return len(table)


def first_filled_byte(file: BinaryIO, start_bytes: int, end_bytes: int) -> int | None:
    """The position of the first byte that is not zero between two positions, None where all are zero.

    Holes that the file system tells of are not read.
    """
    position = start_bytes
    while position < end_bytes:
        position = _after_hole(file, position)
        if position < 0:
            return None
        data = read_at(file, position, min(_CHUNK_BYTES, end_bytes - position))
        if not data:
            return None
        if data.count(0) < len(data):
            return position + len(data) - len(data.lstrip(b"\0"))
        position += len(data)
    return None


def _after_hole(file: BinaryIO, position: int) -> int:
    if not isinstance(file, io.FileIO):
        return position
    try:
        return os.lseek(file.fileno(), position, os.SEEK_DATA)
    except OSError as error:
        # Nothing but a hole follows; or the file system knows of none.
        return -1 if error.errno == errno.ENXIO else position


def next_sound_batch(
    file: BinaryIO,
    start_bytes: int,
    end_bytes: int,
    *,
    from_offset: int = 0,
    largest_bytes: int = MAX_BATCH_BYTES,
) -> BatchTable | None:
    """The header of the first sound batch that starts from one position to before another, None where there
    is none: how to go on after damage.

    Only batches whose offsets are not below `from_offset` count, and only those whose whole bytes have a good
    checksum. What is tried in vain costs no more than a few times the bytes searched.
    """
    budget_bytes = _TRIES * max(end_bytes - start_bytes, _CHUNK_BYTES)
    position = start_bytes
    while position < end_bytes:
        # A candidate that lies across two chunks is found in the second.
        data = read_at(file, position, min(_CHUNK_BYTES, end_bytes - position + _HEAD_BYTES - 1))
        for at in candidates(data, from_offset):
            if position + at >= end_bytes:
                return None
            size = int.from_bytes(data[at + 8 : at + _PREFIX_BYTES], "big")
            if size > FIRST_READ_BYTES:
                budget_bytes -= size
            if size <= FIRST_READ_BYTES or budget_bytes > 0:
                batch = sound_batch(file, position + at, largest_bytes)
                if batch is not None:
                    return batch
        if len(data) < _HEAD_BYTES:
            return None
        position += len(data) - _HEAD_BYTES + 1
    return None


def candidates(data: bytes, from_offset: int) -> Iterator[int]:
    """Positions in `data` where a batch with an offset from `from_offset` on might start, by its first
    bytes."""
    for match in _CANDIDATE.finditer(data):
        at = match.start()
        if from_offset <= int.from_bytes(data[at : at + 8], "big") <= from_offset + _FARTHEST:
            yield at
