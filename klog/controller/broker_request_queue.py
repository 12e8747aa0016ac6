"""Where the controller's requests go: an interface, so that decisions need no sockets."""

from __future__ import annotations

from typing import Protocol

from klog.metadata.control_requests import ControlRequest
from klog.metadata.values import BrokerRegistration


class BrokerRequestQueue(Protocol):
    """Takes requests for brokers. Each broker's are sent one at a time, in order, and again until it answers
    or is removed; what is not sent by then is dropped. Answers come back as `ResponseReceived` events."""

    def add_broker(self, broker: BrokerRegistration) -> None:
        """From now on requests for this broker are sent."""

    def remove_broker(self, broker_id: int) -> None:
        """The broker is gone, and with it what it was still to be told."""

    def send(self, broker_id: int, request: ControlRequest) -> None:
        """Queues a request; never blocks."""

    def close(self) -> None:
        """Removes all brokers: the reign is over. `add_broker` may follow in a later one."""
