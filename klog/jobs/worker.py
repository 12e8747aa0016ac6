"""A named thread that does its work when it is woken or when time has passed, until it is stopped."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue

_log = logging.getLogger(__name__)

Work = Callable[[], float | None]
"""Does what there is to do. Returns after how many seconds to do it again unless `wake` comes before; None if
only `wake` does.
"""


class Worker:
    """Calls `work` after each `wake`. `wake` and `stop` are safe for threads, also before `start`.

    An unexpected error of `work` is logged, because the rest must not wait for ever because of one defect.
    The work is done again after `retry_s`; None: at the next `wake`.
    """

    def __init__(self, name: str, work: Work, *, retry_s: float | None = None) -> None:
        self.name = name
        self._work = work
        self._retry_s = retry_s
        self._woken: SimpleQueue[None] = SimpleQueue()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread. It waits for the first `wake`."""
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    @property
    def is_stopping(self) -> bool:
        """Whether `stop` was called; work that takes long looks at it."""
        return self._stopping

    def wake(self) -> None:
        """Let the work be done, soon; once more if it is being done now."""
        # One token is enough: it is taken before the work looks for what there is to do.
        if self._woken.empty():
            self._woken.put(None)

    def stop(self) -> None:
        """Let the thread end when its work is done; it does not wait for that."""
        self._stopping = True
        self._woken.put(None)

    def join(self, timeout_s: float | None = None) -> bool:
        """Wait until the thread has ended, or for so long; whether it has.

        Does not wait on the thread itself, nor for one that was not started.
        """
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        wait_s: float | None = None
        while True:
            self._wait(wait_s)
            if self._stopping:
                return
            try:
                wait_s = self._work()
            except Exception:
                _log.exception("thread %s goes on after an unexpected error", self.name)
                wait_s = self._retry_s

    def _wait(self, wait_s: float | None) -> None:
        """Wait for a `wake`, or for so long. What comes after it is seen by the work, or wakes again."""
        try:
            self._woken.get(timeout=wait_s)
            while not self._woken.empty():
                self._woken.get()
        except Empty:
            pass


NewWorker = Callable[..., Worker]
"""Makes a worker of a name, its work and `retry_s`, as `Worker` does."""
