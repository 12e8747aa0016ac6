"""Sends the controller's requests to brokers: a thread and a queue for each broker, one request at a time.

From Kafka's ControllerChannelManager. A `BrokerChannel` carries one request and its response.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable
from typing import Protocol

from klog.client.retry import Retry, RetryPolicy
from klog.controller.events import ResponseReceived
from klog.formats.errors import KlogError
from klog.metadata.control_requests import ControlRequest, ControlResponse
from klog.metadata.values import BrokerRegistration

_log = logging.getLogger(__name__)

RETRY_BACKOFF_MS = 100


class BrokerChannel(Protocol):
    """A connection to one broker, which is opened when it is needed and again after a failure."""

    def send(self, request: ControlRequest) -> ControlResponse:
        """Sends a request and waits for the response. Raises KlogError; the caller then sends it again."""

    def close(self) -> None:
        """Closes the connection, also while another thread waits in `send`."""


class BrokerChannels:
    """A BrokerRequestQueue over channels.

    `connect` makes a broker's channel and does not block. `on_response` is called on the broker's own thread,
    as is `on_taken`, with the broker's id and the nanoseconds that a request has waited in its queue.
    """

    def __init__(
        self,
        connect: Callable[[BrokerRegistration], BrokerChannel],
        on_response: Callable[[ResponseReceived], None],
        retry_backoff_ms: int = RETRY_BACKOFF_MS,
        on_taken: Callable[[int, int], None] = lambda broker_id, waited_ns: None,  # noqa: ARG005
    ) -> None:
        self._connect = connect
        self._on_taken = on_taken
        self._on_response = on_response
        self._retry_backoff_ms = retry_backoff_ms
        self._senders: dict[int, _Sender] = {}

    def add_broker(self, broker: BrokerRegistration) -> None:
        if broker.broker_id not in self._senders:
            self._senders[broker.broker_id] = _Sender(
                broker.broker_id,
                self._connect(broker),
                self._on_response,
                self._on_taken,
                self._retry_backoff_ms,
            )

    def remove_broker(self, broker_id: int) -> None:
        sender = self._senders.pop(broker_id, None)
        if sender is not None:
            sender.stop()

    def send(self, broker_id: int, request: ControlRequest) -> None:
        sender = self._senders.get(broker_id)
        if sender is not None:
            sender.put(request)

    def queued(self) -> dict[int, int]:
        return {broker_id: sender.queued for broker_id, sender in list(self._senders.items())}

    def close(self) -> None:
        for broker_id in list(self._senders):
            self.remove_broker(broker_id)


class _Sender:
    """The queue and the thread of one broker."""

    def __init__(
        self,
        broker_id: int,
        channel: BrokerChannel,
        on_response: Callable[[ResponseReceived], None],
        on_taken: Callable[[int, int], None],
        retry_backoff_ms: int,
    ) -> None:
        self._broker_id = broker_id
        self._channel = channel
        self._on_response = on_response
        self._on_taken = on_taken
        self._retry_policy = RetryPolicy(None, retry_backoff_ms, retry_backoff_ms)
        # Requests, and the times at which they were queued.
        self._queue: queue.SimpleQueue[tuple[ControlRequest, int] | None] = queue.SimpleQueue()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"klog-controller-to-{broker_id}", daemon=True)
        self._thread.start()

    @property
    def queued(self) -> int:
        """The number of requests that wait for the one that is on its way."""
        return self._queue.qsize()

    def put(self, request: ControlRequest) -> None:
        self._queue.put((request, time.monotonic_ns()))

    def stop(self) -> None:
        """Does not wait for the thread, which ends as soon as its channel is closed."""
        self._stopped.set()
        self._queue.put(None)
        self._channel.close()

    def _run(self) -> None:
        while (queued := self._queue.get()) is not None and not self._stopped.is_set():
            request, since_ns = queued
            self._on_taken(self._broker_id, time.monotonic_ns() - since_ns)
            response = self._send(request)
            if response is not None:
                self._on_response(ResponseReceived(self._broker_id, request, response))

    def _send(self, request: ControlRequest) -> ControlResponse | None:
        """The response; None if the broker was removed before it came."""
        retry = Retry(self._retry_policy, time.monotonic, self._stopped.wait)
        while not self._stopped.is_set():
            try:
                return self._channel.send(request)
            except Exception as error:
                # An exception of any kind: the requests after this one must still reach the broker.
                if retry.failures == 0 and not self._stopped.is_set():
                    trace = None if isinstance(error, KlogError) else error
                    kind = type(request).__name__
                    _log.warning(
                        "%s to broker %d is sent again: %s", kind, self._broker_id, error, exc_info=trace
                    )
                retry.failed(error)
        return None
