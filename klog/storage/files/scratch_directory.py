"""Directories for files that nobody needs after the process, in the directory for temporary files.

A process that is killed leaves its directory. The next one that makes such a directory removes it: a lock in
it says whether its process still runs.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from klog.formats.errors import StorageError
from klog.storage.files.files import storage_errors

_LOCK: Final = "lock"


@contextmanager
def scratch_directory(prefix: str) -> Iterator[str]:
    """A new directory whose name begins with `prefix`, which is removed at the end. Raises `StorageError`.

    Directories of this user with this prefix whose processes were killed are removed first.
    """
    parent = tempfile.gettempdir()
    with storage_errors("no directory can be made in it", parent):
        _remove_left(parent, prefix)
        path = tempfile.mkdtemp(prefix=prefix, dir=parent)
        lock = _locked(path)
    if lock is None:
        raise StorageError("was removed while it was made", file=path, cure="run the command again")
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(lock)


def _remove_left(parent: str, prefix: str) -> None:
    for name in os.listdir(parent):
        path = os.path.join(parent, name)
        if not name.startswith(prefix) or not os.path.exists(os.path.join(path, _LOCK)):
            continue
        with suppress(OSError):
            found = os.lstat(path)
            if found.st_uid == os.geteuid() and (lock := _locked(path)) is not None:
                shutil.rmtree(path, ignore_errors=True)
                os.close(lock)


def _locked(path: str) -> int | None:
    """The descriptor of the lock of a directory, None if another process holds it or has removed it."""
    file = os.path.join(path, _LOCK)
    lock = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        return None
    if not os.path.exists(file):
        os.close(lock)
        return None
    return lock
