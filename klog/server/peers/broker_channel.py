"""Connections from this broker to others, on the listener between brokers."""

from __future__ import annotations

import ssl
from collections.abc import Callable

from klog.client.connection import ReconnectingConnection
from klog.metadata.control_requests import ControlRequest, ControlResponse, control_response
from klog.metadata.values import BrokerRegistration
from klog.protocol.channel import SYSTEM_BUFFER, Channel
from klog.protocol.errors import ConnectFailedError

Tls = Callable[[], ssl.SSLContext | None]


def no_tls() -> None:
    """No TLS context."""


def channel_to(
    broker: BrokerRegistration,
    listener: str,
    *,
    client_id: str,
    timeout_ms: int,
    tls: Tls = no_tls,
    keeps_buffer: bool = False,
    receive_buffer_bytes: int = SYSTEM_BUFFER,
) -> Channel:
    """A channel to a broker that is not open yet.

    `listener` is the listener between brokers. `tls` gives the TLS context that is in force there. Raises
    ConnectFailedError if the broker does not have the listener.
    """
    endpoint = broker.endpoint(listener)
    if endpoint is None:
        raise ConnectFailedError(f"broker {broker.broker_id} has no listener {listener}")
    context = tls() if endpoint.security_protocol == "SSL" else None
    return Channel(
        endpoint.host,
        endpoint.port,
        client_id=client_id,
        timeout_ms=timeout_ms,
        tls=context,
        keeps_buffer=keeps_buffer,
        receive_buffer_bytes=receive_buffer_bytes,
    )


class ControlChannel:
    """Sends the controller's requests. Connects when there is something to send, and again after a failure.

    The arguments are those of `channel_to`; `tls` is asked when a connection is made.
    """

    def __init__(
        self,
        broker: BrokerRegistration,
        listener: str,
        *,
        client_id: str,
        timeout_ms: int,
        tls: Tls = no_tls,
    ) -> None:
        self._connection = ReconnectingConnection(
            lambda: channel_to(broker, listener, client_id=client_id, timeout_ms=timeout_ms, tls=tls)
        )

    def send(self, request: ControlRequest) -> ControlResponse:
        """Send and wait for the answer. Raises ChannelError."""
        return control_response(request, self._connection.send(request))

    def close(self) -> None:
        """Close the connection. A `send` that waits in another thread fails."""
        self._connection.close()
