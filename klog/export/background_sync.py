"""A file whose bytes go to the disk while it is still being written, so that its fsync finds little to do.

Otherwise the disk idles while a file is computed, and the process idles while the disk takes all of it at
once: as long again, for files of some ten MiB on an ordinary disk.
"""

from __future__ import annotations

import os
import threading
from typing import Any, BinaryIO, Final

_STEP_BYTES: Final = 8 << 20


class BackgroundSyncedFile:
    """Writes into `file`; every 8 MiB a thread has the disk take what is there."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._unsynced_bytes = 0
        self._thread: threading.Thread | None = None
        self._error: OSError | None = None

    def write(self, data: Any, /) -> int:  # noqa: ANN401 (any buffer)
        """Take some bytes. Raises OSError."""
        written = self._file.write(data)
        self._unsynced_bytes += written
        if self._unsynced_bytes >= _STEP_BYTES and not (self._thread and self._thread.is_alive()):
            self._file.flush()
            self._unsynced_bytes = 0
            self._thread = threading.Thread(target=self._sync)
            self._thread.start()
        return written

    def sync(self) -> None:
        """Have the disk hold everything. Raises OSError, also the thread's: the kernel tells of it once."""
        self.resolve_decoding()
        if self._error is not None:
            raise self._error
        self._file.flush()
        os.fsync(self._file.fileno())

    def resolve_decoding(self) -> None:
        """Wait for the thread: the file must not be closed under it."""
        if self._thread is not None:
            self._thread.join()

    def _sync(self) -> None:
        try:
            os.fsync(self._file.fileno())
        except OSError as error:
            self._error = error
