"""Connections from this broker to others, on the listener between brokers."""

from __future__ import annotations

import secrets
import ssl
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from klog.client.connection import ReconnectingConnection
from klog.client.sasl import Login, authenticate
from klog.metadata.control_requests import ControlRequest, ControlResponse, control_response
from klog.metadata.values import BrokerRegistration
from klog.protocol.channel import SYSTEM_BUFFER, Channel
from klog.protocol.errors import AuthenticationFailedError, ConnectFailedError

_NONCE_BYTES: Final = 24


class Access(NamedTuple):
    """How this broker gets into the listener between brokers: by TLS, by a login, by both or none."""

    tls: ssl.SSLContext | None = None
    login: Login | None = None


BrokerAccess = Callable[[], Access]
"""The access that is in force when a connection is made."""


def open_access() -> Access:
    """Neither TLS nor a login."""
    return Access()


def channel_to(
    broker: BrokerRegistration,
    listener: str,
    *,
    client_id: str,
    timeout_ms: int,
    access: BrokerAccess = open_access,
    receive_buffer_bytes: int = SYSTEM_BUFFER,
) -> Channel:
    """A channel to a broker that is not open yet.

    `listener` is the listener between brokers, `access` how to get into it. Raises ConnectFailedError if the
    broker does not have the listener.
    """
    endpoint = broker.endpoint(listener)
    if endpoint is None:
        raise ConnectFailedError(f"broker {broker.broker_id} has no listener {listener}")
    found, protocol = access(), endpoint.security_protocol
    return Channel(
        endpoint.host,
        endpoint.port,
        client_id=client_id,
        timeout_ms=timeout_ms,
        tls=found.tls if protocol in ("SSL", "SASL_SSL") else None,
        authenticate=partial(_log_in, found.login) if protocol.startswith("SASL_") else None,
        receive_buffer_bytes=receive_buffer_bytes,
    )


def _log_in(login: Login | None, channel: Channel) -> int:
    """Raises ConnectFailedError: the other broker may know the password later, so it is tried again."""
    try:
        if login is None:
            raise AuthenticationFailedError(f"{channel} wants a login, and this broker has none")
        return authenticate(channel, login, secrets.token_urlsafe(_NONCE_BYTES))
    except AuthenticationFailedError as error:
        raise ConnectFailedError(f"cannot log in at {error}") from error


class ControlChannel:
    """Sends the controller's requests. Connects when there is something to send, and again after a failure.

    The arguments are those of `channel_to`; `access` is asked when a connection is made.
    """

    def __init__(
        self,
        broker: BrokerRegistration,
        listener: str,
        *,
        client_id: str,
        timeout_ms: int,
        access: BrokerAccess = open_access,
    ) -> None:
        self._connection = ReconnectingConnection(
            lambda: channel_to(broker, listener, client_id=client_id, timeout_ms=timeout_ms, access=access)
        )

    def send(self, request: ControlRequest) -> ControlResponse:
        """Send and wait for the answer. Raises ChannelError."""
        return control_response(request, self._connection.send(request))

    def close(self) -> None:
        """Close the connection. A `send` that waits in another thread fails."""
        self._connection.close()
