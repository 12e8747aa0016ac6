"""The acceptor: accepts connections and gives them to the network threads in turn.

The limits are Kafka's. At `max.connections` the acceptor waits until a connection closes. Beyond
`max.connection.creation.rate` it waits until the rate has come down. A connection beyond
`max.connections.per.ip` is closed at once. Unlike in Kafka, connections leave some file descriptors to the
logs: a segment that cannot be opened takes its log directory offline, so a client that only opens connections
could bring down the broker.
"""

from __future__ import annotations

import logging
import socket
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from klog.server.network.connection import Connection
from klog.server.network.connection_limits import ConnectionCounts
from klog.server.network.io_thread import bound_blocking_reads
from klog.server.network.network_thread import NetworkThread
from klog.server.network.page_cache import IsCached, is_cached
from klog.server.network.poller import READABLE, Poller, Waker, new_poller
from klog.server.network.settings import Listener, NetworkSettings
from klog.storage.log.descriptors import most_descriptors, spare_descriptors

_log = logging.getLogger("klog.server.network")

# How long to wait before accepting again after it has failed, mostly because no descriptors are left.
_PAUSE_MS: Final = 200
_WAIT_MS: Final = 60_000
# Linux and macOS have it.
_UNSENT_BOUND: Final[int | None] = getattr(socket, "TCP_NOTSENT_LOWAT", None)

Sockets = Sequence[tuple[Listener, socket.socket]]


@dataclass(slots=True)
class _ListeningSocket:
    """While it is `paused` nothing is accepted: until `resume_ms`, or, if that is None, until the number of
    connections is below its limit. `charged` says that the next connection is already counted in the rates.
    """

    listener: Listener
    socket: socket.socket
    paused: bool = False
    resume_ms: int | None = None
    charged: bool = False


class Acceptor:
    """Owns the listening sockets."""

    def __init__(
        self,
        settings: NetworkSettings,
        sockets: Sockets,
        networks: Sequence[NetworkThread],
        counts: ConnectionCounts,
        clock_ms: Callable[[], int],
        poller_factory: Callable[[], Poller] = new_poller,
        is_cached: IsCached = is_cached,
    ) -> None:
        self._settings = settings
        self._listening = {sock.fileno(): _ListeningSocket(listener, sock) for listener, sock in sockets}
        self._networks = tuple(networks)
        self._turn = 0
        self._counts = counts
        self._clock_ms = clock_ms
        self._poller = poller_factory()
        self._is_cached = is_cached
        self._waker = Waker()
        self._changes: deque[Callable[[], None]] = deque()
        self._stopping = False
        self._waiting_for_close = False
        self._failing = False
        most = most_descriptors()
        # Connections leave some to the logs.
        self._descriptor_limit = most - spare_descriptors(most)
        self._thread = threading.Thread(target=self._run, name="klog-acceptor", daemon=True)

    def start(self) -> None:
        """Begins to accept."""
        self._thread.start()

    def connection_closed(self) -> None:
        """Called after a connection was closed: another one may be accepted."""
        if self._waiting_for_close:
            self._waker.wake()

    def change(self, sockets: Sockets, networks: Sequence[NetworkThread]) -> None:
        """Goes on with these sockets and network threads; sockets that are not among them are closed. It is
        done when the call returns. Call it while the acceptor runs.
        """
        done = threading.Event()

        def replace() -> None:
            self._networks = tuple(networks)
            self._replace_sockets(sockets)
            done.set()

        self._changes.append(replace)
        self._waker.wake()
        done.wait()

    def stop(self) -> None:
        """Stops accepting and closes the listening sockets."""
        self._stopping = True
        if self._thread.ident is not None:
            self._waker.wake()
            self._thread.join()
        for listening in self._listening.values():
            listening.socket.close()
        self._poller.close()
        self._waker.close()

    def _run(self) -> None:
        self._poller.register(self._waker.fd, READABLE)
        for fd in self._listening:
            self._poller.register(fd, READABLE)
        while not self._stopping:
            events = self._poller.wait(self._wait_ms())
            self._waker.reset()
            while self._changes:
                self._changes.popleft()()
            self._resume()
            for fd, _ in events:
                listening = self._listening.get(fd)
                if listening is not None and not listening.paused:
                    self._accept(listening)

    def _replace_sockets(self, sockets: Sockets) -> None:
        wanted = {sock.fileno(): (listener, sock) for listener, sock in sockets}
        for fd in self._listening.keys() - wanted.keys():
            self._poller.unregister(fd)
            self._listening.pop(fd).socket.close()
        for fd, (listener, sock) in wanted.items():
            listening = self._listening.get(fd)
            if listening is None:
                self._listening[fd] = _ListeningSocket(listener, sock)
                self._poller.register(fd, READABLE)
            else:
                listening.listener = listener

    # Sockets that are paused.

    def _wait_ms(self) -> int:
        waits_ms = [
            listening.resume_ms - self._clock_ms()
            for listening in self._listening.values()
            if listening.paused and listening.resume_ms is not None
        ]
        return max(0, min(_WAIT_MS, *waits_ms)) if waits_ms else _WAIT_MS

    def _pause(self, listening: _ListeningSocket, pause_ms: int | None) -> None:
        listening.paused = True
        listening.resume_ms = None if pause_ms is None else self._clock_ms() + pause_ms
        self._poller.modify(listening.socket.fileno(), 0)
        if pause_ms is None:
            self._waiting_for_close = True
            # A connection that closed just before has not woken this thread.
            self._resume()

    def _resume(self) -> None:
        """Accepts again at the sockets that have waited long enough."""
        waiting = False
        for fd, listening in self._listening.items():
            if not listening.paused:
                continue
            if listening.resume_ms is None:
                listening.paused = not self._counts.may_accept(listening.listener.name)
                waiting = waiting or listening.paused
            else:
                listening.paused = self._clock_ms() < listening.resume_ms
            if not listening.paused:
                self._poller.modify(fd, READABLE)
        self._waiting_for_close = waiting

    # Accepting.

    def _accept(self, listening: _ListeningSocket) -> None:
        """Accepts one connection, or pauses the socket."""
        name = listening.listener.name
        if not self._counts.may_accept(name):
            _log.warning("Not accepting on %s: %d connections (max.connections)", name, self._counts.total)
            self._pause(listening, None)
            return
        if not listening.charged:
            listening.charged = True
            delay_ms = self._counts.charge(name)
            if delay_ms:
                self._pause(listening, delay_ms)
                return
        try:
            sock, address = listening.socket.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        except OSError as error:
            self._pause_after_failure(listening, str(error))
            return
        if sock.fileno() >= self._descriptor_limit:
            # The system gives the lowest free descriptor, so all below it are in use.
            sock.close()
            self._pause_after_failure(listening, "logs need the descriptors that are left (ulimit -n)")
            return
        self._failing = False
        listening.charged = False
        # A socket for IPv4 and IPv6 writes IPv4 addresses with this prefix.
        host = str(address[0]).removeprefix("::ffff:")
        self._give_to_network_thread(listening.listener, sock, (host, int(address[1])))

    def _pause_after_failure(self, listening: _ListeningSocket, why: str) -> None:
        if not self._failing:
            _log.warning("Cannot accept on %s: %s", listening.listener.name, why)
        self._failing = True
        self._pause(listening, _PAUSE_MS)

    def _give_to_network_thread(self, listener: Listener, sock: socket.socket, peer: tuple[str, int]) -> None:
        """Gives a connection to the next network thread, or closes it."""
        if not self._counts.add(listener.name, peer[0]):
            _log.warning("Closing %s:%d on %s: too many connections from there", *peer, listener.name)
            sock.close()
            return
        network = self._networks[self._turn % len(self._networks)]
        try:
            configured = self._configure(listener, sock)
            connection = Connection(configured, listener, peer, network, self._is_cached)
        except Exception as error:
            # Of any kind: it costs this connection, not those that are still to be accepted.
            _log.info("Closing %s:%d on %s: %r", *peer, listener.name, error)
            sock.close()
            self._counts.remove(listener.name, peer[0])
            return
        self._turn += 1
        network.adopt_new(connection)

    def _configure(self, listener: Listener, sock: socket.socket) -> socket.socket:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        bound_blocking_reads(sock)
        if self._settings.send_buffer_bytes != -1:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._settings.send_buffer_bytes)
        elif _UNSENT_BOUND is not None:
            sock.setsockopt(socket.IPPROTO_TCP, _UNSENT_BOUND, self._settings.unsent_max_bytes)
        if listener.tls is None:
            return sock
        return listener.tls.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
