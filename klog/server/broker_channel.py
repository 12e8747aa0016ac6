"""Sends the controller's requests to one broker."""

from __future__ import annotations

import ssl
from collections.abc import Callable

from klog.client.connection import ReconnectingConnection
from klog.metadata.control_requests import ControlRequest, ControlResponse, control_response
from klog.metadata.values import BrokerRegistration
from klog.protocol.channel import Channel
from klog.protocol.errors import ConnectFailedError


class ControlChannel:
    """Connects when there is something to send, and again after a failure.

    `listener` is the listener between brokers. `tls` gives the TLS context that is in force there when a
    connection is made.
    """

    def __init__(
        self,
        broker: BrokerRegistration,
        listener: str,
        *,
        client_id: str,
        timeout_ms: int,
        tls: Callable[[], ssl.SSLContext | None] = lambda: None,
    ) -> None:
        self._listener = listener
        self._endpoint = broker.endpoint(listener)
        self._client_id = client_id
        self._timeout_ms = timeout_ms
        self._tls = tls
        self._name = f"broker {broker.broker_id}"
        self._connection = ReconnectingConnection(self._new_channel)

    def send(self, request: ControlRequest) -> ControlResponse:
        """Send and wait for the answer. Raises ChannelError."""
        return control_response(request, self._connection.send(request))

    def _new_channel(self) -> Channel:
        endpoint = self._endpoint
        if endpoint is None:
            raise ConnectFailedError(f"{self._name} has no listener {self._listener}")
        tls = self._tls() if endpoint.security_protocol == "SSL" else None
        return Channel(
            endpoint.host, endpoint.port, client_id=self._client_id, timeout_ms=self._timeout_ms, tls=tls
        )

    def close(self) -> None:
        """Close the connection. A `send` that waits in another thread fails."""
        self._connection.close()
