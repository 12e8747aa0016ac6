"""The settings of the network layer. Names, meanings and defaults are Kafka's if Kafka has them."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from klog.security.authentication.principal_rules import UNCHANGED, PrincipalRules
from klog.security.authentication.steps import Authentication
from klog.server.network.connection_traffic import DEFAULT_LIMITS, TrafficLimits

UNLIMITED = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Listener:
    """An address to listen at; port 0 lets the system choose.

    With `tls` every byte goes through it. `authentication` makes the exchange of one connection that comes
    before its first request; None opens connections at once. `principal_rules` make the names of clients of
    their certificates, if these authenticate them.
    """

    name: str
    host: str
    port: int
    tls: ssl.SSLContext | None = None
    authentication: Callable[[], Authentication] | None = None
    principal_rules: PrincipalRules = UNCHANGED

    @property
    def address(self) -> tuple[str, str, int]:
        """What its listening socket depends on: a listener with the same address keeps its socket."""
        return self.name, self.host, self.port


class ListenerLimits(NamedTuple):
    """`max.connections` and `max.connection.creation.rate` (a second) of one listener."""

    max_connections: int = UNLIMITED
    max_connection_creation_rate: int = UNLIMITED


@dataclass(frozen=True, slots=True)
class NetworkSettings:
    """`inline_request_max_bytes` is klog's own: frames above it are read and handled by an I/O thread. So are
    `bulk_threads` (how many network threads there are for connections that move many bytes),
    `bulk_read_bytes` (what such a thread reads at once), `bulk_traffic` (which connections these are) and
    `give_way_most_ms` (how long the threads of other listeners wait for those of `protected_listener`).
    `unsent_max_bytes` bounds what the system holds of a connection and cannot send yet, if the size of the
    send buffer is left to the system: without it one large answer fills megabytes, which are out of the
    processor's caches when the client reads them, and congestion control by BBR paces them with timers.

    Each listener has `network_threads` of its own, or as many as `listener_network_threads` says. One is
    enough for small requests while Python runs one thread at a time. For socket buffers, -1 leaves the size
    to the system, which grows them as a connection needs; for `queued_max_request_bytes` it is no bound. Only
    its own limits hold for `protected_listener` (in Kafka the listener between brokers), unless it is the
    only listener.
    """

    network_threads: int = 1
    listener_network_threads: Mapping[str, int] = field(default_factory=dict)
    io_threads: int = 2
    bulk_threads: int = 1
    bulk_read_bytes: int = 256 * 1024
    bulk_traffic: TrafficLimits = DEFAULT_LIMITS
    give_way_most_ms: int = 5
    queued_max_requests: int = 500
    queued_max_request_bytes: int = -1
    request_max_bytes: int = 100 * 1024 * 1024
    inline_request_max_bytes: int = 64 * 1024
    connections_max_idle_ms: int = 600_000
    failed_authentication_delay_ms: int = 100
    max_connections: int = UNLIMITED
    max_connections_per_ip: int = UNLIMITED
    max_connections_per_ip_overrides: Mapping[str, int] = field(default_factory=dict)
    max_connection_creation_rate: int = UNLIMITED
    rate_samples: int = 11
    rate_window_ms: int = 1_000
    listener_limits: Mapping[str, ListenerLimits] = field(default_factory=dict)
    protected_listener: str | None = None
    send_buffer_bytes: int = -1
    unsent_max_bytes: int = 64 * 1024
    receive_buffer_bytes: int = -1
    listen_backlog_size: int = 50
    stop_timeout_ms: int = 5_000

    def network_threads_of(self, listener: str) -> int:
        """How many network threads a listener has."""
        return self.listener_network_threads.get(listener, self.network_threads)
