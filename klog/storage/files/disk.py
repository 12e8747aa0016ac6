"""The changes that recovery makes to a disk, behind one small interface that tests can make fail.

Each change is durable when its method returns (fsync of file and directory), so the order of calls is the
order on disk.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Iterator
from typing import Final

from klog.storage.files.files import storage_errors, sync_directory, write_atomically

_COPY_BYTES: Final = 1 << 20
_NO_LINKS: Final = frozenset({errno.EXDEV, errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK})


class Disk:
    """Changes files. All methods raise `StorageError`. All may be repeated after a crash.

    With `syncs_derived` false the files that recovery can make anew are not forced to disk one by one. The
    caller forces all to disk before it relies on them.
    """

    def __init__(self, *, syncs_derived: bool = True) -> None:
        self._syncs_derived = syncs_derived

    def space_below(self, path: str, other: str) -> tuple[int, bool]:
        """Free bytes where `path` is or will be, and whether `other` is on the same file system."""
        while not os.path.isdir(path) and path != os.path.dirname(path):
            path = os.path.dirname(path)
        with storage_errors("cannot be found", path):
            found = os.statvfs(path)
            return found.f_bavail * found.f_frsize, os.stat(path).st_dev == os.stat(other).st_dev

    def make_directories(self, path: str) -> None:
        """Create a directory and its missing parents."""
        with storage_errors("cannot be created", path):
            os.makedirs(path, exist_ok=True)
            sync_directory(os.path.dirname(path) or ".")

    def move(self, source: str, target: str) -> None:
        """Move a file. If the target is on another file system, the file is copied, then the source is
        removed.
        """
        with storage_errors("cannot be moved", source):
            try:
                os.rename(source, target)
            except OSError as error:
                if error.errno != errno.EXDEV:
                    raise
                _copy(source, target)
                os.unlink(source)
            sync_directory(os.path.dirname(target))
            sync_directory(os.path.dirname(source))

    def remove(self, path: str) -> None:
        """Remove a file."""
        with storage_errors("cannot be removed", path):
            os.unlink(path)
            if self._syncs_derived:
                sync_directory(os.path.dirname(path))

    def preserve(self, source: str, target: str) -> None:
        """Keep the present content of a file under another name too, by a link or else a copy."""
        with storage_errors("cannot be kept", source):
            try:
                os.link(source, target)
            except OSError as error:
                if error.errno not in _NO_LINKS:
                    raise
                _copy(source, target)
            sync_directory(os.path.dirname(target))

    def save_tail(self, source: str, start_bytes: int, target: str) -> None:
        """Copy the content of a file from `start_bytes` on into a new file."""
        with storage_errors("cannot be saved", source):
            _copy(source, target, start_bytes)
            sync_directory(os.path.dirname(target))

    def save_zeros(self, size_bytes: int, target: str) -> None:
        """Create a file of zeros; it is sparse if the file system supports that."""
        part = f"{target}.{os.getpid()}.tmp"
        with storage_errors("cannot be saved", target):
            with open(part, "xb") as new:
                new.truncate(size_bytes)
                os.fsync(new.fileno())
            os.rename(part, target)
            sync_directory(os.path.dirname(target))

    def copy_part(self, source: str, start_bytes: int, end_bytes: int, target: str) -> None:
        """Write a part of a file to `target`, replacing its content."""

        def parts() -> Iterator[bytes]:
            with open(source, "rb") as file:
                file.seek(start_bytes)
                left = end_bytes - start_bytes
                while left and (part := file.read(min(left, _COPY_BYTES))):
                    left -= len(part)
                    yield part

        write_atomically(target, parts())

    def truncate(self, path: str, size_bytes: int) -> None:
        """Cut a file to `size_bytes`. A link is replaced by a copy: what it leads to belongs to others."""
        if os.path.islink(path):
            self.copy_part(path, 0, size_bytes, path)
            return
        with storage_errors("cannot be truncated", path), open(path, "rb+", buffering=0) as file:
            file.truncate(size_bytes)
            os.fsync(file.fileno())

    def replace(self, path: str, data: bytes) -> None:
        """Replace the content of `path` with `data`."""
        write_atomically(path, data)

    def replace_derived(self, path: str, data: bytes) -> None:
        """Replace the content of a file that can be made anew from the records."""
        if self._syncs_derived:
            self.replace(path, data)
        else:
            write_atomically(path, data, sync=False)


def _copy(source: str, target: str, start_bytes: int = 0) -> None:
    """A durable copy. It gets its name when it is complete."""
    part = f"{target}.{os.getpid()}.tmp"
    try:
        with open(source, "rb") as old, open(part, "xb") as new:
            old.seek(start_bytes)
            shutil.copyfileobj(old, new, _COPY_BYTES)
            new.flush()
            shutil.copystat(source, part)
            os.fsync(new.fileno())
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(part)
        raise
    os.rename(part, target)
