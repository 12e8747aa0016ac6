"""The connections of one network thread, and what its poller watches them for."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable
from contextlib import suppress

from klog.server.network.connection import Connection
from klog.server.network.poller import Poller

_log = logging.getLogger("klog.server.network")


class ConnectionRegistry:
    """Used by its network thread only. `on_closed` is called for each connection that is closed."""

    def __init__(self, poller: Poller, on_closed: Callable[[Connection], None]) -> None:
        self._poller = poller
        self._on_closed = on_closed
        self._connections: dict[int, Connection] = {}
        # One lookup an event.
        self.find = self._connections.get

    def __len__(self) -> int:
        return len(self._connections)

    def all(self) -> list[Connection]:
        """The connections as they are now; the list stays as it is while connections come and go."""
        return list(self._connections.values())

    def add(self, connection: Connection, mask: int) -> None:
        """Takes a connection, and watches it for `mask`."""
        self._connections[connection.fd] = connection
        self.watch(connection, mask)

    def watch(self, connection: Connection, mask: int) -> None:
        """Watches a connection for `mask`; 0 leaves errors only."""
        if connection.mask is None:
            self._poller.register(connection.fd, mask)
        elif connection.mask != mask:
            self._poller.modify(connection.fd, mask)
        connection.mask = mask

    def unwatch(self, connection: Connection) -> None:
        """Stops watching a connection, which stays registered."""
        if connection.mask is not None:
            self._poller.unregister(connection.fd)
            connection.mask = None

    def remove(self, connection: Connection) -> None:
        """Gives up a connection that another thread is to have."""
        self.unwatch(connection)
        del self._connections[connection.fd]

    def close(self, connection: Connection) -> None:
        """Closes a connection of this thread; a second call does nothing."""
        if connection.closed:
            return
        self.remove(connection)
        if connection.in_flight is None:
            connection.give_back_memory()
        self.close_new(connection)

    def close_new(self, connection: Connection) -> None:
        """Closes a connection that was not registered yet."""
        connection.closed = True
        connection.socket.close()
        connection.count_sent()
        self._on_closed(connection)

    def disconnect(self, connection: Connection) -> None:
        """Closes a connection. If an I/O thread has it, that thread finds it broken."""
        if not connection.handed_over:
            self.close(connection)
            return
        with suppress(OSError):
            connection.socket.shutdown(socket.SHUT_RDWR)

    def disconnect_all(self) -> None:
        """Closes all connections (`disconnect`)."""
        for connection in self.all():
            self.disconnect(connection)

    def close_idle(self, now_ms: int, max_idle_ms: int) -> None:
        """Closes the connections on which nothing has happened for `max_idle_ms`; below 0 closes none. A
        connection that waits for the broker is not idle. What comes before a TLS handshake or a login is
        complete does not count: a client that sends byte by byte has this time for each of the two.
        """
        if max_idle_ms < 0:
            return
        for connection in self.all():
            idle_ms = now_ms - connection.last_active_ms
            if idle_ms > max_idle_ms and not connection.waits_for_broker():
                _log.info("Closing %s: idle for %d ms", connection, idle_ms)
                self.close(connection)

    def close_excess(self, exceeded: Callable[[str], bool]) -> None:
        """Closes connections until no listener has too many (`exceeded`), the longest unused first."""
        connections = self.all()
        if not any(map(exceeded, {each.listener.name for each in connections})):
            return
        for connection in sorted(connections, key=lambda each: each.last_active_ms):
            if not connection.is_busy() and exceeded(connection.listener.name):
                _log.info("Closing %s: more connections than allowed (max.connections)", connection)
                self.close(connection)
