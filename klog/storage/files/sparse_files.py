"""Reads files that are mostly zeros, because they were pre-allocated and not written yet, without the zeros.

If the file system supports sparse files, `SEEK_DATA` finds the data. Otherwise the zeros are read and
dropped.
"""

from __future__ import annotations

import errno
import io
import os
from collections.abc import Iterator
from typing import BinaryIO, Final

from klog.storage.files.files import open_for_reading, read_exactly, storage_error

# A multiple of 8 and 12, so that no index entry lies across two chunks.
CHUNK_BYTES: Final = 24 << 15


def only_zeros_follow(path: str, position_bytes: int) -> bool:
    """Whether a file holds nothing but zeros from a position on. Raises `StorageError`."""
    with open_for_reading(path) as file:
        for at, chunk in filled_chunks(file, path, position_bytes):
            rest = chunk[max(0, position_bytes - at) :]
            if rest.count(0) < len(rest):
                return False
    return True


def filled_chunks(file: BinaryIO, path: str, start_bytes: int = 0) -> Iterator[tuple[int, bytes]]:
    """Position and bytes of each chunk that is not all zeros. The first is the chunk that contains
    `start_bytes`.

    Raises `StorageError`.
    """
    zeros = bytes(CHUNK_BYTES)
    at = start_bytes // CHUNK_BYTES * CHUNK_BYTES
    while (at := _next_data(file, at, path)) >= 0:
        chunk = read_exactly(file, CHUNK_BYTES)
        if not chunk:
            return
        if chunk != zeros[: len(chunk)]:
            yield at, chunk
        at += len(chunk)
        if len(chunk) < CHUNK_BYTES:
            return


def _next_data(file: BinaryIO, at: int, path: str) -> int:
    """Move to the first chunk at or after `at` that has data; -1 if there is none."""
    if not isinstance(file, io.FileIO):
        return at  # a gzipped copy is read in order
    try:
        data = os.lseek(file.fileno(), at, os.SEEK_DATA)
    except OSError as error:
        if error.errno == errno.ENXIO:
            return -1
        if error.errno != errno.EINVAL:  # EINVAL: the file system has no SEEK_DATA
            raise storage_error("cannot be read", path, error) from error
        data = at
    at = data // CHUNK_BYTES * CHUNK_BYTES
    file.seek(at)
    return at
