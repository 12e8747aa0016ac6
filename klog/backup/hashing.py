"""SHA-256 beside other work: hashlib computes large buffers without the interpreter lock."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable
from typing import Final

from klog.formats.checksums import Bytes
from klog.jobs.second_thread import SecondThread

# For less, handing it over takes as long as computing it.
_LEAST_BYTES: Final = 256 << 10


class BackgroundHash:
    """The SHA-256 of what `begin` gets, in its order. A buffer must not change until it was waited for."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self._second: SecondThread | None = None
        self._begun: deque[Callable[[], None]] = deque()

    def begin(self, data: Bytes) -> None:
        """Take some bytes, in another thread if they are many."""
        if len(data) < _LEAST_BYTES:
            self.wait()
            self._hash.update(data)
            return
        if self._second is None:
            self._second = SecondThread("klog-hash")
        self._begun.append(self._second.give(self._hash.update, data))

    def wait(self) -> None:
        """Until everything so far is taken."""
        self._wait_for_all_but(0)

    def wait_for_earlier(self) -> None:
        """Until all but the last bytes are taken. The thread goes on with these meanwhile."""
        self._wait_for_all_but(1)

    def hexdigest(self) -> str:
        """The hash of everything so far."""
        self.wait()
        return self._hash.hexdigest()

    def close(self) -> None:
        """End the thread."""
        if self._second is not None:
            self._second.close()

    def _wait_for_all_but(self, left: int) -> None:
        while len(self._begun) > left:
            self._begun.popleft()()
