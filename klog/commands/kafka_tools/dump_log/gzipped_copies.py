"""Gives gzipped copies what Kafka's dump needs of a file: its size, and reading at any position.

A gzipped copy does not say how large its plain bytes are, and seeking back in it is slow.
"""

from __future__ import annotations

import os
from contextlib import closing
from typing import BinaryIO

from klog.formats.errors import StorageError
from klog.storage.files.files import GZIP_SUFFIX, open_for_reading
from klog.storage.files.gzipped import GzippedFile

_COPY_BYTES = 1 << 20


def size_of(file: BinaryIO) -> tuple[int, StorageError | None]:
    """The size of the open file's plain bytes, and the damage that ends them, if there is any.

    Reads all of a gzipped copy once. The file is at its start afterwards.
    """
    damage: StorageError | None = None
    if isinstance(file, GzippedFile):
        buffer = bytearray(_COPY_BYTES)
        try:
            while file.readinto(buffer):
                pass
        except StorageError as error:
            damage = error
        size = file.tell()
    else:
        size = file.seek(0, os.SEEK_END)
    file.seek(0)
    return size, damage


def open_for_seeking(path: str) -> BinaryIO:
    """The file's plain bytes for reading at any position. Raises StorageError.

    The plain bytes of a gzipped copy are put into a temporary file that has no name.
    """
    file = open_for_reading(path)
    if not isinstance(file, GzippedFile):
        return file
    with closing(file):
        return _plain_copy(file, path)


def _plain_copy(file: BinaryIO, path: str) -> BinaryIO:
    import shutil
    import tempfile

    plain: BinaryIO = tempfile.TemporaryFile()  # noqa: SIM115 (the caller closes it)
    try:
        shutil.copyfileobj(file, plain, _COPY_BYTES)
    except OSError as error:
        plain.close()
        raise StorageError(
            f"cannot be decompressed to {tempfile.gettempdir()}: {error.strerror}",
            file=path,
            cure="free some space, or name another directory by TMPDIR",
        ) from error
    except BaseException:
        plain.close()
        raise
    return plain


def plain_or_gzipped(path: str) -> str:
    """The path, or that of its gzipped copy if only this exists."""
    gzipped = path + GZIP_SUFFIX
    return gzipped if not os.path.exists(path) and os.path.exists(gzipped) else path
