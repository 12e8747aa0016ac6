"""What the network layer can be told. Names, meanings and defaults are Kafka's where Kafka has them."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field

UNLIMITED = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Listener:
    """An address to listen at; port 0 lets the system choose. With `tls` every byte goes through it."""

    name: str
    host: str
    port: int
    tls: ssl.SSLContext | None = None


@dataclass(frozen=True, slots=True)
class NetworkSettings:
    """`inline_request_max_bytes` is klog's own: frames above it are read and handled by an I/O thread.

    A network thread serves all listeners (Kafka counts them per listener); one is enough while Python runs
    one thread at a time. Socket buffers of -1 leave the size to the system, which grows them as the
    connection needs.
    """

    network_threads: int = 1
    io_threads: int = 2
    queued_max_requests: int = 500
    request_max_bytes: int = 100 * 1024 * 1024
    inline_request_max_bytes: int = 64 * 1024
    connections_max_idle_ms: int = 600_000
    max_connections: int = UNLIMITED
    max_connections_per_ip: int = UNLIMITED
    max_connections_per_ip_overrides: Mapping[str, int] = field(default_factory=dict)
    send_buffer_bytes: int = -1
    receive_buffer_bytes: int = -1
    listen_backlog_size: int = 50
    stop_timeout_ms: int = 5_000
