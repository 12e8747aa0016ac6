"""Reads a segment for the cleaner in buffers of whole batches, and verifies every checksum.

Kafka's cleaner does not verify checksums. But a filtered batch gets a new checksum, which would hide its
damage, and a record with a damaged key may seem to supersede another.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final

from klog.formats.errors import CorruptRecordError
from klog.formats.names import FileKind
from klog.kernel import kernel
from klog.kernel.columns import STOP_BAD_SIZE, BatchTable
from klog.storage.files.chunks import chunks
from klog.storage.files.files import open_for_reading, read_whole
from klog.storage.indexes.index_file import index_entries
from klog.storage.reading.producer_state import AbortedTxn, unpack_aborted

_NEWEST_MAGIC: Final = 2
_CURE: Final = "`klog verify` shows the damage; the log is left as it is"


def verified_batches(
    path: str, size_bytes: int, table: BatchTable, *, start_bytes: int = 0, buffer_bytes: int
) -> Iterator[memoryview]:
    """The batches of a closed segment; each time `table` describes those in the yielded buffer.

    Raises `StorageError` where it cannot be read, `CorruptRecordError` where it is damaged anywhere.
    """
    with open_for_reading(path) as file:
        end = start_bytes
        for data in chunks(
            file, table, start_bytes=start_bytes, end_bytes=size_bytes, chunk_bytes=buffer_bytes
        ):
            _require_valid(path, data, table)
            end = table.origin + table.consumed_bytes
            if len(table):
                yield data
        if end < size_bytes:
            raise _corrupt(path, "the segment ends inside a batch", end)


def _require_valid(path: str, data: memoryview, table: BatchTable) -> None:
    if table.stop == STOP_BAD_SIZE:
        what = f"a batch of {table.stop_size} bytes cannot be"
        raise _corrupt(path, what, table.origin + table.consumed_bytes)
    if kernel.verify(data, table):
        raise _corrupt(path, "batch fails its checksum", table.position[table.valid.index(0)])
    if len(table) and (max(table.magic) > _NEWEST_MAGIC or min(table.magic) < 0):
        raise _corrupt(path, "batch of an unknown magic", table.origin)


def _corrupt(path: str, what: str, position: int) -> CorruptRecordError:
    return CorruptRecordError(what, file=path, position_bytes=position, cure=_CURE)


def position_of(index_path: str, base_offset: int, offset: int) -> int:
    """The position from which to read for `offset`, from the segment's offset index; 0 if that does not
    help.
    """
    if offset <= base_offset:
        return 0
    position = 0
    for relative, at in _indexed(index_path):
        if relative > offset - base_offset or at <= position:
            break
        position = at
    return position


def indexed_positions(index_path: str, start_bytes: int, end_bytes: int) -> Iterator[int]:
    """The positions in an offset index that lie between two others, as far as they ascend; none without an
    index.
    """
    last = start_bytes
    for _, position in _indexed(index_path):
        if last < position < end_bytes:
            last = position
            yield position


def _indexed(index_path: str) -> Iterator[tuple[int, int]]:
    data = read_whole(index_path) if os.path.exists(index_path) else b""
    return index_entries(FileKind.OFFSET_INDEX, data)


def aborted_txns(path: str) -> list[AbortedTxn]:
    """The entries of a transaction index; none if there is no such file."""
    if not os.path.exists(path):
        return []
    return unpack_aborted(read_whole(path))
