"""Reads an offset or time index file without the part that a broker has only allocated, for checks and dumps.

A broker allocates an index in full (`segment.index.bytes`, by default 10 MiB, mostly sparse) and truncates it
at the next roll. Zeros are skipped, without reading them if the file system supports sparse files. Memory
grows with the entries, not with the size of the file. `klog.formats.offset_index` and `time_index` define the
layouts; `klog.storage.indexes.index_search` looks up single entries.
"""

from __future__ import annotations

import io
import os
import struct
from collections.abc import Iterator, Mapping
from typing import BinaryIO, Final, NamedTuple

from klog.formats.names import FileKind
from klog.formats.packed import OFFSET_INDEX_ENTRY, TIME_INDEX_ENTRY
from klog.storage.files.files import open_for_reading
from klog.storage.files.sparse_files import filled_chunks

INDEX_ENTRIES: Final[Mapping[FileKind, struct.Struct]] = {
    FileKind.OFFSET_INDEX: OFFSET_INDEX_ENTRY,
    FileKind.TIME_INDEX: TIME_INDEX_ENTRY,
}
"""(Relative offset, position), and (timestamp in ms, relative offset)."""


class IndexFile(NamedTuple):
    """The entries of an index file without the zeros at its end, as bytes, and the size of the whole file.

    If entries follow a long run of zeros, they are left out, except for one entry of zeros, which is out of
    order at that place. Then the index is not `complete`.
    """

    entries: bytes
    size_bytes: int
    complete: bool = True

    def is_allocated_in_full(self, kind: FileKind) -> bool:
        """Whether the broker did not cut the file to its entries, as it does when it closes the segment.

        One entry of zeros may be valid: a record at the segment's start with the timestamp 0.
        """
        return self.complete and self.size_bytes - len(self.entries) >= 2 * INDEX_ENTRIES[kind].size


def read_index(path: str, kind: FileKind, *, sorted_only: bool = False) -> IndexFile:
    """Read a `.index` or `.timeindex`. Raises `StorageError`.

    With `sorted_only` reading ends some way after the first entry out of order. That is enough for a caller
    that stops at that entry, and it limits the reading of a large file that is not an index.
    """
    parts: list[bytes] = []
    end = 0
    entry_bytes = INDEX_ENTRIES[kind].size
    last_key: int | None = None
    with open_for_reading(path) as file:
        for position, chunk in filled_chunks(file, path):
            if position != end:
                parts.append(b"\0" * entry_bytes)
                return IndexFile(b"".join(parts), _size_bytes(file), complete=False)
            parts.append(chunk)
            end += len(chunk)
            if sorted_only and len(chunk) >= entry_bytes:
                key, _ = INDEX_ENTRIES[kind].unpack_from(chunk)
                if last_key is not None and key <= last_key:
                    return IndexFile(b"".join(parts), _size_bytes(file), complete=False)
                last_key = key
        size_bytes = _size_bytes(file)
    if parts:
        used = -(-len(parts[-1].rstrip(b"\0")) // entry_bytes) * entry_bytes
        parts[-1] = parts[-1][:used]
    return IndexFile(b"".join(parts), size_bytes)


def _size_bytes(file: BinaryIO) -> int:
    if isinstance(file, io.FileIO):
        return file.seek(0, os.SEEK_END)
    return file.seek(1 << 62)  # a gzipped copy is read to its end


def index_entries(kind: FileKind, data: bytes) -> Iterator[tuple[int, int]]:
    """All entries of an index up to the first all-zero one after entry 0, valid or not."""
    entry = INDEX_ENTRIES[kind]
    whole = memoryview(data)[: len(data) // entry.size * entry.size]
    for row, (first, second) in enumerate(entry.iter_unpack(whole)):
        if row and not first and not second:
            return
        yield first, second
