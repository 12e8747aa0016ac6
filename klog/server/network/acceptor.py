"""The acceptor of one listener: accepts connections and gives them to its network threads in turn.

The limits are Kafka's. At `max.connections` the acceptor waits until a connection closes. Beyond
`max.connection.creation.rate` it waits until the rate has come down. A connection beyond
`max.connections.per.ip` is closed at once. One beyond the rate of its address is held for a while, unread,
and then closed, so that the client does not come again at once. Unlike in Kafka, connections leave some file
descriptors to the logs: a segment that cannot be opened takes its log directory offline, so a client that
only opens connections could bring down the broker.
"""

from __future__ import annotations

import heapq
import logging
import socket
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from klog.server.network.connection import Connection
from klog.server.network.connection_limits import Admission, ConnectionCounts
from klog.server.network.io_thread import bound_blocking_reads
from klog.server.network.network_thread import NetworkThread
from klog.server.network.page_cache import IsCached, is_cached
from klog.server.network.poller import READABLE, Poller, Waker, new_poller
from klog.server.network.settings import Listener, NetworkSettings
from klog.server.network.tls_socket import Socket, TlsSocket
from klog.storage.log.descriptors import most_descriptors, spare_descriptors

_log = logging.getLogger("klog.server.network")

# How long to wait before accepting again after it has failed, mostly because no descriptors are left.
_PAUSE_MS: Final = 200
_WAIT_MS: Final = 60_000
_FOREVER_MS: Final = 2**63
# Connections that are held and closed need descriptors, too.
_MOST_HELD: Final = 1000
# Linux and macOS have it.
_UNSENT_BOUND: Final[int | None] = getattr(socket, "TCP_NOTSENT_LOWAT", None)


class Acceptor:
    """Owns the listening socket of one listener.

    While it is paused nothing is accepted: until `_resume_ms`, or, if that is None, until the number of
    connections is below its limit. `_charged` says that the next connection is already counted in the rates.
    `_accepted` is a connection for which there was no room any more: another listener was faster.
    """

    def __init__(
        self,
        settings: NetworkSettings,
        listener: Listener,
        sock: socket.socket,
        counts: ConnectionCounts,
        clock_ms: Callable[[], int],
        poller_factory: Callable[[], Poller] = new_poller,
        is_cached: IsCached = is_cached,
    ) -> None:
        self._settings = settings
        self._listener = listener
        self._socket = sock
        self._networks: tuple[NetworkThread, ...] = ()
        self._turn = 0
        self._counts = counts
        self._clock_ms = clock_ms
        self._poller = poller_factory()
        self._is_cached = is_cached
        self._waker = Waker()
        self._changes: deque[Callable[[], None]] = deque()
        self._stopping = False
        self._paused = False
        self._resume_ms: int | None = None
        self._charged = False
        self._failing = False
        self._accepted: tuple[socket.socket, tuple[str, int]] | None = None
        # Connections beyond the rates of their addresses, by the time when they are closed.
        self._held: list[tuple[int, int, socket.socket]] = []
        most = most_descriptors()
        # Connections leave some to the logs.
        self._descriptor_limit = most - spare_descriptors(most)
        self._thread = threading.Thread(target=self._run, name=f"klog-acceptor-{listener.name}", daemon=True)

    def start(self, networks: Sequence[NetworkThread]) -> None:
        """Begins to accept, for these network threads."""
        self._networks = tuple(networks)
        self._thread.start()

    def connection_closed(self) -> None:
        """Called after a connection of any listener was closed: another one may be accepted."""
        if self._paused and self._resume_ms is None:
            self._waker.wake()

    def change(self, listener: Listener, sock: socket.socket, networks: Sequence[NetworkThread]) -> None:
        """Goes on with this listener, its socket and these network threads; another socket is closed. It is
        done when the call returns. Call it while the acceptor runs.
        """
        done = threading.Event()

        def replace() -> None:
            self._networks = tuple(networks)
            self._listener = listener
            self._replace_socket(sock)
            done.set()

        self._changes.append(replace)
        self._waker.wake()
        done.wait()

    def stop(self) -> None:
        """Stops accepting and closes the listening socket."""
        self._stopping = True
        if self._thread.ident is not None:
            self._waker.wake()
            self._thread.join()
        self._close_held(_FOREVER_MS)
        if self._accepted is not None:
            self._accepted[0].close()
        self._socket.close()
        self._poller.close()
        self._waker.close()

    def _run(self) -> None:
        self._poller.register(self._waker.fd, READABLE)
        self._poller.register(self._socket.fileno(), READABLE)
        while not self._stopping:
            events = self._poller.wait(self._wait_ms())
            self._waker.reset()
            while self._changes:
                self._changes.popleft()()
            self._resume()
            self._close_held(self._clock_ms())
            if self._paused:
                continue
            if self._accepted is not None:
                accepted, self._accepted = self._accepted, None
                self._give_to_network_thread(*accepted)
            elif any(fd == self._socket.fileno() for fd, _ in events):
                self._accept()

    def _replace_socket(self, sock: socket.socket) -> None:
        if sock is self._socket:
            return
        self._poller.unregister(self._socket.fileno())
        self._socket.close()
        self._socket = sock
        self._poller.register(sock.fileno(), 0 if self._paused else READABLE)

    # Pauses.

    def _wait_ms(self) -> int:
        if self._accepted is not None and not self._paused:
            return 0
        until_ms = [self._held[0][0]] if self._held else []
        if self._paused and self._resume_ms is not None:
            until_ms.append(self._resume_ms)
        return max(0, min(_WAIT_MS, min(until_ms) - self._clock_ms())) if until_ms else _WAIT_MS

    def _pause(self, pause_ms: int | None) -> None:
        self._resume_ms = None if pause_ms is None else self._clock_ms() + pause_ms
        self._paused = True
        self._poller.modify(self._socket.fileno(), 0)
        if pause_ms is None:
            # A connection that closed just before has not woken this thread.
            self._resume()

    def _resume(self) -> None:
        """Accepts again if it has waited long enough."""
        if not self._paused:
            return
        if self._resume_ms is None:
            self._paused = not self._counts.may_accept(self._listener.name)
        else:
            self._paused = self._clock_ms() < self._resume_ms
        if not self._paused:
            self._poller.modify(self._socket.fileno(), READABLE)

    # Accepting.

    def _accept(self) -> None:
        """Accepts one connection, or pauses."""
        name = self._listener.name
        if not self._counts.may_accept(name):
            _log.warning("Not accepting on %s: %d connections (max.connections)", name, self._counts.total)
            self._pause(None)
            return
        if not self._charged:
            self._charged = True
            delay_ms = self._counts.charge(name)
            if delay_ms:
                self._pause(delay_ms)
                return
        try:
            sock, address = self._socket.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        except OSError as error:
            self._pause_after_failure(str(error))
            return
        if sock.fileno() >= self._descriptor_limit:
            # The system gives the lowest free descriptor, so all below it are in use.
            sock.close()
            self._pause_after_failure("logs need the descriptors that are left (ulimit -n)")
            return
        self._failing = False
        self._charged = False
        # A socket for IPv4 and IPv6 writes IPv4 addresses with this prefix.
        host = str(address[0]).removeprefix("::ffff:")
        held_ms = self._counts.charge_address(name, host)
        if held_ms:
            self._hold(sock, held_ms)
            return
        self._give_to_network_thread(sock, (host, int(address[1])))

    def _hold(self, sock: socket.socket, held_ms: int) -> None:
        """Keeps a connection open for a while that nobody serves."""
        heapq.heappush(self._held, (self._clock_ms() + held_ms, sock.fileno(), sock))
        if len(self._held) > _MOST_HELD:
            heapq.heappop(self._held)[2].close()

    def _close_held(self, now_ms: int) -> None:
        while self._held and self._held[0][0] <= now_ms:
            heapq.heappop(self._held)[2].close()

    def _pause_after_failure(self, why: str) -> None:
        if not self._failing:
            _log.warning("Cannot accept on %s: %s", self._listener.name, why)
        self._failing = True
        self._pause(_PAUSE_MS)

    def _give_to_network_thread(self, sock: socket.socket, peer: tuple[str, int]) -> None:
        """Gives a connection to the next network thread, closes it, or keeps it until there is room."""
        listener = self._listener
        admission = self._counts.add(listener.name, peer[0])
        if admission is Admission.TOO_MANY:
            self._accepted = sock, peer
            self._pause(None)
            return
        if admission is Admission.TOO_MANY_OF_ADDRESS:
            _log.warning("Closing %s:%d on %s: too many connections from there", *peer, listener.name)
            sock.close()
            return
        network = self._networks[self._turn % len(self._networks)]
        try:
            configured = self._configure(sock)
            connection = Connection(configured, listener, peer, network, self._is_cached)
        except Exception as error:
            # Of any kind: it costs this connection, not those that are still to be accepted.
            _log.info("Closing %s:%d on %s: %r", *peer, listener.name, error)
            sock.close()
            self._counts.remove(listener.name, peer[0])
            return
        self._turn += 1
        network.adopt_new(connection)

    def _configure(self, sock: socket.socket) -> Socket:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        bound_blocking_reads(sock)
        if self._settings.send_buffer_bytes != -1:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._settings.send_buffer_bytes)
        elif _UNSENT_BOUND is not None:
            sock.setsockopt(socket.IPPROTO_TCP, _UNSENT_BOUND, self._settings.unsent_max_bytes)
        tls = self._listener.tls
        if tls is None:
            return sock
        return TlsSocket(sock, tls)
