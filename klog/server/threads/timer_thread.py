"""The thread that runs the timeouts of the purgatories; it sleeps until one is due."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from klog.jobs.worker import Worker
from klog.replication.purgatory import Timer

_RETRY_S: Final = 0.1


class TimerThread:
    """Drives one `Timer`. Without timeouts it sleeps; one that is due before all others wakes it."""

    def __init__(self, clock_ms: Callable[[], int]) -> None:
        self._worker = Worker("klog-timer", self._advance, retry_s=_RETRY_S)
        self.timer = Timer(clock_ms, self._worker.wake)

    def start(self) -> None:
        """Start the thread."""
        self._worker.start()

    def stop(self) -> None:
        """Stop the thread. Timeouts that are not due are dropped."""
        self._worker.stop()
        self._worker.join()

    def _advance(self) -> float | None:
        self.timer.advance()
        wait_ms = self.timer.wait_ms()
        return None if wait_ms is None else wait_ms / 1000
