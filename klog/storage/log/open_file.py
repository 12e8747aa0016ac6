"""An open file that closes by itself, and forcing a file to disk by its path."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from typing import Final

from klog.formats.checksums import Bytes
from klog.storage.files.files import sync_directory
from klog.storage.log.cold_reads import ProbedFile

_MEMFD_CREATE: Final = getattr(os, "memfd_create", None)


class OpenFile(ProbedFile):
    """A file descriptor that closes when nothing refers to it: a fetch may still send a deleted segment."""

    __slots__ = ("descriptor", "path")

    def __init__(self, path: str, flags: int) -> None:
        super().__init__()
        self.descriptor = -1
        self.path = path
        self.descriptor = os.open(path, flags, 0o644)

    def fileno(self) -> int:
        """The descriptor."""
        return self.descriptor

    def __del__(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)


class MemoryFile(OpenFile):
    """Bytes as a file in memory (where the system has none, an unlinked one), so that they are sent like
    those of a segment. `name` is for messages. Raises `OSError`.
    """

    __slots__ = ()

    def __init__(self, name: str, data: Bytes) -> None:
        ProbedFile.__init__(self)
        self.refuses_probes = True
        self.descriptor = -1
        self.path = name
        if _MEMFD_CREATE is not None:
            self.descriptor = _MEMFD_CREATE("klog")
        else:
            self.descriptor, path = tempfile.mkstemp(prefix="klog-")
            os.unlink(path)
        left = memoryview(data)
        while left:
            left = left[os.write(self.descriptor, left) :]

    def bytes_at(self, position: int, size_bytes: int) -> bytes:
        """Some of the bytes."""
        return os.pread(self.descriptor, size_bytes, position)


def sync_file(path: str) -> None:
    """Force a file (or directory) to disk, with what was written to it through a mapping."""
    with suppress(FileNotFoundError):
        sync_directory(path)
