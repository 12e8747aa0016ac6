"""The acceptor: takes connections off the listening sockets and deals them to the network threads in turn.

Limits as in Kafka: at `max.connections` accepting waits until a connection closes; beyond
`max.connections.per.ip` a connection is closed at once.
"""

from __future__ import annotations

import logging
import socket
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import cycle
from typing import Final

from klog.server.network.connection import Connection
from klog.server.network.io_thread import prepare_for_adoption
from klog.server.network.network_thread import NetworkThread
from klog.server.network.poller import READABLE, Poller, Waker, new_poller
from klog.server.network.settings import Listener, NetworkSettings

_log = logging.getLogger("klog.server.network")

# When accepting fails (no descriptors left, mostly), how long to leave it.
_PAUSE_MS: Final = 200
_WAIT_MS: Final = 60_000


class ConnectionCounts:
    """How many connections there are, in all and by address."""

    def __init__(self, settings: NetworkSettings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._by_ip: Counter[str] = Counter()
        self.total = 0

    @property
    def full(self) -> bool:
        """Whether the server has as many connections as it may have."""
        return self.total >= self._settings.max_connections

    def add(self, ip: str) -> bool:
        """Counts a connection in, unless its address has too many."""
        limit = self._settings.max_connections_per_ip_overrides.get(ip, self._settings.max_connections_per_ip)
        with self._lock:
            if self._by_ip[ip] >= limit:
                return False
            self._by_ip[ip] += 1
            self.total += 1
            return True

    def remove(self, ip: str) -> None:
        """Counts a connection out."""
        with self._lock:
            self.total -= 1
            self._by_ip[ip] -= 1
            if not self._by_ip[ip]:
                del self._by_ip[ip]


class Acceptor:
    """Owns the listening sockets."""

    def __init__(
        self,
        settings: NetworkSettings,
        sockets: Sequence[tuple[Listener, socket.socket]],
        networks: Sequence[NetworkThread],
        counts: ConnectionCounts,
        poller_factory: Callable[[], Poller] = new_poller,
    ) -> None:
        self._settings = settings
        self._sockets = {sock.fileno(): (listener, sock) for listener, sock in sockets}
        self._next_network = cycle(networks)
        self._counts = counts
        self._poller = poller_factory()
        self._waker = Waker()
        self._stopping = False
        self._waiting_for_room = False
        self._failing = False
        self._thread = threading.Thread(target=self._run, name="klog-acceptor", daemon=True)

    def start(self) -> None:
        """Begins to accept."""
        self._thread.start()

    def connection_closed(self) -> None:
        """There may be room for another connection."""
        if self._waiting_for_room:
            self._waker.wake()

    def stop(self) -> None:
        """Stops accepting and closes the listening sockets."""
        self._stopping = True
        if self._thread.ident is not None:
            self._waker.wake()
            self._thread.join()
        for _, sock in self._sockets.values():
            sock.close()
        self._poller.close()
        self._waker.close()

    def _run(self) -> None:
        self._poller.register(self._waker.fd, READABLE)
        for fd in self._sockets:
            self._poller.register(fd, READABLE)
        timeout_ms = _WAIT_MS
        while not self._stopping:
            events = self._poller.wait(timeout_ms)
            self._waker.reset()
            timeout_ms = _WAIT_MS
            if self._room_changed() or self._waiting_for_room:
                continue
            for fd, _ in events:
                if fd in self._sockets and not self._accept(*self._sockets[fd]):
                    self._watch_listeners(0)
                    self._waiting_for_room = True
                    timeout_ms = _PAUSE_MS

    def _room_changed(self) -> bool:
        """Listens again when there is room again."""
        if not self._waiting_for_room or self._counts.full:
            return False
        self._waiting_for_room = False
        self._watch_listeners(READABLE)
        return True

    def _watch_listeners(self, mask: int) -> None:
        for fd in self._sockets:
            self._poller.modify(fd, mask)

    def _accept(self, listener: Listener, server: socket.socket) -> bool:
        """Accepts one connection; False when accepting must pause."""
        if self._counts.full:
            _log.warning("Not accepting: %d connections (max.connections)", self._counts.total)
            return False
        try:
            sock, address = server.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return True
        except OSError as error:
            if not self._failing:
                _log.warning("Cannot accept on %s: %s", listener.name, error)
            self._failing = True
            return False
        self._failing = False
        peer = (str(address[0]), int(address[1]))
        if not self._counts.add(peer[0]):
            _log.warning("Closing %s:%d on %s: too many connections from there", *peer, listener.name)
            sock.close()
            return True
        try:
            sock = self._configure(listener, sock)
        except OSError as error:
            _log.info("Closing %s:%d on %s: %s", *peer, listener.name, error)
            sock.close()
            self._counts.remove(peer[0])
            return True
        network = next(self._next_network)
        network.adopt_new(Connection(sock, listener, peer, network))
        return True

    def _configure(self, listener: Listener, sock: socket.socket) -> socket.socket:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        prepare_for_adoption(sock)
        if self._settings.send_buffer_bytes != -1:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._settings.send_buffer_bytes)
        if listener.tls is None:
            return sock
        return listener.tls.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
