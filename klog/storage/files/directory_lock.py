"""Takes the lock that a running broker holds on each of its log directories.

Rules: Kafka's `FileLock` on `.lock`, which uses Java's `FileChannel.tryLock`: on POSIX an fcntl record lock
on the whole file. While klog holds it, a broker cannot start on the directory that klog changes.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
from collections.abc import Iterator
from typing import Final

from klog.formats.errors import StorageError
from klog.formats.names import PLAIN_KINDS, FileKind
from klog.storage.files.files import storage_errors
from klog.storage.files.lock_holder import ANOTHER_PROCESS, directory_lock_holder, record_lock_holder

_UNFINISHED: Final = re.compile(rf"({'|'.join(map(re.escape, sorted(PLAIN_KINDS)))})(\.[0-9]+)?\.tmp")


@contextlib.contextmanager
def locked(log_directory: str, *, only_reading: bool = False) -> Iterator[None]:
    """Hold the lock of `log_directory` in the block. Raises `StorageError` if another process holds it.

    A directory without `.lock` and `meta.properties` is a copy, not a broker's: no file is left in it, and
    the lock is on the directory itself. With `only_reading` no directory is locked and nothing is created.
    """
    path = os.path.join(log_directory, FileKind.LOCK)
    marked = os.path.exists(os.path.join(log_directory, FileKind.META_PROPERTIES))
    if only_reading:
        holder = holder_of(log_directory)
        if holder is not None:
            raise _held(log_directory, holder)
        yield
        return
    if not marked and not os.path.exists(path):
        with _locked_itself(log_directory):
            remove_unfinished(log_directory)
            yield
        return
    with storage_errors("cannot be locked", path):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise _held(log_directory, holder_of(log_directory)) from error
        remove_unfinished(log_directory)
        yield
    finally:
        os.close(descriptor)


def remove_unfinished(log_directory: str) -> None:
    """Remove the temporary files of checkpoints that a process was writing when it was killed.

    The caller holds the lock. Raises `StorageError`.
    """
    with storage_errors("cannot be tidied up", log_directory):
        for name in os.listdir(log_directory):
            if _UNFINISHED.fullmatch(name):
                os.unlink(os.path.join(log_directory, name))


@contextlib.contextmanager
def _locked_itself(directory: str) -> Iterator[None]:
    """Hold a lock on a directory that has no file for it."""
    with storage_errors("cannot be locked", directory):
        descriptor = os.open(directory, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # not every file system has such locks
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise _held(directory, directory_lock_holder(directory)) from error
        yield
    finally:
        os.close(descriptor)


def holder_of(log_directory: str) -> str | None:
    """The process that holds the lock of `log_directory`. Takes no lock and changes nothing.

    None if nobody does, or that cannot be found out, because `.lock` cannot be opened. Not for a process that
    holds the lock itself: closing the file would release it.
    """
    lock = os.path.join(log_directory, FileKind.LOCK)
    return record_lock_holder(lock) if os.path.exists(lock) else directory_lock_holder(log_directory)


def require_no_holder(log_directory: str, cure: str) -> None:
    """Raises `StorageError`, with the cure, if a process holds the lock of `log_directory`."""
    if (holder := holder_of(log_directory)) is not None:
        raise StorageError(f"{holder} is using this directory", file=log_directory, cure=cure)


def _held(log_directory: str, holder: str | None) -> StorageError:
    return StorageError(
        f"{holder or ANOTHER_PROCESS} holds this log directory",
        file=log_directory,
        cure="let it end or stop it first, or work on a copy of the directory",
    )
