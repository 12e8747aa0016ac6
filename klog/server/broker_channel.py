"""The controller's connection to one broker, its own included: values in, values out."""

from __future__ import annotations

import ssl
from collections.abc import Callable

from klog.metadata.control_requests import ControlRequest, ControlResponse, control_response
from klog.metadata.values import BrokerRegistration
from klog.protocol.channel import Channel
from klog.protocol.entity_fields import Entity
from klog.protocol.errors import ConnectFailedError, ConnectionLostError


class ControlChannel:
    """Connects when there is something to send, and again after a failure.

    `listener` is the one between brokers, `tls` what is in force there when a connection is made.
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
        self._at = broker.endpoint(listener)
        self._client_id = client_id
        self._timeout_ms = timeout_ms
        self._tls = tls
        self._channel: Channel | None = None
        self._name = f"broker {broker.broker_id}"
        self._closed = False

    def send(self, request: ControlRequest) -> ControlResponse:
        """Send and wait for the answer. Raises `ChannelError`."""
        kept = self._channel is not None and self._channel.connected
        try:
            answer = self._exchange(request)
        except ConnectionLostError:
            # Brokers close what has been idle for long, which shows at the next request only.
            if not kept or self._closed:
                raise
            answer = self._exchange(request)
        return control_response(request, answer)

    def _exchange(self, request: ControlRequest) -> Entity:
        if self._channel is None or not self._channel.connected:
            self._channel = self._new_channel()
            self._channel.connect()
        return self._channel.send(request)

    def _new_channel(self) -> Channel:
        if self._at is None:
            raise ConnectFailedError(f"{self._name} has no listener {self._listener}")
        tls = self._tls() if self._at.security_protocol == "SSL" else None
        return Channel(
            self._at.host, self._at.port, client_id=self._client_id, timeout_ms=self._timeout_ms, tls=tls
        )

    def close(self) -> None:
        """Break the connection, also under a `send` that waits in another thread."""
        self._closed = True
        if self._channel is not None:
            self._channel.close()
