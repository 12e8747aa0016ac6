"""An open file that closes by itself, and forcing a file to disk by its path."""

from __future__ import annotations

import os

from klog.storage.log.cold_reads import ProbedFile


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


def sync_file(path: str) -> None:
    """Force a file (or directory) to disk, with what was written to it through a mapping."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
