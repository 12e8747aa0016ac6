"""Opens a cluster by its connection settings: sockets, the system's clock and random nonces come in here."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from ipaddress import ip_address
from typing import Final

from klog.admin.settings import ClientSettings
from klog.client.cluster import Cluster
from klog.client.connection import HostPort
from klog.client.retry import Clock, Retry, RetryPolicy
from klog.client.sasl import Login, authenticate
from klog.client.waiting import until_accepted
from klog.protocol.channel import Channel

_NEW_PARTITIONS_TIMEOUT_MS: Final = 10_000
_START_TIMEOUT_MS: Final = 4_000  # a broker starts within one second, and within three on a busy machine
_NONCE_BYTES: Final = 24
_START_PAUSE_MS: Final = 200

SYSTEM_CLOCK: Final = Clock(time.monotonic, time.sleep, lambda: time.time_ns() // 1_000_000)


@contextmanager
def cluster(settings: ClientSettings) -> Iterator[Cluster]:
    """The cluster of the settings, connected to one broker.

    Waits a few seconds for a broker of this machine that does not listen yet: the command may follow its
    start. Raises ConnectFailedError, AuthenticationFailedError.
    """

    def connect(address: HostPort) -> Channel:
        return Channel(
            *address,
            client_id=settings.client_id,
            timeout_ms=settings.timeout_ms,
            tls=settings.tls,
            authenticate=None if settings.sasl is None else partial(_authenticate, settings.sasl),
        )

    client = Cluster(
        settings.bootstrap,
        connect,
        SYSTEM_CLOCK,
        timeout_ms=settings.timeout_ms,
        on_waiting=settings.on_waiting,
    )
    with closing(client):
        _wait_for_broker(settings, client.any_connection)
        yield client


def _authenticate(sasl: Login, channel: Channel) -> int:
    return authenticate(channel, sasl, secrets.token_urlsafe(_NONCE_BYTES))


def _wait_for_broker(settings: ClientSettings, connect: Callable[[], object]) -> None:
    """Call `connect` until a broker listens, for a few seconds at most. Raises what `connect` raises."""
    if not all(is_loopback(address.host) for address in settings.bootstrap):
        connect()
        return
    timeout_ms = min(_START_TIMEOUT_MS, settings.timeout_ms)
    policy = RetryPolicy(timeout_ms, longest_pause_ms=_START_PAUSE_MS)

    def tell() -> None:
        addresses = ", ".join(map(str, settings.bootstrap))
        settings.on_waiting(
            f"{addresses} refuses connections; waiting up to {timeout_ms / 1000:g} s for a broker to start"
        )

    until_accepted(connect, Retry(policy, SYSTEM_CLOCK.monotonic_s, SYSTEM_CLOCK.sleep_s), tell)


def is_loopback(host: str) -> bool:
    """Whether a host is this machine by its name or address."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def partitions_retry() -> Retry:
    """For how long to wait until brokers know new partitions."""
    policy = RetryPolicy(_NEW_PARTITIONS_TIMEOUT_MS)
    return Retry(policy, SYSTEM_CLOCK.monotonic_s, SYSTEM_CLOCK.sleep_s)
