"""Finds batches in an open segment without reading all of it: at a position, by walking headers, after
damage.

No function here decodes a record. A position holds a batch only if the checksum of the whole batch matches;
`headers` and `walk` read headers without checking them. The file is any seekable stream of bytes: a local
file, a file of an object store, or a buffer.
"""

from __future__ import annotations

import errno
import io
import os
import re
from collections.abc import Iterator
from typing import BinaryIO, Final

from klog.formats.checksums import Bytes
from klog.formats.compression import decompress
from klog.formats.constants import (
    BATCH_HEADER_BYTES,
    CODEC_MASK,
    ENTRY_PREFIX_BYTES,
    ENTRY_SIZE_POSITION,
    INT32_MAX,
)
from klog.formats.errors import KlogError
from klog.formats.packed import BATCH_HEADER_TO_MAGIC, ENTRY_PREFIX, INT32
from klog.kernel import kernel
from klog.kernel.columns import STOP_BAD_SIZE, BatchTable, RecordTable
from klog.storage.files.files import read_at
from klog.storage.reading.select import compact

MAX_BATCH_BYTES: Final = 128 << 20
"""The default limit of a batch's size, in the file and decompressed.

A record of 100 MiB fits. A task that reads one needs 300 MiB of memory, and up to 700 to write it as Parquet
if it does not compress.
"""
FIRST_READ_BYTES: Final = 16 << 10
WALK_BYTES: Final = 64 << 10
_CHUNK_BYTES: Final = 1 << 20
_HEAD_BYTES: Final = BATCH_HEADER_TO_MAGIC.size
# An offset, a size of at least 14, four bytes, a magic of 0 to 2. A lookahead, because matches may overlap.
_CANDIDATE: Final = re.compile(
    rb"(?=[\x00-\x7f].{7}(?!\x00\x00\x00[\x00-\x0d])[\x00-\x7f].{3}.{4}[\x00-\x02])", re.DOTALL
)
_MOST_SEARCH_RATIO: Final = 4
_LARGEST_OFFSET_STEP: Final = 1 << 32
"""Offsets of one segment differ by less than 2^31, and those after a damaged one by at most twice that."""


def valid_batch(
    file: BinaryIO, position_bytes: int, largest_bytes: int = MAX_BATCH_BYTES
) -> BatchTable | None:
    """The header of the batch at a position, or None if no complete batch with a valid checksum starts there.

    Memory is bounded by the bytes that the file has at that position, and by `largest_bytes`: a larger batch
    counts as none.
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


def fill_base_offset(data: Bytes, table: BatchTable, row: int, limit_bytes: int = MAX_BATCH_BYTES) -> None:
    """Fill in the base offset of a compressed set of magic 0 or 1, which only its payload says.

    `data` is the buffer that was scanned into `table`. The base offset stays unknown if the payload does not
    decompress, or to more than `limit_bytes`.
    """
    start, size = kernel.payload_span(data, table, row)
    if size < 0:
        return
    try:
        payload = decompress(
            table.attributes[row] & CODEC_MASK,
            memoryview(data)[start : start + size],
            magic=table.magic[row],
            limit_bytes=limit_bytes,
        )
    except KlogError:
        return  # decoding the records reports it
    kernel.decode_payload(payload, table, row, RecordTable())


def header_at(file: BinaryIO, position_bytes: int) -> BatchTable:
    """The unchecked header of the batch at a position, or an empty table if there can be none."""
    table = BatchTable()
    data = read_at(file, position_bytes, BATCH_HEADER_BYTES)
    kernel.scan(data, position_bytes, False, table)
    if not len(table) and table.need_bytes:
        _scan_header(data, position_bytes, table.need_bytes, table)
    return table


def headers(file: BinaryIO, start_bytes: int, end_bytes: int) -> Iterator[tuple[bytes, BatchTable]]:
    """Yield buffers with the headers of complete batches, from the position of a batch on.

    The table is reused. The body of a large batch is not read: the buffer then holds only its beginning. The
    walk ends if the next batch does not fit before `end_bytes` or its size field is invalid; that position is
    `table.origin + table.consumed_bytes`.
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
    """Scan a header without its body: as a batch that ends with the header, then with its real size."""
    head = bytearray(data[:BATCH_HEADER_BYTES])
    INT32.pack_into(head, ENTRY_SIZE_POSITION, len(head) - ENTRY_PREFIX_BYTES)
    kernel.scan(head, position, True, table)
    if len(table):
        table.size[0] = size
        table.consumed_bytes = size


def walk(
    file: BinaryIO, start_bytes: int, end_bytes: int, base_offset: int
) -> Iterator[tuple[bytes, BatchTable]]:
    """Yield the same as `headers`, and continue after damage with the next valid batch.

    `base_offset` is the segment's: a batch whose offset cannot belong to that segment counts as damage.
    Checksums are verified only in the search for a valid batch. Zeros up to the end of the range end the
    walk.
    """
    position, next_offset = start_bytes, base_offset
    while position < end_bytes:
        for data, table in headers(file, position, end_bytes):
            plausible = _plausible_rows(table, base_offset)
            damaged = plausible < len(table)
            if damaged:
                table.consumed_bytes = table.position[plausible] - table.origin
                compact(table, list(range(plausible)))
            position = table.origin + table.consumed_bytes
            if len(table):
                next_offset = table.last_offset[-1] + 1
                yield data, table
            if damaged:
                break
        filled = first_filled_byte(file, position, end_bytes)
        if filled is None:
            return
        batch = next_valid_batch(
            file, max(position + 1, filled - ENTRY_PREFIX_BYTES), end_bytes, from_offset=next_offset
        )
        if batch is None:
            return
        position = batch.position[0]


def _plausible_rows(table: BatchTable, base_offset: int) -> int:
    """How many of the first rows can be batches of a segment with this base offset."""
    highest = base_offset + INT32_MAX
    known_magics = min(table.magic) >= 0 and max(table.magic) <= 2
    if known_magics and base_offset <= min(table.last_offset) and max(table.last_offset) <= highest:
        return len(table)
    for row, (magic, last) in enumerate(zip(table.magic, table.last_offset, strict=True)):
        if not 0 <= magic <= 2 or not base_offset <= last <= highest:
            return row
    return len(table)


def first_filled_byte(file: BinaryIO, start_bytes: int, end_bytes: int) -> int | None:
    """The position of the first byte that is not zero between two positions, or None if all are zero.

    Holes that the file system reports are not read.
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
    """The first position from `position` on that is not in a hole, -1 if only a hole follows."""
    if not isinstance(file, io.FileIO):
        return position
    try:
        return os.lseek(file.fileno(), position, os.SEEK_DATA)
    except OSError as error:
        # ENXIO: only a hole follows. Any other error: the file system does not report holes.
        return -1 if error.errno == errno.ENXIO else position


def next_valid_batch(
    file: BinaryIO,
    start_bytes: int,
    end_bytes: int,
    *,
    from_offset: int = 0,
    largest_bytes: int = MAX_BATCH_BYTES,
) -> BatchTable | None:
    """The header of the first valid batch that starts between two positions, or None if there is none.

    A batch counts only if its offset is at least `from_offset` and its checksum matches. The search reads at
    most a few times the bytes of the range, whatever the bytes look like.
    """
    budget_bytes = _MOST_SEARCH_RATIO * max(end_bytes - start_bytes, _CHUNK_BYTES)
    position = start_bytes
    while position < end_bytes:
        # A candidate that lies across two chunks is found in the second one.
        data = read_at(file, position, min(_CHUNK_BYTES, end_bytes - position + _HEAD_BYTES - 1))
        for at in candidates(data, from_offset):
            if position + at >= end_bytes:
                return None
            _, size = ENTRY_PREFIX.unpack_from(data, at)
            if size > FIRST_READ_BYTES:
                budget_bytes -= size
            if size <= FIRST_READ_BYTES or budget_bytes > 0:
                batch = valid_batch(file, position + at, largest_bytes)
                if batch is not None:
                    return batch
        if len(data) < _HEAD_BYTES:
            return None
        position += len(data) - _HEAD_BYTES + 1
    return None


def candidates(data: bytes, from_offset: int) -> Iterator[int]:
    """Yield the positions in `data` where the first bytes may be those of a batch with at least this
    offset."""
    for match in _CANDIDATE.finditer(data):
        at = match.start()
        if from_offset <= ENTRY_PREFIX.unpack_from(data, at)[0] <= from_offset + _LARGEST_OFFSET_STEP:
            yield at
