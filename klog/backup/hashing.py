"""SHA-256 beside other work: hashlib computes large buffers without the interpreter lock."""

from __future__ import annotations

import hashlib
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final

from klog.formats.checksums import Bytes

# For less, handing it over takes as long as computing it.
_LEAST_BYTES: Final = 256 << 10


class BackgroundHash:
    """The SHA-256 of what `begin` gets, in its order. A buffer must not change until `wait`."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self._pool: ThreadPoolExecutor | None = None
        self._begun: Future[None] | None = None

    def begin(self, data: Bytes) -> None:
        """Take some bytes, in another thread if they are many."""
        self.wait()
        if len(data) < _LEAST_BYTES:
            self._hash.update(data)
            return
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, thread_name_prefix="klog-hash")
        self._begun = self._pool.submit(self._hash.update, data)

    def wait(self) -> None:
        """Until everything so far is taken."""
        if self._begun is not None:
            self._begun.result()
            self._begun = None

    def hexdigest(self) -> str:
        """The hash of everything so far."""
        self.wait()
        return self._hash.hexdigest()

    def close(self) -> None:
        """End the thread."""
        if self._pool is not None:
            self._pool.shutdown()
