"""Takes the lock that a running broker holds on each of its log directories.

Rules: Kafka's `FileLock` on `.lock`, which uses Java's `FileChannel.tryLock`: on POSIX an fcntl record lock
on the whole file. While klog holds it, a broker cannot start on the directory that klog changes.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import struct
import sys
from collections.abc import Iterator
from typing import Final

from klog.formats.errors import StorageError
from klog.formats.names import PLAIN_KINDS, FileKind
from klog.storage.files.files import storage_error

_UNFINISHED: Final = re.compile(rf"({'|'.join(map(re.escape, sorted(PLAIN_KINDS)))})(\.[0-9]+)?\.tmp")


@contextlib.contextmanager
def locked(log_directory: str, *, only_reading: bool = False) -> Iterator[None]:
    """Hold the lock of `log_directory` in the block. Raises `StorageError` if a broker holds it.

    A directory without `.lock` and `meta.properties` is a copy, not a broker's: it is not locked, and no file
    is left in it. With `only_reading` no directory is locked and nothing is created.
    """
    path = os.path.join(log_directory, FileKind.LOCK)
    marked = os.path.exists(os.path.join(log_directory, FileKind.META_PROPERTIES))
    if only_reading and is_held(log_directory):
        raise _held(log_directory)
    if only_reading:
        yield
        return
    if not marked and not os.path.exists(path):
        remove_unfinished(log_directory)
        yield
        return
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise storage_error("cannot be locked", path, error) from error
    try:
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise _held(log_directory) from error
        remove_unfinished(log_directory)
        yield
    finally:
        os.close(descriptor)


def remove_unfinished(log_directory: str) -> None:
    """Remove the temporary files of checkpoints that a process was writing when it was killed.

    The caller holds the lock. Raises `StorageError`.
    """
    try:
        for name in os.listdir(log_directory):
            if _UNFINISHED.fullmatch(name):
                os.unlink(os.path.join(log_directory, name))
    except OSError as error:
        raise storage_error("cannot be tidied up", log_directory, error) from error


def is_held(log_directory: str) -> bool:
    """Whether another process holds the lock of `log_directory`. Takes no lock and changes nothing.

    False also if that cannot be found out, because `.lock` cannot be opened. Not for a process that holds the
    lock itself: closing the file would release it.
    """
    try:
        descriptor = os.open(os.path.join(log_directory, FileKind.LOCK), os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    wanted = [0] * 5  # from the start to the end of the file
    wanted[_TYPE] = fcntl.F_WRLCK
    try:
        found = fcntl.fcntl(descriptor, fcntl.F_GETLK, _FLOCK.pack(*wanted))
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return bool(_FLOCK.unpack(found)[_TYPE] != fcntl.F_UNLCK)


_FLOCK, _TYPE = (struct.Struct("qqihh"), 3) if sys.platform == "darwin" else (struct.Struct("hhqqi4x"), 0)
"""`struct flock` of fcntl(2), and the place of its field `l_type`."""


def _held(log_directory: str) -> StorageError:
    return StorageError(
        "a running broker holds this log directory",
        file=log_directory,
        cure="stop the broker first, or work on a copy of the directory",
    )
