"""A thread that copies partitions from one leader broker over a connection of its own.

Rules: Kafka's `ReplicaFetcherBlockingSend`. `FetchDriver` decides what is sent. The driver's lock is held
while logs change, not while the leader answers: so `add` and `remove` wait for an append at most, and after
`remove` nothing is appended any more.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping

from klog.client.connection import Connection
from klog.drivers.fetching import FetchDriver
from klog.formats.names import TopicPartition
from klog.protocol.errors import ChannelError, ConnectionLostError
from klog.replication.fetching.values import FetcherAnswer, FetcherRequest, FetchStart
from klog.server.fetching.requests import send
from klog.server.threads.driver_thread import DriverThread, asking

_log = logging.getLogger(__name__)

Connect = Callable[[], Connection]
"""Makes a connection to the leader's broker, at its present address, without opening it.

Raises ChannelError if the broker is not known.
"""


class FetcherThread:
    """Starts with `start` and ends with `stop`. `requests` counts what it sends; `driver` is to be read."""

    def __init__(
        self,
        name: str,
        driver: FetchDriver,
        connect: Connect,
        clock_ms: Callable[[], int],
        request_timeout_ms: int,
    ) -> None:
        """`clock_ms` is never set back."""
        self.name = name
        self.requests = 0
        self.driver = driver
        self._connect = connect
        self._request_timeout_ms = request_timeout_ms
        self._connection: Connection | None = None
        self._closings = 0  # a connection that is being opened cannot be closed: it is when it is open
        self._is_connected = True  # as far as the operator has been told
        self._thread = DriverThread(name, driver, asking(self._ask), clock_ms)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.worker.is_alive

    def add(self, starts: Mapping[TopicPartition, FetchStart]) -> None:
        """Copy these partitions, too."""
        with self._thread.lock:
            self.driver.add(starts)

    def remove(self, keys: Iterable[TopicPartition]) -> dict[TopicPartition, FetchStart]:
        """Stop copying partitions; returns how far they are."""
        with self._thread.lock:
            return self.driver.remove(keys)

    def remove_all(self) -> dict[TopicPartition, FetchStart]:
        """Stop copying all partitions; returns how far they are."""
        with self._thread.lock:
            return self.driver.remove_all()

    def reconnect(self) -> None:
        """The broker has another address: what waits for an answer from the old one fails."""
        self._closings += 1
        connection = self._connection
        if connection is not None:
            connection.close()

    def stop(self) -> None:
        """Let the thread end; it does not wait for that."""
        self._thread.stop()
        self.reconnect()

    def join(self, timeout_s: float | None = None) -> None:
        """Wait until the thread has ended."""
        self._thread.worker.join(timeout_s)

    # -- on the thread ---------------------------------------------------------------------------------------

    def _ask(self, request: FetcherRequest) -> FetcherAnswer:
        leader_id = self.driver.fetcher.leader_id
        try:
            connection = self._connected()
            self.requests += 1
            answer = send(connection, request, self._request_timeout_ms)
        except ChannelError as error:
            if self._is_connected and not self._thread.worker.is_stopping:
                self._is_connected = False
                _log.warning("%s waits for broker %d: %s", self.name, leader_id, error)
            self.reconnect()
            raise
        if not self._is_connected:
            self._is_connected = True
            _log.info("%s copies from broker %d again", self.name, leader_id)
        return answer

    def _connected(self) -> Connection:
        connection = self._connection
        if connection is None or not connection.connected:
            closings = self._closings
            self._connection = connection = self._connect()
            connection.connect()
            if closings != self._closings or self._thread.worker.is_stopping:
                connection.close()
                raise ConnectionLostError("this side has closed the connection")
        return connection
