"""The interface through which the controller sends requests to brokers, so that decisions need no sockets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from klog.metadata.control_requests import ControlRequest
from klog.metadata.values import BrokerRegistration


class BrokerRequestQueue(Protocol):
    """Queues requests for brokers and sends each broker's one at a time, in order.

    A request is sent again until the broker answers or is removed. Requests of a removed broker are dropped.
    Answers come back as `ResponseReceived` events.
    """

    def add_broker(self, broker: BrokerRegistration) -> None:
        """Accepts requests for this broker from now on."""

    def remove_broker(self, broker_id: int) -> None:
        """Drops the broker and the requests that it has not answered."""

    def send(self, broker_id: int, request: ControlRequest) -> None:
        """Queues a request; never blocks."""

    def queued(self) -> Mapping[int, int]:
        """How many requests wait for each broker. Any thread may ask."""

    def close(self) -> None:
        """Removes all brokers, because this controller is no longer active. `add_broker` may follow later."""
