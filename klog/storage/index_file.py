"""The bytes of an index file that hold something, without those that a broker has only allocated.

A broker allocates an index in full (`segment.index.bytes`, by default 10 MiB, mostly a hole in the file) and
cuts it at the next roll: zeros are skipped here, as holes where the file system tells them, and never held.
What is held grows with the entries that are really there, whatever size the file claims.
"""

from __future__ import annotations

import errno
import io
import os
from collections.abc import Iterator
from typing import BinaryIO, Final, NamedTuple

from klog.storage.files import open_for_reading, storage_error

_CHUNK_BYTES: Final = 24 << 15
"""Entries take 8 or 12 bytes: none lies across two chunks."""


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
        for position, chunk in _filled_chunks(file, path):
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


def _filled_chunks(file: BinaryIO, path: str) -> Iterator[tuple[int, bytes]]:
    """Position and bytes of each chunk that is not all zeros."""
    zeros = bytes(_CHUNK_BYTES)
    at = 0
    while (at := _next_data(file, at, path)) >= 0:
        chunk = _read(file, _CHUNK_BYTES)
        if not chunk:
            return
        if chunk != zeros[: len(chunk)]:
            yield at, chunk
        at += len(chunk)
        if len(chunk) < _CHUNK_BYTES:
            return


def _next_data(file: BinaryIO, at: int, path: str) -> int:
    """Moves to the first chunk from `at` that a hole does not cover; -1 where only a hole is left."""
    if not isinstance(file, io.FileIO):
        return at  # a gzipped copy is read as it comes
    try:
        data = os.lseek(file.fileno(), at, os.SEEK_DATA)
    except OSError as error:
        if error.errno == errno.ENXIO:
            return -1
        if error.errno != errno.EINVAL:  # a file system that knows no holes
            raise storage_error("cannot be read", path, error) from error
        data = at
    at = data // _CHUNK_BYTES * _CHUNK_BYTES
    file.seek(at)
    return at


def _read(file: BinaryIO, size: int) -> bytes:
    parts = []
    while size and (part := file.read(size)):
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _size_bytes(file: BinaryIO) -> int:
    if isinstance(file, io.FileIO):
        return file.seek(0, os.SEEK_END)
    return file.seek(1 << 62)  # a gzipped copy stops at its end
