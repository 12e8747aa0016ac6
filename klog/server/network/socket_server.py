"""The network layer as a whole: binds its listeners, starts, changes while it runs, and stops."""

from __future__ import annotations

import itertools
import logging
import socket
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial

from klog.formats.errors import UsageError
from klog.protocol.errors import ProtocolError
from klog.security.quotas.ip_limits import IpLimits
from klog.server.network.acceptor import Acceptor
from klog.server.network.connection import Connection
from klog.server.network.connection_limits import ConnectionCounts
from klog.server.network.handler import Handler
from klog.server.network.io_thread import IoThread
from klog.server.network.memory_pool import MemoryPool
from klog.server.network.network_thread import NetworkThread
from klog.server.network.opening import Opening
from klog.server.network.page_cache import IsCached, is_cached
from klog.server.network.poller import Poller, new_poller
from klog.server.network.precedence import Precedence
from klog.server.network.request_channel import RequestChannel
from klog.server.network.served_listener import NetworkFor, ServedListener
from klog.server.network.settings import Listener, NetworkSettings
from klog.storage.log.descriptors import are_exhausted
from klog.storage.log.scheduler import monotonic_ms

_log = logging.getLogger("klog.server.network")


class BindError(ProtocolError):
    """A listener's address cannot be used: it is taken, not of this machine, or not allowed."""


class SocketServer:
    """Listens from `bind` on, serves from `start` to `stop`. Used once.

    Clients that connect between `bind` and `start` wait in the backlog of the system, so a broker knows its
    ports before it is ready. With `served_before_open` only requests of these APIs are answered between
    `start` and `open`, and all others wait.
    """

    def __init__(
        self,
        listeners: Sequence[Listener],
        settings: NetworkSettings,
        handler: Handler,
        *,
        clock_ms: Callable[[], int] = monotonic_ms,
        poller_factory: Callable[[], Poller] = new_poller,
        is_cached: IsCached = is_cached,
        served_before_open: Collection[int] | None = None,
        ip_limits: IpLimits | None = None,
    ) -> None:
        self._opening = Opening(served_before_open)
        self._listeners = tuple(listeners)
        self._settings = settings
        self._handler = handler
        self._clock_ms = clock_ms
        self._poller_factory = poller_factory
        self._is_cached = is_cached
        self.counts = ConnectionCounts(settings, clock_ms, ip_limits)
        self.counts.reconfigure(settings, [each.name for each in listeners])
        self._channel = RequestChannel(settings.queued_max_requests)
        bytes_allowed = settings.queued_max_request_bytes
        self.memory = MemoryPool(bytes_allowed, self._resume_held) if bytes_allowed > 0 else None
        self._changing = threading.Lock()
        self._precedence = Precedence()
        self._started = False
        self._stopped = False
        self._numbers = itertools.count(), itertools.count(), itertools.count()
        self._served: dict[str, ServedListener] = {}
        # All network threads that have not ended, those that are ending included.
        self._known: list[NetworkThread] = []
        self._io_threads = [self._new_io_thread() for _ in range(settings.io_threads)]
        self._io_thread_count = settings.io_threads
        self._ended_waited_s = [0.0, 0.0]

    def _serve(
        self, listener: Listener, sock: socket.socket, settings: NetworkSettings, undoing: ExitStack
    ) -> None:
        """Takes a bound listener, which `undoing` closes."""
        acceptor = Acceptor(
            self._settings,
            listener,
            sock,
            self.counts,
            self._clock_ms,
            self._poller_factory,
            self._is_cached,
        )
        new_network = partial(self._new_network, listener.name == settings.protected_listener)
        served = ServedListener(settings, listener, sock, acceptor, new_network)
        self._served[listener.name] = served

        def undo() -> None:
            del self._served[listener.name]
            served.close()

        undoing.callback(undo)

    def _new_network(self, goes_first: bool, move_to: NetworkFor, bulk: bool) -> NetworkThread:
        name = f"klog-bulk-{next(self._numbers[2])}" if bulk else f"klog-network-{next(self._numbers[0])}"
        network = NetworkThread(
            name,
            self._settings,
            self._handler,
            self._channel,
            self._clock_ms,
            self._connection_closed,
            self.counts,
            self.memory,
            self._poller_factory,
            move_to,
            opening=self._opening,
            precedence=self._precedence,
            goes_first=goes_first,
            bulk=bulk,
        )
        self._known.append(network)
        return network

    def _new_io_thread(self) -> IoThread:
        name = f"klog-io-{next(self._numbers[1])}"
        return IoThread(
            name,
            self._settings,
            self._handler,
            self._channel,
            self._known,
            self._clock_ms,
            self._io_thread_ended,
        )

    # Listening.

    def bind(self) -> None:
        """Raises BindError; then nothing is bound."""
        with ExitStack() as undoing:
            for listener, sock in self._bind(self._listeners, undoing):
                self._serve(listener, sock, self._settings, undoing)
            undoing.pop_all()

    def _bind(
        self, listeners: Iterable[Listener], undoing: ExitStack
    ) -> list[tuple[Listener, socket.socket]]:
        """Raises BindError."""
        sockets = []
        for listener in listeners:
            sock = self._listen(listener)
            undoing.callback(sock.close)
            sockets.append((listener, sock))
        return sockets

    def _listen(self, listener: Listener) -> socket.socket:
        """Raises BindError."""
        try:
            # Without a host the socket listens at all addresses of IPv4 and IPv6, as in Java.
            both = not listener.host and socket.has_dualstack_ipv6()
            family, kind, protocol, _, address = socket.getaddrinfo(
                "::" if both else listener.host or None,
                listener.port,
                type=socket.SOCK_STREAM,
                flags=socket.AI_PASSIVE,
            )[0]
            sock = socket.socket(family, kind, protocol)
            try:
                if both:
                    sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if self._settings.receive_buffer_bytes != -1:
                    # Accepted connections inherit it. Set later it could not change the window's scale.
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._settings.receive_buffer_bytes)
                sock.bind(address)
                sock.listen(self._settings.listen_backlog_size)
                sock.setblocking(False)
            except OSError:
                sock.close()
                raise
        except (OSError, UnicodeError) as error:  # the latter if the host cannot be a name
            if are_exhausted(error):
                raise  # another port would not help
            reason = (isinstance(error, OSError) and error.strerror) or error
            raise BindError(
                f"cannot listen at {listener.host}:{listener.port} ({listener.name}): {reason}",
                cure="another port, or stop what uses it",
            ) from error
        return sock

    def port(self, listener_name: str) -> int:
        """The port that a listener is bound to. Raises UsageError for a listener that is not bound."""
        served = self._served.get(listener_name)
        if served is None:
            raise UsageError(f"no listener {listener_name} is bound")
        return int(served.socket.getsockname()[1])

    def start(self) -> None:
        """Begins to accept and to serve; `bind` first."""
        self._started = True
        for io_thread in self._io_threads:
            io_thread.start()
        self._set_precedence()
        for served in self._served.values():
            served.start()

    def _set_precedence(self) -> None:
        """Has the threads of the protected listener go before those of others, if there are others."""
        first = self._served.get(self._settings.protected_listener or "")
        self._precedence.first = () if first is None or len(self._served) == 1 else tuple(first.turns)

    def open(self) -> None:
        """Answers the requests that have waited, and from now on all."""
        self._opening.is_open = True
        self._resume_held()

    # Changing.

    def reconfigure(self, listeners: Sequence[Listener], settings: NetworkSettings) -> None:
        """Goes on with other listeners, numbers of threads and limits of connections. The other settings stay
        as they were at the start. Call it between `start` and `stop`.

        A listener of the same name as before keeps its connections, and its socket if it has the same
        address; other TLS settings hold for new connections. Connections of a removed listener are closed,
        and so are those of a network thread that ends. Raises BindError, or ProtocolError if the system has
        no threads left; then nothing has changed.
        """
        with self._changing:
            if not self._started or self._stopped:
                return
            with ExitStack() as undoing:
                bound = dict(self._bind(filter(self._is_new, listeners), undoing))
                self._add_threads(listeners, bound, settings, undoing)
                undoing.pop_all()
            self._listeners = tuple(listeners)
            names = [each.name for each in listeners]
            self.counts.reconfigure(settings, names)
            for gone in self._served.keys() - names:
                self._served.pop(gone).close()
            for listener in listeners:
                served = self._served[listener.name]
                sock = bound.get(listener, served.socket)
                served.change(listener, sock, settings.network_threads_of(listener.name))
            self._set_precedence()
            for _ in range(self._io_thread_count - settings.io_threads):
                self._end_io_thread()
            self._forget_ended()
            for network in self._known:
                network.check_connections()

    def _is_new(self, listener: Listener) -> bool:
        """Whether nothing is bound to the address of a listener yet."""
        served = self._served.get(listener.name)
        return served is None or served.listener.address != listener.address

    def _add_threads(
        self,
        listeners: Sequence[Listener],
        bound: Mapping[Listener, socket.socket],
        settings: NetworkSettings,
        undoing: ExitStack,
    ) -> None:
        """Begins to serve new listeners. Raises ProtocolError if the system has no threads left."""
        try:
            for listener in listeners:
                served = self._served.get(listener.name)
                if served is not None:
                    served.add_threads(settings.network_threads_of(listener.name), undoing)
                    continue
                self._serve(listener, bound[listener], settings, undoing)
                self._served[listener.name].start()
            for _ in range(settings.io_threads - self._io_thread_count):
                io_thread = self._new_io_thread()
                io_thread.start()
                self._io_threads.append(io_thread)
                self._io_thread_count += 1
                undoing.callback(self._end_io_thread)
        except (OSError, RuntimeError) as error:
            raise ProtocolError(f"the system has no threads left: {error}") from error

    def _forget_ended(self) -> None:
        """Keeps of the network threads that have ended only how long they waited."""
        self._ended_waited_s[0] += sum(each.waited_s for each in self._known if not each.alive)
        self._known[:] = [each for each in self._known if each.alive]

    def _end_io_thread(self) -> None:
        self._io_thread_count -= 1
        self._channel.end_one()

    def _io_thread_ended(self, io_thread: IoThread) -> None:
        if not self._stopped:
            self._ended_waited_s[1] += io_thread.waited_s
            self._io_threads.remove(io_thread)

    # Stopping.

    def stop(self) -> None:
        """Stops accepting, answers the requests that are being handled, and closes everything. Takes at most
        about `stop_timeout_ms`.
        """
        with self._changing:
            self._stopped = True
        for served in self._served.values():
            served.stop_accepting()
        deadline_s = time.monotonic() + self._settings.stop_timeout_ms / 1000
        if self._started:
            for served in self._served.values():
                served.drain(deadline_s)
            for network in self._known:
                network.join(self._settings.stop_timeout_ms / 1000 + 1)
        for connection in self._channel.drain():
            connection.closing = True
        for _ in self._io_threads:
            self._channel.end_one()
        for io_thread in self._io_threads:
            if self._started and not io_thread.join(max(0.1, deadline_s - time.monotonic())):
                _log.warning("An I/O thread did not end in time; its request is given up")
        for served in self._served.values():
            served.release()
        self._served.clear()

    def _connection_closed(self, connection: Connection) -> None:
        self.counts.remove(connection.listener.name, connection.peer[0])
        for served in tuple(self._served.values()):
            served.connection_closed()

    def _resume_held(self) -> None:
        for network in tuple(self._known):
            network.resume_held()

    # For metrics.

    @property
    def connection_counts(self) -> Mapping[str, int]:
        """Open connections by the listener that they came through."""
        return {listener.name: self.counts.of_listener(listener.name) for listener in self._listeners}

    @property
    def queued_requests(self) -> int:
        """Connections that wait for an I/O thread with a request or a large frame."""
        return len(self._channel)

    @property
    def processors(self) -> Mapping[str, NetworkThread]:
        """The network threads by their names, those for bulk traffic and those that are ending included."""
        return {network.name: network for network in tuple(self._known)}

    @property
    def thread_counts(self) -> tuple[int, int]:
        """How many network threads and I/O threads there are, as the settings ask for."""
        return self._network_counts()[0], self._io_thread_count

    @property
    def waiting_thread_counts(self) -> tuple[int, int]:
        """How many threads `waited_s` sums: those for bulk traffic count as network threads."""
        return sum(self._network_counts()), self._io_thread_count

    def _network_counts(self) -> tuple[int, int]:
        counts = [served.thread_counts for served in tuple(self._served.values())]
        return sum(usual for usual, _ in counts), sum(bulk for _, bulk in counts)

    @property
    def waited_s(self) -> tuple[float, float]:
        """Seconds that all network threads, and all I/O threads, have waited for work."""
        network_s, io_s = self._ended_waited_s
        network_s += sum(thread.waited_s for thread in tuple(self._known))
        return network_s, io_s + sum(thread.waited_s for thread in tuple(self._io_threads))
