"""Reads entries of offset and time index files fast, for checks and dumps.

`klog.formats.offset_index` and `time_index` define the layouts. Entries end before the first all-zero one
after entry 0, where the preallocated part begins. `klog.storage.index_search` looks up single entries.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from klog.formats.constants import OFFSET_INDEX_ENTRY_BYTES, TIME_INDEX_ENTRY_BYTES
from klog.formats.names import FileKind
from klog.formats.packed import OFFSET_INDEX_ENTRY, TIME_INDEX_ENTRY
from klog.storage.index_file import read_index


def offset_index_entries(data: bytes) -> Iterator[tuple[int, int]]:
    """All entries (relative offset, position) of an offset index up to its zero tail, valid or not."""
    yield from _to_zero_tail(OFFSET_INDEX_ENTRY, data)


def time_index_entries(data: bytes) -> Iterator[tuple[int, int]]:
    """All entries (timestamp in ms, relative offset) of a time index up to its zero tail, valid or not."""
    yield from _to_zero_tail(TIME_INDEX_ENTRY, data)


def _to_zero_tail(entry: struct.Struct, data: bytes) -> Iterator[tuple[int, int]]:
    whole = memoryview(data)[: len(data) // entry.size * entry.size]
    for row, (first, second) in enumerate(entry.iter_unpack(whole)):
        if row and not first and not second:
            return
        yield first, second


def read_entries(path: str, kind: FileKind) -> bytes:
    """The bytes of a `.index` or `.timeindex` without its zero tail. Raises `StorageError`."""
    size = OFFSET_INDEX_ENTRY_BYTES if kind is FileKind.OFFSET_INDEX else TIME_INDEX_ENTRY_BYTES
    return read_index(path, size).entries
