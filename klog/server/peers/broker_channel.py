"""Connections from this broker to others, on the listener between brokers."""

from __future__ import annotations

import secrets
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

from klog.client.connection import ReconnectingConnection
from klog.client.sasl import Login, authenticate
from klog.metadata.cache import MetadataCache
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


@dataclass(frozen=True, slots=True)
class Peers:
    """How this broker reaches others: over the `listener` between brokers, at the addresses in `cache`."""

    broker_id: int
    cache: MetadataCache
    listener: str
    access: BrokerAccess = Access

    def registration(self, broker_id: int) -> BrokerRegistration:
        """A live broker. Raises ConnectFailedError if there is none of this id."""
        broker = self.cache.snapshot.brokers.get(broker_id)
        if broker is None:
            raise ConnectFailedError(f"broker {broker_id} is not alive")
        return broker

    def channel_to(
        self,
        broker: BrokerRegistration,
        client_id: str,
        timeout_ms: int,
        receive_buffer_bytes: int = SYSTEM_BUFFER,
    ) -> Channel:
        """A channel to a broker that is not open yet.

        Raises ConnectFailedError if the broker does not have the listener.
        """
        endpoint = broker.endpoint(self.listener)
        if endpoint is None:
            raise ConnectFailedError(f"broker {broker.broker_id} has no listener {self.listener}")
        found, protocol = self.access(), endpoint.security_protocol
        return Channel(
            endpoint.host,
            endpoint.port,
            client_id=client_id,
            timeout_ms=timeout_ms,
            tls=found.tls if protocol in ("SSL", "SASL_SSL") else None,
            authenticate=partial(_log_in, found.login) if protocol.startswith("SASL_") else None,
            receive_buffer_bytes=receive_buffer_bytes,
        )

    def connection_to(
        self, broker: BrokerRegistration, client_id: str, timeout_ms: int
    ) -> ReconnectingConnection:
        """A connection that is opened when there is something to send, and again after a failure."""
        return ReconnectingConnection(lambda: self.channel_to(broker, client_id, timeout_ms))


def _log_in(login: Login | None, channel: Channel) -> int:
    """Raises ConnectFailedError: the other broker may know the password later, so it is tried again."""
    try:
        if login is None:
            raise AuthenticationFailedError(f"{channel} wants a login, and this broker has none")
        return authenticate(channel, login, secrets.token_urlsafe(_NONCE_BYTES))
    except AuthenticationFailedError as error:
        raise ConnectFailedError(f"cannot log in at {error}") from error
