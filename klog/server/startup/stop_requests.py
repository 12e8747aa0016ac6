"""What asks a broker to stop: signals, and defects that it cannot go on with.

A signal handler runs between any two steps of the main thread, and of another handler. So it must not take a
lock that one of these may hold, as `threading.Event.set` does. `SimpleQueue.put` may be called from it.
"""

from __future__ import annotations

import atexit
import itertools
import logging
import signal
from queue import Empty, SimpleQueue
from types import FrameType
from typing import Final

_log = logging.getLogger(__name__)

_LISTEN_S: Final = 1.0


class StopRequests:
    """The requests to stop of one broker. Safe for threads and signal handlers.

    `is_asked` is set by the first request. `is_urgent` is set by a second signal or a fatal error: the broker
    then stops without waiting for other brokers. `fatal` says why the broker cannot go on.
    """

    def __init__(self) -> None:
        self.is_asked = False
        self.is_urgent = False
        self.fatal: str | None = None
        self._signals = itertools.count()
        self._asked: SimpleQueue[None] = SimpleQueue()

    def listen(self) -> None:
        """Have SIGINT, SIGTERM and SIGHUP be requests. Call it on the main thread."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self.receive)
        # SIGHUP comes when the terminal is closed. It is ignored under nohup, as in Java.
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            signal.signal(signal.SIGHUP, self.receive)
        atexit.register(_ignore_signals)

    def receive(self, number: int, _: FrameType | None = None) -> None:
        """Take a signal. If two come at once, one of them is the second."""
        name = signal.Signals(number).name
        if next(self._signals):
            self.is_urgent = True
            _log.info("%s again: stopping without waiting for other brokers", name)
        else:
            self.is_asked = True
            _log.info("%s: stopping", name)
            self._asked.put(None)

    def fail(self, why: str) -> None:
        """Stop at once, because of a fatal error."""
        if self.fatal is None:
            self.fatal = why
        self.is_urgent = self.is_asked = True
        self._asked.put(None)

    def wait(self) -> None:
        """Wait for the first request."""
        # In steps, because a wait without a timeout would miss a signal that comes just before it.
        while not self.is_asked:
            try:
                self._asked.get(timeout=_LISTEN_S)
            except Empty:
                continue


def _ignore_signals() -> None:
    """Have signals do nothing while the interpreter ends, which has begun.

    It gives up its handlers then, and a signal that comes late would kill the process. Signals that are
    ignored stay so.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
