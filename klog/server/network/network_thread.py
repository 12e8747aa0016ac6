"""A network thread: waits for its connections, has small requests answered where they were read, and sends.

A connection whose request is outstanding stays watched for reading until it is in fact readable, which a
client that waits for its answer never is. So the usual request costs no call to change what is watched.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, cast

from klog.formats.errors import FormatError
from klog.server.network.connection import Connection
from klog.server.network.connection_limits import ConnectionCounts
from klog.server.network.connection_registry import ConnectionRegistry
from klog.server.network.deadlines import Deadlines, PutOffTasks, Task
from klog.server.network.dispatch import queue_answer
from klog.server.network.frame_reading import READ_BYTES, FrameReader
from klog.server.network.handler import Handler
from klog.server.network.memory_pool import MemoryPool
from klog.server.network.opening import Opening
from klog.server.network.phases import Phase
from klog.server.network.poller import BROKEN, READABLE, WRITABLE, Poller, Waker, new_poller
from klog.server.network.precedence import GivingWay, Precedence, Turns
from klog.server.network.request import Request
from klog.server.network.request_channel import RequestChannel
from klog.server.network.sending import Sender
from klog.server.network.settings import NetworkSettings
from klog.server.network.tls_handshake import tls_principal, why_handshake_failed

if TYPE_CHECKING:
    from klog.server.network.tls_socket import TlsSocket

_log = logging.getLogger("klog.server.network")

_TICK_MS: Final = 1_000
_DRAINING_TICK_MS: Final = 10


def stay(bulk: bool) -> None:
    """Leaves every connection where it is."""


class NetworkThread:
    """Owns connections. Other threads use `adopt_new`, `take_back`, `complete`, `channel_available`,
    `resume_held`, `take_over`, `disconnect_all`, `check_connections`, `drain`, `retire` and `join`.

    A thread is for `bulk` traffic or for all other. `move_to` names a thread of either kind, for a connection
    that does not belong here any more; None if it has to stay. A thread that `goes_first` is waited for by
    others (`precedence`).
    """

    def __init__(
        self,
        name: str,
        settings: NetworkSettings,
        handler: Handler,
        channel: RequestChannel,
        clock_ms: Callable[[], int],
        on_closed: Callable[[Connection], None],
        counts: ConnectionCounts,
        memory: MemoryPool | None = None,
        poller_factory: Callable[[], Poller] = new_poller,
        move_to: Callable[[bool], NetworkThread | None] = stay,
        *,
        opening: Opening,
        precedence: Precedence,
        goes_first: bool,
        bulk: bool = False,
    ) -> None:
        self.name = name
        self._settings = settings
        self._channel = channel
        self._clock_ms = clock_ms
        self._counts = counts
        self._move_to = move_to
        self._bulk = bulk
        self.memory = memory
        self._poller = poller_factory()
        self._precedence = precedence
        self.turns = Turns(self._poller.fd) if goes_first and self._poller.fd is not None else None
        self._giving_way = None if goes_first else GivingWay(precedence, settings.give_way_most_ms / 1000)
        self._waker = Waker()
        self._poller.register(self._waker.fd, READABLE)
        self._registry = ConnectionRegistry(self._poller, on_closed)
        sender = Sender(self._registry)
        self._send = sender.send
        self._reader = FrameReader(
            settings,
            handler,
            memory,
            self._registry,
            sender,
            self._hand_over,
            self._schedule,
            settings.bulk_read_bytes if bulk else READ_BYTES,
            opening,
        )
        self._backlog: deque[Connection] = deque()
        self._tasks: deque[Task] = deque()
        self._put_off = PutOffTasks()
        self._deadlines = Deadlines()
        self._now_ms = clock_ms()
        self._drain_until_s: float | None = None
        self._retiring = False
        self._ending = threading.Lock()
        self._ended = False
        # Taken over by another thread's call, and not registered yet. Guarded by `_ending`.
        self._arriving = 0
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self.waited_s = 0.0

    # What other threads call.

    def start(self) -> None:
        """Begins to serve."""
        self._thread.start()

    def adopt_new(self, connection: Connection) -> None:
        """Takes a connection that the acceptor accepted."""
        self._post(lambda: self._register(connection), connection)

    def take_over(self, connection: Connection) -> bool:
        """Takes a connection from another network thread; False if this one has ended."""
        with self._ending:
            if self._ended:
                return False
            self._arriving += 1
            self._post(lambda: self._take_over(connection), connection)
            return True

    def take_back(self, connection: Connection) -> None:
        """Takes a connection back from an I/O thread that is done with it."""
        self._post(lambda: self._take_back(connection), connection)

    def complete(self, connection: Connection, request: Request) -> None:
        """Sends the answer of a request that was parked."""
        request.answered_ns = time.perf_counter_ns()
        self._post(lambda: self._complete(connection, request), connection)

    def soon(self, connection: Connection, run: Callable[[], None]) -> None:
        """Does something for a connection when no request waits to be read, or after 1 to 2 ms."""
        self._put_off.add(Task(run, connection), self._clock_ms())
        self._wake()

    def channel_available(self) -> None:
        """The request channel takes connections again."""
        if self._backlog:
            self._post(self._offer_backlog)

    def resume_held(self) -> None:
        """There is memory for requests again, or the server is open."""
        self._post(self._reader.resume_held)

    def drain(self, until_s: float) -> None:
        """Stops reading; ends when all answers are sent, or at `until_s` of the monotonic clock."""

        def begin() -> None:
            self._drain_until_s = until_s
            self._reader.paused = True

        self._post(begin)

    def retire(self, until_s: float) -> None:
        """As `drain`, and closes all connections in the end. Nothing new may be given to it any more."""
        self._retiring = True
        self.drain(until_s)

    def disconnect_all(self) -> None:
        """Closes all connections, those that are being answered included."""
        self._post(self._registry.disconnect_all)

    def check_connections(self) -> None:
        """Closes the connections that are too many after the limits have changed."""
        self._post(lambda: self._registry.close_excess(self._counts.exceeded))

    def join(self, timeout_s: float) -> None:
        """Waits for the thread to end."""
        if self._thread.ident is not None:
            self._thread.join(timeout_s)

    def release(self) -> None:
        """Closes what is left after the thread has ended, or if it was never started."""
        for connection in self._registry.all():
            self._registry.close(connection)
        for task in self._tasks:
            if task.connection is not None and not task.connection.closed:
                self._registry.close_new(task.connection)
        self._poller.close()
        self._waker.close()

    @property
    def queued_answers(self) -> int:
        """How many answers of other threads, and connections, wait for it."""
        return len(self._tasks)

    @property
    def connection_count(self) -> int:
        """How many connections it has, those that it is about to take over included."""
        return len(self._registry) + self._arriving

    @property
    def alive(self) -> bool:
        """Whether the thread has begun and not ended."""
        return self._thread.is_alive()

    @property
    def draining(self) -> bool:
        """Whether the server is being stopped."""
        return self._drain_until_s is not None

    def _post(self, run: Callable[[], None], connection: Connection | None = None) -> None:
        """Has the thread do something in its next turn."""
        self._tasks.append(Task(run, connection))
        self._wake()

    def _wake(self) -> None:
        if threading.get_ident() != self._thread.ident:
            self._waker.wake()

    # The loop.

    def _run(self) -> None:
        self._check_all()
        while not self._finished():
            before_s = time.monotonic()
            events = self._poller.wait(self._wait_ms())
            self.waited_s += time.monotonic() - before_s
            self._now_ms = self._reader.now_ms = self._clock_ms()
            if self._giving_way is None:
                self._on_events(events)
            else:
                self._giving_way.serve(events, self._on_events)
            for _ in range(len(self._tasks)):
                self._run_task(self._tasks.popleft())
            for task in self._deadlines.take_due(self._now_ms):
                self._run_task(task)
            for task in self._put_off.take(self._now_ms, is_idle=not events):
                self._run_task(task)
            if self._precedence.first and self.turns is not None:
                self.turns.end()
        with self._ending:
            self._ended = True
        if self._retiring:
            self.release()

    def _on_events(self, events: Sequence[tuple[int, int]]) -> None:
        for fd, mask in events:
            connection = self._registry.find(fd)
            if connection is not None:
                try:
                    self._on_event(connection, mask)
                    if connection.traffic.is_due(self._now_ms, self._settings.bulk_traffic):
                        self._look_at_traffic(connection)
                except Exception:
                    self._lose(connection)
            elif fd == self._waker.fd:
                self._waker.reset()

    def _wait_ms(self) -> int:
        if self._tasks or self._put_off:
            return 0
        return self._deadlines.wait_ms(self._now_ms, _DRAINING_TICK_MS if self.draining else _TICK_MS)

    def _run_task(self, task: Task) -> None:
        try:
            task.run()
        except Exception:
            self._lose(task.connection)

    def _check_all(self) -> None:
        """Closes idle connections and those that are too many, once a second."""
        self._deadlines.schedule(self._now_ms + _TICK_MS, Task(self._check_all))
        self._registry.close_idle(self._now_ms, self._settings.connections_max_idle_ms)
        self._registry.close_excess(self._counts.exceeded)
        for connection in self._registry.all():
            self._look_at_traffic(connection)

    def _finished(self) -> bool:
        if self._drain_until_s is None:
            return False
        late = time.monotonic() >= self._drain_until_s
        for connection in self._registry.all():
            # An I/O thread gives its connection back. While other threads go on, nobody else would close it.
            if not connection.is_busy() or (late and self._retiring and not connection.handed_over):
                self._registry.close(connection)
        return not len(self._registry) or (late and not self._retiring)

    def _on_event(self, connection: Connection, mask: int) -> None:
        if mask & BROKEN and not mask & READABLE:
            self._registry.close(connection)
            return
        if connection.phase is Phase.OPEN:
            connection.last_active_ms = self._now_ms
        if connection.phase is Phase.TLS_HANDSHAKE:
            self._handshake(connection)
            return
        if mask & WRITABLE and self._send_and_resume(connection):
            return
        if not mask & (READABLE | BROKEN) or connection.closed:
            return
        if self._reader.may_read(connection):
            self._reader.read(connection)
        elif mask & BROKEN:
            self._registry.close(connection)
        else:
            self._registry.watch(connection, WRITABLE if connection.outbound.size_bytes else 0)

    def _lose(self, connection: Connection | None) -> None:
        """After an exception of any kind: it costs the connection, not the thread of all the others."""
        _log.exception("Closing %s", connection)
        if connection is not None:
            if connection.in_flight is not None and not connection.in_flight.parked:
                connection.in_flight = None
            self._registry.disconnect(connection)

    # Connections that come, go to I/O threads and return.

    def _register(self, connection: Connection) -> None:
        if self.draining:
            self._registry.close_new(connection)
            return
        connection.last_active_ms = self._now_ms
        connection.traffic.restart(self._now_ms)
        self._registry.add(connection, READABLE)

    def _look_at_traffic(self, connection: Connection) -> None:
        """Moves a connection to a thread of the other kind if it belongs there."""
        traffic, now_ms = connection.traffic, self._now_ms
        bulk = traffic.is_bulk(now_ms, self._settings.bulk_traffic, was_bulk=self._bulk)
        if bulk != self._bulk:
            if not connection.may_move():
                return
            self._move(connection, self._move_to(bulk))
        traffic.restart(now_ms)

    def _move(self, connection: Connection, to: NetworkThread | None) -> None:
        if to is None or self.draining:
            return
        self._registry.remove(connection)
        connection.network = to
        if not to.take_over(connection):
            connection.network = self
            self._registry.add(connection, READABLE)

    def _take_over(self, connection: Connection) -> None:
        with self._ending:
            self._arriving -= 1
        self._registry.add(connection, READABLE)
        connection.traffic.restart(self._now_ms)
        self._send_and_resume(connection)

    def _hand_over(self, connection: Connection) -> None:
        """Gives a connection to the I/O threads, as soon as the request channel takes it."""
        self._registry.unwatch(connection)
        connection.handed_over = True
        self._backlog.append(connection)
        self._offer_backlog()

    def _offer_backlog(self) -> None:
        while self._backlog and self._channel.offer(self._backlog[0]):
            self._backlog.popleft()

    def _take_back(self, connection: Connection) -> None:
        connection.handed_over = False
        connection.last_active_ms = self._now_ms
        self._registry.watch(connection, READABLE)
        request = connection.in_flight
        if request is not None and request.parked and request.answered:
            self._complete(connection, request)
        else:
            self._go_on(connection)

    def _complete(self, connection: Connection, request: Request) -> None:
        if connection.closed:
            connection.give_back_memory()
            # The client has left. How long its request took is counted all the same.
            if request.on_answered is not None:
                request.on_answered()
            connection.count_sent()
            return
        # An I/O thread may be sending earlier answers. When it gives the connection back, this one is sent.
        if connection.handed_over or connection.in_flight is not request:
            return
        connection.last_active_ms = self._now_ms
        queue_answer(connection, request)
        self._go_on(connection)

    def _go_on(self, connection: Connection) -> None:
        """After an answer from another thread."""
        self._reader.begin_throttle(connection)
        self._send_and_resume(connection)

    def _send_and_resume(self, connection: Connection) -> bool:
        """Whether all was sent, so that the connection went on with its next request."""
        if self._send(connection):
            self._reader.resume(connection)
            return True
        if connection.outbound.is_cold and not connection.closed:
            self._hand_over(connection)
        return False

    def _schedule(self, delay_ms: int, run: Callable[[], None], connection: Connection) -> None:
        self._deadlines.schedule(self._now_ms + delay_ms, Task(run, connection))

    def _handshake(self, connection: Connection) -> None:
        sock = cast("TlsSocket", connection.socket)
        try:
            awaited = sock.continue_handshake()
            if awaited is not None:
                self._registry.watch(connection, awaited)
                return
            if connection.listener.authentication is None:
                connection.principal = tls_principal(sock, connection.listener.principal_rules)
        except (OSError, FormatError) as error:
            _log.info("Closing %s: %s", connection, why_handshake_failed(error))
            self._registry.close(connection)
            return
        connection.last_active_ms = self._now_ms
        connection.begin_authentication()
        self._registry.watch(connection, READABLE)
        self._reader.read(connection)
