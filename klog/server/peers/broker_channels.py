"""Sends the controller's requests to brokers: a thread for each broker, which runs a `ControlDriver`.

From Kafka's ControllerChannelManager.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from klog.client.connection import ReconnectingConnection
from klog.controller.events import ResponseReceived
from klog.drivers.control_requests import RETRY_BACKOFF_MS, ControlDriver, QueuedRequest
from klog.metadata.control_requests import ControlRequest, ControlResponse, control_response
from klog.metadata.values import BrokerRegistration
from klog.server.threads.driver_thread import DriverThread, Reply
from klog.storage.log.scheduler import monotonic_ms

_RETRY_S: Final = RETRY_BACKOFF_MS / 1000


@dataclass(slots=True, eq=False)
class BrokerChannels:
    """A BrokerRequestQueue over channels.

    `connect` makes the connection to a broker and does not block. `on_response` is called on the broker's own
    thread, as is `on_taken`, with the broker's id and the nanoseconds that a request has waited in its queue.
    """

    connect: Callable[[BrokerRegistration], ReconnectingConnection]
    on_response: Callable[[ResponseReceived], None]
    retry_backoff_ms: int = RETRY_BACKOFF_MS
    on_taken: Callable[[int, int], None] = lambda broker_id, waited_ns: None  # noqa: ARG005
    _senders: dict[int, _Sender] = field(default_factory=dict, init=False)

    def add_broker(self, broker: BrokerRegistration) -> None:
        broker_id = broker.broker_id
        if broker_id not in self._senders:

            def taken(queued: QueuedRequest) -> None:
                self.on_taken(broker_id, time.monotonic_ns() - queued.queued_ns)

            driver = ControlDriver(broker_id, self.on_response, taken, self.retry_backoff_ms)
            self._senders[broker_id] = _Sender(broker_id, driver, self.connect(broker))

    def remove_broker(self, broker_id: int) -> None:
        sender = self._senders.pop(broker_id, None)
        if sender is not None:
            sender.stop()

    def send(self, broker_id: int, request: ControlRequest) -> None:
        sender = self._senders.get(broker_id)
        if sender is not None:
            sender.driver.put(request, time.monotonic_ns())

    def queued(self) -> dict[int, int]:
        return {broker_id: sender.driver.queued for broker_id, sender in list(self._senders.items())}

    def close(self) -> None:
        for broker_id in list(self._senders):
            self.remove_broker(broker_id)


class _Sender:
    """The driver and the thread of one broker."""

    def __init__(self, broker_id: int, driver: ControlDriver, connection: ReconnectingConnection) -> None:
        self.driver = driver
        self._connection = connection
        self._thread = DriverThread(
            f"klog-controller-to-{broker_id}", driver, self._send, monotonic_ms, retry_s=_RETRY_S
        )
        self._thread.start()

    def stop(self) -> None:
        """Does not wait for the thread, which ends as soon as its connection is closed."""
        self._thread.stop()
        self._connection.close()

    def _send(self, queued: QueuedRequest, reply: Reply[ControlResponse]) -> None:
        try:
            reply(control_response(queued.request, self._connection.send(queued.request)))
        except Exception as error:
            # An exception of any kind: the request is sent again, and the driver logs the first failure.
            reply(error)
