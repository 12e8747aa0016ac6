"""The acceptor: takes connections off the listening sockets and deals them to the network threads in turn.

Limits as in Kafka: at `max.connections` accepting waits until a connection closes, beyond
`max.connection.creation.rate` until it has been long enough; beyond `max.connections.per.ip` a connection is
closed at once. Unlike in Kafka, connections leave some descriptors to the logs: a segment that cannot be
opened takes its log directory offline, so whoever only connects could end the broker.
"""

from __future__ import annotations

import logging
import resource
import socket
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from klog.server.network.connection import Connection
from klog.server.network.connection_limits import ConnectionCounts
from klog.server.network.io_thread import prepare_for_adoption
from klog.server.network.network_thread import NetworkThread
from klog.server.network.page_cache import IsCached, is_cached
from klog.server.network.poller import READABLE, Poller, Waker, new_poller
from klog.server.network.settings import Listener, NetworkSettings

_log = logging.getLogger("klog.server.network")

# When accepting fails (no descriptors left, mostly), how long to leave it.
_PAUSE_MS: Final = 200
_WAIT_MS: Final = 60_000
# What connections leave of the descriptors: so many, and where there are few an eighth.
_SPARE_DESCRIPTORS: Final = 64

Sockets = Sequence[tuple[Listener, socket.socket]]


@dataclass(slots=True)
class _Door:
    """A listening socket. While `shut` nothing is accepted there: until `opens_ms`, or until there is room.

    `charged` says that the connection that waits has been counted into the rates already.
    """

    listener: Listener
    socket: socket.socket
    shut: bool = False
    opens_ms: int | None = None
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
        self._doors = {sock.fileno(): _Door(listener, sock) for listener, sock in sockets}
        self._networks = tuple(networks)
        self._turn = 0
        self._counts = counts
        self._clock_ms = clock_ms
        self._poller = poller_factory()
        self._is_cached = is_cached
        self._waker = Waker()
        self._changes: deque[Callable[[], None]] = deque()
        self._stopping = False
        self._waiting_for_room = False
        self._failing = False
        self._descriptor_limit = _descriptor_limit()
        self._thread = threading.Thread(target=self._run, name="klog-acceptor", daemon=True)

    def start(self) -> None:
        """Begins to accept."""
        self._thread.start()

    def connection_closed(self) -> None:
        """There may be room for another connection."""
        if self._waiting_for_room:
            self._waker.wake()

    def change(self, sockets: Sockets, networks: Sequence[NetworkThread]) -> None:
        """Accepts at these sockets only, for these network threads only, from the return on; sockets that are
        not among them are closed. Call it while the acceptor runs.
        """
        done = threading.Event()

        def take() -> None:
            self._networks = tuple(networks)
            self._take_sockets(sockets)
            done.set()

        self._changes.append(take)
        self._waker.wake()
        done.wait()

    def stop(self) -> None:
        """Stops accepting and closes the listening sockets."""
        self._stopping = True
        if self._thread.ident is not None:
            self._waker.wake()
            self._thread.join()
        for door in self._doors.values():
            door.socket.close()
        self._poller.close()
        self._waker.close()

    def _run(self) -> None:
        self._poller.register(self._waker.fd, READABLE)
        for fd in self._doors:
            self._poller.register(fd, READABLE)
        while not self._stopping:
            events = self._poller.wait(self._wait_ms())
            self._waker.reset()
            while self._changes:
                self._changes.popleft()()
            self._reopen()
            for fd, _ in events:
                door = self._doors.get(fd)
                if door is not None and not door.shut:
                    self._accept(door)

    def _take_sockets(self, sockets: Sockets) -> None:
        wanted = {sock.fileno(): (listener, sock) for listener, sock in sockets}
        for fd in self._doors.keys() - wanted.keys():
            self._poller.unregister(fd)
            self._doors.pop(fd).socket.close()
        for fd, (listener, sock) in wanted.items():
            door = self._doors.get(fd)
            if door is None:
                self._doors[fd] = _Door(listener, sock)
                self._poller.register(fd, READABLE)
            else:
                door.listener = listener

    # Doors that are shut for a while.

    def _wait_ms(self) -> int:
        waits_ms = [
            door.opens_ms - self._clock_ms()
            for door in self._doors.values()
            if door.shut and door.opens_ms is not None
        ]
        return max(0, min(_WAIT_MS, *waits_ms)) if waits_ms else _WAIT_MS

    def _shut(self, door: _Door, pause_ms: int | None) -> None:
        door.shut = True
        door.opens_ms = None if pause_ms is None else self._clock_ms() + pause_ms
        self._poller.modify(door.socket.fileno(), 0)
        if pause_ms is None:
            self._waiting_for_room = True
            # A connection that closed just before that woke nobody.
            self._reopen()

    def _reopen(self) -> None:
        """Opens the doors again that have been shut for long enough."""
        waiting = False
        for fd, door in self._doors.items():
            if not door.shut:
                continue
            if door.opens_ms is None:
                door.shut = not self._counts.has_room(door.listener.name)
                waiting = waiting or door.shut
            else:
                door.shut = self._clock_ms() < door.opens_ms
            if not door.shut:
                self._poller.modify(fd, READABLE)
        self._waiting_for_room = waiting

    # Accepting.

    def _accept(self, door: _Door) -> None:
        """Accepts one connection, or shuts the door for a while."""
        name = door.listener.name
        if not self._counts.has_room(name):
            _log.warning("Not accepting on %s: %d connections (max.connections)", name, self._counts.total)
            self._shut(door, None)
            return
        if not door.charged:
            door.charged = True
            delay_ms = self._counts.charge(name)
            if delay_ms:
                self._shut(door, delay_ms)
                return
        try:
            sock, address = door.socket.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        except OSError as error:
            self._pause(door, str(error))
            return
        if sock.fileno() >= self._descriptor_limit:
            # A new descriptor is the lowest that is free: all below it are in use.
            sock.close()
            self._pause(door, "logs need the descriptors that are left (ulimit -n)")
            return
        self._failing = False
        door.charged = False
        # What a socket of both kinds calls an IPv4 address.
        host = str(address[0]).removeprefix("::ffff:")
        self._take(door.listener, sock, (host, int(address[1])))

    def _pause(self, door: _Door, why: str) -> None:
        if not self._failing:
            _log.warning("Cannot accept on %s: %s", door.listener.name, why)
        self._failing = True
        self._shut(door, _PAUSE_MS)

    def _take(self, listener: Listener, sock: socket.socket, peer: tuple[str, int]) -> None:
        """Gives a connection to the network thread whose turn it is, or closes it."""
        if not self._counts.add(listener.name, peer[0]):
            _log.warning("Closing %s:%d on %s: too many connections from there", *peer, listener.name)
            sock.close()
            return
        network = self._networks[self._turn % len(self._networks)]
        try:
            configured = self._configure(listener, sock)
            connection = Connection(configured, listener, peer, network, self._is_cached)
        except Exception as error:
            # Of whatever kind: it costs this one, not all that are still to be accepted.
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
        prepare_for_adoption(sock)
        if self._settings.send_buffer_bytes != -1:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._settings.send_buffer_bytes)
        if listener.tls is None:
            return sock
        return listener.tls.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)


def _descriptor_limit() -> int:
    """The lowest descriptor that is none for a connection."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return sys.maxsize if limit == resource.RLIM_INFINITY else limit - min(_SPARE_DESCRIPTORS, limit // 8)
