"""The network layer as a whole: binds, starts, stops."""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Callable, Sequence

from klog.formats.errors import UsageError
from klog.protocol.errors import ProtocolError
from klog.server.network.acceptor import Acceptor, ConnectionCounts
from klog.server.network.connection import Connection
from klog.server.network.io_thread import IoThread
from klog.server.network.network_thread import NetworkThread
from klog.server.network.poller import Poller, new_poller
from klog.server.network.request import Handler
from klog.server.network.request_channel import RequestChannel
from klog.server.network.settings import Listener, NetworkSettings

_log = logging.getLogger("klog.server.network")


class BindError(ProtocolError):
    """An address that cannot be listened at: taken, not this machine's, not allowed."""


def _system_clock_ms() -> int:
    return time.time_ns() // 1_000_000


class SocketServer:
    """Listens at all listeners from `bind` on, serves from `start` to `stop`. Used once.

    Clients that connect between `bind` and `start` wait in the backlog, so a broker can tell its ports
    before it is ready.
    """

    def __init__(
        self,
        listeners: Sequence[Listener],
        settings: NetworkSettings,
        handler: Handler,
        *,
        clock_ms: Callable[[], int] = _system_clock_ms,
        poller_factory: Callable[[], Poller] = new_poller,
    ) -> None:
        self._listeners = tuple(listeners)
        self._settings = settings
        self._poller_factory = poller_factory
        self._sockets: list[tuple[Listener, socket.socket]] = []
        self._acceptor: Acceptor | None = None
        self._counts = ConnectionCounts(settings)
        self._channel = RequestChannel(settings.queued_max_requests)
        self._networks = [
            NetworkThread(
                f"klog-network-{number}",
                settings,
                handler,
                self._channel,
                clock_ms,
                self._connection_closed,
                poller_factory,
            )
            for number in range(settings.network_threads)
        ]
        self._io_threads = [
            IoThread(f"klog-io-{number}", settings, handler, self._channel, self._networks, clock_ms)
            for number in range(settings.io_threads)
        ]

    def bind(self) -> None:
        """Raises BindError; then nothing is bound."""
        for listener in self._listeners:
            try:
                self._sockets.append((listener, self._listen(listener)))
            except OSError as error:
                self._close_listening()
                raise BindError(
                    f"cannot listen at {listener.host}:{listener.port} ({listener.name}): {error}",
                    cure="another port, or stop what uses it",
                ) from error

    def _listen(self, listener: Listener) -> socket.socket:
        family, kind, protocol, _, address = socket.getaddrinfo(
            listener.host or None, listener.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        sock = socket.socket(family, kind, protocol)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if self._settings.receive_buffer_bytes != -1:
                # Inherited by accepted connections; later it would be too late for the window's scale.
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._settings.receive_buffer_bytes)
            sock.bind(address)
            sock.listen(self._settings.listen_backlog_size)
            sock.setblocking(False)
        except OSError:
            sock.close()
            raise
        return sock

    def port(self, listener_name: str) -> int:
        """The port that a listener is bound to. Raises UsageError for a listener that is not bound."""
        for listener, sock in self._sockets:
            if listener.name == listener_name:
                return int(sock.getsockname()[1])
        raise UsageError(f"no listener {listener_name} is bound")

    def start(self) -> None:
        """Begins to accept and to serve; `bind` first."""
        self._acceptor = Acceptor(
            self._settings, self._sockets, self._networks, self._counts, self._poller_factory
        )
        for network in self._networks:
            network.start()
        for io_thread in self._io_threads:
            io_thread.start()
        self._acceptor.start()

    def stop(self) -> None:
        """Stops accepting, answers what is being worked on, closes all. Takes at most about
        `stop_timeout_ms`.
        """
        started = self._acceptor is not None
        if self._acceptor is not None:
            self._acceptor.stop()
        deadline_s = time.monotonic() + self._settings.stop_timeout_ms / 1000
        if started:
            for network in self._networks:
                network.drain(deadline_s)
            for network in self._networks:
                network.join(self._settings.stop_timeout_ms / 1000 + 1)
        for connection in self._channel.drain():
            connection.closing = True
        for _ in self._io_threads:
            self._channel.end_one()
        for io_thread in self._io_threads:
            if started and not io_thread.join(max(0.1, deadline_s - time.monotonic())):
                _log.warning("An I/O thread did not end in time; its request is given up")
        for network in self._networks:
            network.release()
        self._close_listening()

    def _close_listening(self) -> None:
        for _, sock in self._sockets:
            sock.close()
        self._sockets.clear()

    def _connection_closed(self, connection: Connection) -> None:
        self._counts.remove(connection.peer[0])
        if self._acceptor is not None:
            self._acceptor.connection_closed()

    @property
    def connection_count(self) -> int:
        """Open connections."""
        return self._counts.total

    @property
    def queued_requests(self) -> int:
        """Requests, and large frames still to be read, that wait for an I/O thread."""
        return len(self._channel)

    @property
    def thread_counts(self) -> tuple[int, int]:
        """How many network threads and I/O threads there are."""
        return len(self._networks), len(self._io_threads)

    @property
    def waited_s(self) -> tuple[float, float]:
        """Seconds that network threads and I/O threads have spent waiting for work, each summed: for idle
        ratios.
        """
        return sum(thread.waited_s for thread in self._networks), sum(
            thread.waited_s for thread in self._io_threads
        )
