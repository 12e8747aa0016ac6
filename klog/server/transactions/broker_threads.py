"""One thread and one connection for each broker to which something is sent."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Final

from klog.client.connection import ReconnectingConnection
from klog.jobs.worker import Worker

_log = logging.getLogger(__name__)

_STOP_S: Final = 1.0

Connect = Callable[[int], ReconnectingConnection]
"""Makes a connection to the broker of this id without opening it."""

NewWork = Callable[[int, ReconnectingConnection], Callable[[], float | None]]
"""Makes what sends all that waits for the broker of this id: the work of a worker. It handles all expected
errors itself.
"""


class BrokerThreads:
    """Threads that start when there is something to send and end with `stop`. Safe for threads.

    One broker that does not answer holds up nothing that goes to the others.
    """

    def __init__(self, name: str, connect: Connect, new_work: NewWork) -> None:
        self._name = name
        self._connect = connect
        self._new_work = new_work
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
                worker = Worker(f"{self._name}-{broker_id}", self._new_work(broker_id, connection))
                worker.start()
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
            _log.warning("%s: not waiting for broker %s, which does not answer", self._name, brokers)
