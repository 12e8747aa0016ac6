"""Sends what connections have queued, from their network thread."""

from __future__ import annotations

from klog.formats.errors import KlogError
from klog.server.network.connection import Connection
from klog.server.network.connection_registry import ConnectionRegistry
from klog.server.network.dispatch import log_closing
from klog.server.network.poller import READABLE, WRITABLE


class Sender:
    """Used by its network thread only."""

    def __init__(self, registry: ConnectionRegistry) -> None:
        self._registry = registry

    def send(self, connection: Connection) -> bool:
        """Sends what the socket takes; True if nothing is left and the next request may be handled.

        A connection that breaks, or that was to close after its last answer, is closed. If what follows has
        to be read from a disk (`Outbound.is_cold`) the caller gives the connection to the I/O threads.
        """
        registry = self._registry
        outbound = connection.outbound
        queued_bytes = outbound.size_bytes
        try:
            sent_all = outbound.flush(connection.socket)
        except (KlogError, OSError) as error:
            log_closing(connection, error)
            registry.close(connection)
            return False
        connection.traffic.moved_bytes += queued_bytes - outbound.size_bytes
        if not sent_all and outbound.is_cold:
            return False
        if not sent_all:
            registry.watch(connection, WRITABLE)
            return False
        if connection.unsent:
            connection.count_sent()
        if connection.closing:
            registry.close(connection)
            return False
        if connection.mask == WRITABLE:
            registry.watch(connection, READABLE)
        return connection.in_flight is None
