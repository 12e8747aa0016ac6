"""One thread and one connection for each broker to which something is sent."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from typing import Final

from klog.client.connection import ReconnectingConnection

logger = logging.getLogger(__name__)

_STOP_S: Final = 1.0

Connect = Callable[[int], ReconnectingConnection]
"""Makes a connection to the broker of this id without opening it."""

Work = Callable[[int, ReconnectingConnection], object]
"""Sends all that waits for the broker of this id. Its errors are its own affair."""


class Worker:
    """A thread that runs `work` after each `wake`. It starts at once and ends with `stop`."""

    def __init__(self, name: str, work: Callable[[], object]) -> None:
        self._work = work
        self._woken: SimpleQueue[None] = SimpleQueue()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """Let the work be done, soon; once more if it is being done now."""
        self._woken.put(None)

    def stop(self) -> None:
        """Let the thread end when its work is done; it does not wait for that."""
        self._stopping = True
        self._woken.put(None)

    def join(self, timeout_s: float | None = None) -> bool:
        """Wait until the thread has ended, or for so long; whether it has."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while True:
            self._woken.get()
            # Before the work looks for what there is to do: what comes now is seen, or wakes again.
            while not self._woken.empty():
                self._woken.get()
            if self._stopping:
                return
            try:
                self._work()
            except Exception:
                # The rest must not wait for ever because of one defect.
                logger.exception("the work of thread %s failed", self._thread.name)


class BrokerThreads:
    """Threads that start when there is something to send and end with `stop`. Safe for threads.

    One broker that does not answer holds up nothing that goes to the others.
    """

    def __init__(self, name: str, connect: Connect, work: Work) -> None:
        self._name = name
        self._connect = connect
        self._work = work
        self._lock = threading.Lock()
        self._workers: dict[int, tuple[Worker, ReconnectingConnection]] = {}
        self._stopped = False

    def wake(self, broker_id: int) -> None:
        """There is something to send to this broker."""
        with self._lock:
            if self._stopped:
                return
            known = self._workers.get(broker_id)
            if known is None:
                connection = self._connect(broker_id)
                worker = Worker(f"{self._name}-{broker_id}", partial(self._work, broker_id, connection))
                known = self._workers[broker_id] = worker, connection
        known[0].wake()

    def stop(self) -> None:
        """End all threads; what waits for an answer fails.

        A thread that is connecting to a host that does not answer cannot be woken. It ends later, and sends
        nothing.
        """
        with self._lock:
            self._stopped = True
            workers = dict(self._workers)
        for worker, connection in workers.values():
            worker.stop()
            connection.close()
        end_s = time.monotonic() + _STOP_S
        late = [
            broker_id
            for broker_id, (worker, _) in workers.items()
            if not worker.join(max(0, end_s - time.monotonic()))
        ]
        if late:
            brokers = ", ".join(map(str, sorted(late)))
            logger.warning("%s: not waiting for broker %s, which does not answer", self._name, brokers)
