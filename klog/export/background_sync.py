"""Syncs a file to the disk while it is still being written, so that the last fsync takes little time.

Otherwise the disk is idle while a file is computed, and the process is idle while the disk writes all of it:
for files of some ten MiB on an ordinary disk this takes twice as long.
"""

from __future__ import annotations

import os
import threading
from typing import Any, BinaryIO, Final

_STEP_BYTES: Final = 8 << 20


class BackgroundSyncedFile:
    """Writes into `file`; after every 8 MiB a thread syncs it."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._unsynced_bytes = 0
        self._thread: threading.Thread | None = None
        self._error: OSError | None = None

    def write(self, data: Any, /) -> int:  # noqa: ANN401 (any buffer)
        """Write some bytes. Raises OSError."""
        written = self._file.write(data)
        self._unsynced_bytes += written
        if self._unsynced_bytes >= _STEP_BYTES and not (self._thread and self._thread.is_alive()):
            self._file.flush()
            self._unsynced_bytes = 0
            self._thread = threading.Thread(target=self._sync)
            self._thread.start()
        return written

    def sync(self) -> None:
        """Sync everything that was written.

        Raises OSError, also that of the thread: the kernel reports a failed write only once.
        """
        self.wait()
        if self._error is not None:
            raise self._error
        self._file.flush()
        os.fsync(self._file.fileno())

    def wait(self) -> None:
        """Wait for the thread: the file must not be closed while it syncs."""
        if self._thread is not None:
            self._thread.join()

    def _sync(self) -> None:
        try:
            os.fsync(self._file.fileno())
        except OSError as error:
            self._error = error
