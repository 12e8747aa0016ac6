"""Sends this broker's requests to the controller: a thread that runs `ControllerRequests`."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from klog.client.connection import ReconnectingConnection
from klog.drivers.controller_requests import (
    Build,
    ControllerRequests,
    ForController,
    Reply,
    ToBroker,
    has_moved,
)
from klog.formats.errors import KlogError
from klog.metadata.cache import ClusterSnapshot
from klog.metadata.values import BrokerRegistration
from klog.protocol.entity_fields import Entity
from klog.protocol.errors import ConnectionLostError, UnsupportedApiError
from klog.server.threads.driver_thread import DriverThread, asking

_STOP_S: Final = 1.0  # it may be connecting to a host that does not answer


class ToController:
    """A queue of requests to the controller. Safe for threads.

    `connect` makes a connection to a broker without opening it. `clock_ms` is never set back.
    """

    def __init__(
        self,
        snapshot: Callable[[], ClusterSnapshot],
        connect: Callable[[BrokerRegistration], ReconnectingConnection],
        clock_ms: Callable[[], int],
    ) -> None:
        self._connect = connect
        self._clock_ms = clock_ms
        self._requests = ControllerRequests(snapshot)
        self._thread = DriverThread("klog-to-controller", self._requests, asking(self._ask), clock_ms)
        # Guards the connection, which `stop` closes while the thread uses it.
        self._lock = threading.Lock()
        self._is_stopped = False
        self._to: BrokerRegistration | None = None
        self._connection: ReconnectingConnection | None = None

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread, and the request that waits for its answer. What is queued gets no reply."""
        self._thread.stop()
        with self._lock:
            self._is_stopped = True
        self._forget()
        self._thread.worker.join(_STOP_S)

    def send(self, api_key: int, build: Build, reply: Reply, *, timeout_ms: int | None = None) -> None:
        """Send a request; `reply` is called once, with its answer, on the sending thread.

        Without a timeout the request is sent until the controller answers. With one, `reply` is given a
        `RequestTimeoutError` if there is no answer by then, unless an attempt is on its way: its own timeout
        ends that. If the controller does not know the API, `reply` is given `UnsupportedApiError`.
        """
        deadline_ms = None if timeout_ms is None else self._clock_ms() + timeout_ms
        with self._thread.lock:
            self._requests.put(ForController(api_key, build, reply, deadline_ms))

    # -- on the thread ---------------------------------------------------------------------------------------

    def _ask(self, request: ToBroker) -> Entity:
        try:
            connection, wanted = self._connection_to(request.broker), request.wanted
            answer = connection.send(wanted.build(connection.version_of(wanted.api_key)))
        except UnsupportedApiError:
            raise
        except KlogError:
            self._forget()
            raise
        if has_moved(answer):
            self._forget()
        return answer

    def _connection_to(self, broker: BrokerRegistration) -> ReconnectingConnection:
        with self._lock:
            connection = self._connection
        if connection is None or broker != self._to:
            self._forget()
            with self._lock:
                if self._is_stopped:
                    raise ConnectionLostError("this broker stops")
                connection = self._connection = self._connect(broker)
                self._to = broker
        return connection

    def _forget(self) -> None:
        with self._lock:
            connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
