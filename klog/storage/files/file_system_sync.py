"""Forces all that was written to a file system to disk with one call, if the system has one (Linux: syncfs).

For thousands of files this takes as long as a few calls of fsync. It also writes what other programs have
written to that file system, so it is for starts and stops only. Linux reports write errors since 5.8.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Final

# For fewer files fsync is as good, and does not wait for what others have written.
MANY: Final = 16


@functools.cache
def _syncfs() -> Callable[[int], int] | None:
    # Imported here, because few starts and stops need it.
    import ctypes

    return getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)


def can_sync_file_system() -> bool:
    """Whether the system has such a call."""
    return _syncfs() is not None


def sync_file_system(path: str) -> None:
    """Forces everything that was written to the file system of `path` to disk. Raises OSError, also if the
    system has no such call.
    """
    import ctypes

    syncfs = _syncfs()
    if syncfs is None:
        raise OSError(f"{path}: this system cannot force a whole file system to disk")
    descriptor = os.open(path, os.O_RDONLY)
    try:
        if syncfs(descriptor) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), path)
    finally:
        os.close(descriptor)


def is_on_same_file_system(path: str, other: str) -> bool:
    """Whether two files or directories are on one file system. Raises OSError."""
    return os.stat(path).st_dev == os.stat(other).st_dev
