"""Takes the lock that a running broker holds on each of its log directories.

Rules: Kafka's `FileLock` on `.lock`, which uses Java's `FileChannel.tryLock`: on POSIX an fcntl record lock
on the whole file. While klog holds it, a broker cannot start on the directory that klog changes.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterator

from klog.formats.errors import StorageError
from klog.formats.names import FileKind
from klog.storage.files import storage_error


@contextlib.contextmanager
def locked(log_directory: str, *, only_reading: bool = False) -> Iterator[None]:
    """Hold the lock of `log_directory` in the block. Raises `StorageError` if a broker holds it.

    A directory without `.lock` and `meta.properties` is a copy, not a broker's: it is not locked, and no file
    is left in it. With `only_reading`, a directory that cannot be written (a read-only mount, another user's)
    is used without a lock.
    """
    path = os.path.join(log_directory, FileKind.LOCK)
    marked = os.path.exists(os.path.join(log_directory, FileKind.META_PROPERTIES))
    if not marked and not os.path.exists(path):
        yield
        return
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        if only_reading and error.errno in (errno.EROFS, errno.EACCES):
            yield
            return
        raise storage_error("cannot be locked", path, error) from error
    try:
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise StorageError(
                "a running broker holds this log directory",
                file=log_directory,
                cure="stop the broker first, or work on a copy of the directory",
            ) from error
        yield
    finally:
        os.close(descriptor)
