"""The controller's connection to one broker, its own included: values in, values out."""

from __future__ import annotations

import ssl

from klog.controller.control_messages import control_response, request_entity
from klog.metadata.control_requests import ControlRequest, ControlResponse
from klog.metadata.values import BrokerRegistration
from klog.protocol.channel import Channel
from klog.protocol.entity_fields import Entity
from klog.protocol.errors import ConnectFailedError, ConnectionLostError


class ControlChannel:
    """Connects when there is something to send, and again after a failure.

    `listener` is the one between brokers.
    """

    def __init__(
        self,
        broker: BrokerRegistration,
        listener: str,
        *,
        client_id: str,
        timeout_ms: int,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._listener = listener
        self._unreachable = broker.endpoint(listener) is None
        at = broker.endpoint(listener)
        host, port = ("", 0) if at is None else (at.host, at.port)
        secure = tls if at is not None and at.security_protocol == "SSL" else None
        self._channel = Channel(host, port, client_id=client_id, timeout_ms=timeout_ms, tls=secure)
        self._name = f"broker {broker.broker_id}"
        self._closed = False

    def send(self, request: ControlRequest) -> ControlResponse:
        """Send and wait for the answer. Raises `ChannelError`."""
        if self._unreachable:
            raise ConnectFailedError(f"{self._name} has no listener {self._listener}")
        entity = request_entity(request, self._listener)
        kept = self._channel.connected
        try:
            answer = self._exchange(entity)
        except ConnectionLostError:
            # Brokers close what has been idle for long, which shows at the next request only.
            if not kept or self._closed:
                raise
            answer = self._exchange(entity)
        return control_response(request, answer)

    def _exchange(self, entity: Entity) -> Entity:
        if not self._channel.connected:
            self._channel.connect()
        return self._channel.send(entity)

    def close(self) -> None:
        """Break the connection, also under a `send` that waits in another thread."""
        self._closed = True
        self._channel.close()
