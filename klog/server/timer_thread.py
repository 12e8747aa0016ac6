"""The thread that ends waiting: it sleeps until the purgatories' timer has something due."""

from __future__ import annotations

import threading
from collections.abc import Callable

from klog.replication.purgatory import Timer


class TimerThread:
    """Drives one `Timer`. While nothing waits it sleeps for good; an earlier timeout wakes it."""

    def __init__(self, clock_ms: Callable[[], int]) -> None:
        self._woken = threading.Event()
        self._stopping = False
        self.timer = Timer(clock_ms, self._woken.set)
        self._thread = threading.Thread(target=self._run, name="klog-timer", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End; what waits is left waiting."""
        self._stopping = True
        self._woken.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping:
            wait_ms = self.timer.wait_ms()
            self._woken.wait(None if wait_ms is None else wait_ms / 1000)
            # Cleared before the timer is looked at: a timeout that starts now is seen, or wakes again.
            self._woken.clear()
            self.timer.advance()
