"""The bytes of an index file that hold something, without those that a broker has only allocated.

A broker allocates an index in full (`segment.index.bytes`, by default 10 MiB, mostly a hole in the file) and
cuts it at the next roll: zeros are skipped here, as holes where the file system tells them, and never held.
What is held grows with the entries that are really there, whatever size the file claims.
"""

from __future__ import annotations

import io
import os
from typing import BinaryIO, NamedTuple

from klog.storage.files import open_for_reading
from klog.storage.sparse_files import filled_chunks


class IndexFile(NamedTuple):
    """The entries of an index file less the zeros at its end, as bytes, and the size of the whole file.

    Where entries come again after a long run of zeros they are left out but for one entry of zeros, which is
    out of order there already: then it is not `complete`.
    """

    entries: bytes
    size_bytes: int
    complete: bool = True


def read_index(path: str, entry_bytes: int, *, sorted_only: bool = False) -> IndexFile:
    """Read an index of entries of this size. Raises `StorageError`.

    With `sorted_only` what comes some way after the first entry out of order is left out: enough for whoever
    stops at that entry, and an end to reading a large file that is no index.
    """
    parts: list[bytes] = []
    end = 0
    key_bytes = entry_bytes - 4
    last_key: int | None = None
    with open_for_reading(path) as file:
        for position, chunk in filled_chunks(file, path):
            if position != end:
                parts.append(b"\0" * entry_bytes)
                return IndexFile(b"".join(parts), _size_bytes(file), complete=False)
            parts.append(chunk)
            end += len(chunk)
            key = int.from_bytes(chunk[:key_bytes], "big", signed=True)
            if sorted_only and last_key is not None and key <= last_key:
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
    return file.seek(1 << 62)  # a gzipped copy stops at its end
