"""Reads from files that wait for the disk only if the caller may wait.

A network thread serves many clients and must not wait. Linux answers `preadv2` with RWF_NOWAIT from the page
cache alone. On systems without that call, and on file systems without it (those in memory), reads may wait; a
`ProbedFile` of such a file system is asked only once.
"""

from __future__ import annotations

import errno
import os
from typing import Final

from klog.formats.errors import KlogError

_NO_WAIT: Final = getattr(os, "RWF_NOWAIT", None)


class ProbedFile:
    """Remembers whether a file's page cache can be asked for bytes without waiting for the disk.

    File systems in memory refuse that, and the refusal of each request would cost time.
    """

    __slots__ = ("refuses_probes",)

    def __init__(self) -> None:
        self.refuses_probes = False


class ColdReadError(KlogError):
    """A read would have to wait for the disk. Nothing is wrong with the log."""

    def __init__(self, path: str, size_bytes: int, position: int) -> None:
        super().__init__("the bytes are not in the page cache", file=path, position_bytes=position)
        self._path = path
        self._size_bytes = size_bytes
        self._position = position

    def load(self) -> None:
        """Wait for the disk, so that the next try finds the bytes. The file may be gone by now."""
        try:
            descriptor = os.open(self._path, os.O_RDONLY)
        except OSError:
            return
        try:
            os.pread(descriptor, self._size_bytes, self._position)
        except OSError:
            # A read that may wait will meet the error, and say so.
            return
        finally:
            os.close(descriptor)


def read_at(
    probed: ProbedFile, descriptor: int, path: str, size_bytes: int, position: int, *, may_wait: bool
) -> bytes | bytearray:
    """Up to `size_bytes` bytes from a position of an open file, whose path is for the error.

    `probed` remembers what the file system of this file can do.

    Raises `ColdReadError` if not all of them are in the page cache and the caller may not wait; else as
    `os.pread`.
    """
    if may_wait or _NO_WAIT is None or probed.refuses_probes:
        return os.pread(descriptor, size_bytes, position)
    data = bytearray(size_bytes)
    try:
        read_bytes = os.preadv(descriptor, [data], position, _NO_WAIT)
    except OSError as error:
        if error.errno in (errno.EOPNOTSUPP, errno.EINVAL):
            probed.refuses_probes = True
            return os.pread(descriptor, size_bytes, position)
        if error.errno == errno.EAGAIN:
            raise ColdReadError(path, size_bytes, position) from None
        raise
    if read_bytes < size_bytes:
        # A part is cached, or the file ends here: a read that may wait tells which.
        raise ColdReadError(path, size_bytes, position)
    return data
