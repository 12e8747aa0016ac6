"""The thread that runs the timeouts of the purgatories; it sleeps until one is due."""

from __future__ import annotations

import threading
from collections.abc import Callable

from klog.replication.purgatory import Timer


class TimerThread:
    """Drives one `Timer`. Without timeouts it sleeps; one that is due before all others wakes it."""

    def __init__(self, clock_ms: Callable[[], int]) -> None:
        self._woken = threading.Event()
        self._stopping = False
        self.timer = Timer(clock_ms, self._woken.set)
        self._thread = threading.Thread(target=self._run, name="klog-timer", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread. Timeouts that are not due are dropped."""
        self._stopping = True
        self._woken.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping:
            wait_ms = self.timer.wait_ms()
            self._woken.wait(None if wait_ms is None else wait_ms / 1000)
            # Cleared before the timer is read: a timeout that starts now is either seen, or wakes again.
            self._woken.clear()
            self.timer.advance()
