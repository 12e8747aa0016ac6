"""A network thread: reads its connections, has small requests answered on the spot, and sends what is to be
sent.

Muting is lazy: a connection whose request is outstanding stays registered for reading until it is in fact
readable, which a client that waits for its answer never is. So the usual request costs no call to change
what is watched.
"""

from __future__ import annotations

import logging
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from klog.formats.errors import KlogError
from klog.protocol.errors import MalformedMessageError
from klog.protocol.primitives import INT32
from klog.server.network.connection import Connection, LargeFrame
from klog.server.network.dispatch import log_closing, queue_answer, run_on, work_on
from klog.server.network.memory_pool import MemoryPool
from klog.server.network.poller import BROKEN, READABLE, WRITABLE, Poller, Waker, new_poller
from klog.server.network.request import Handler, Request
from klog.server.network.request_channel import RequestChannel
from klog.server.network.settings import NetworkSettings

_log = logging.getLogger("klog.server.network")

# How much is read at once beside what a frame may have left over, and how much is collected before it is
# sent.
_READ_BYTES: Final = 64 * 1024
_FLUSH_BYTES: Final = 256 * 1024
_TICK_MS: Final = 1_000
_NOTHING_TO_READ: Final = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class NetworkThread:
    """Owns connections. Other threads use `adopt_new`, `take_back`, `complete`, `retry_backlog`,
    `close_listener`, `check_connections`, `drain`, `retire` and `join`. `exceeded` says whether a listener
    has connections that must go.
    """

    def __init__(
        self,
        name: str,
        settings: NetworkSettings,
        handler: Handler,
        channel: RequestChannel,
        clock_ms: Callable[[], int],
        on_closed: Callable[[Connection], None],
        exceeded: Callable[[str], bool],
        memory: MemoryPool | None = None,
        poller_factory: Callable[[], Poller] = new_poller,
    ) -> None:
        self._settings = settings
        self._may_block = handler.may_block
        self._work = handler.handle
        self._run_frames = handler.handle_run
        self._failed = handler.failed
        self._channel = channel
        self._clock_ms = clock_ms
        self._on_closed = on_closed
        self._exceeded = exceeded
        self.memory = memory
        self._poller = poller_factory()
        self._waker = Waker()
        self._poller.register(self._waker.fd, READABLE)
        self._connections: dict[int, Connection] = {}
        self._backlog: deque[Connection] = deque()
        self._starved: deque[Connection] = deque()
        self._mail: deque[tuple[Callable[[], None], Connection | None]] = deque()
        self._buffer = bytearray(settings.inline_request_max_bytes + 4 + _READ_BYTES)
        self._view = memoryview(self._buffer)
        self._now_ms = clock_ms()
        self._next_check_ms = self._now_ms + _TICK_MS
        self._drain_until_s: float | None = None
        self._retiring = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self.waited_s = 0.0

    # What other threads call.

    def start(self) -> None:
        """Begins to serve."""
        self._thread.start()

    def adopt_new(self, connection: Connection) -> None:
        """Takes a connection that the acceptor accepted."""
        self._post(lambda: self._register(connection), connection)

    def take_back(self, connection: Connection) -> None:
        """Takes a connection back from an I/O thread that is done with it."""
        self._post(lambda: self._take_back(connection), connection)

    def complete(self, request: Request) -> None:
        """Sends the answer of a request that was parked."""
        self._post(lambda: self._complete(request), request.connection)

    def retry_backlog(self) -> None:
        """The request channel has room again."""
        if self._backlog:
            self._post(self._offer_backlog)

    def retry_starved(self) -> None:
        """There is memory for requests again."""
        self._post(self._feed)

    def drain(self, until_s: float) -> None:
        """Stops reading; ends when all answers are sent, or at `until_s` of the monotonic clock."""

        def begin() -> None:
            self._drain_until_s = until_s

        self._post(begin)

    def retire(self, until_s: float) -> None:
        """As `drain`, and closes everything by itself in the end. Nothing new may come any more."""
        self._retiring = True
        self.drain(until_s)

    def close_listener(self, name: str) -> None:
        """Closes the connections that came through a listener."""

        def close() -> None:
            for connection in list(self._connections.values()):
                if connection.listener.name == name:
                    self._break(connection)

        self._post(close)

    def check_connections(self) -> None:
        """The limits have changed: closes what is too much now."""
        self._post(self._close_excess)

    def join(self, timeout_s: float) -> None:
        """Waits for the thread to end."""
        if self._thread.ident is not None:
            self._thread.join(timeout_s)

    def release(self) -> None:
        """Closes what is left when the thread has ended, or was never started."""
        for connection in list(self._connections.values()):
            self._close(connection)
        self._poller.close()
        self._waker.close()

    @property
    def alive(self) -> bool:
        """Whether the thread has begun and not ended."""
        return self._thread.is_alive()

    @property
    def draining(self) -> bool:
        """Whether the server is being stopped."""
        return self._drain_until_s is not None

    def _post(self, job: Callable[[], None], connection: Connection | None = None) -> None:
        self._mail.append((job, connection))
        if threading.get_ident() != self._thread.ident:
            self._waker.wake()

    # The loop.

    def _run(self) -> None:
        while not self._finished():
            timeout_ms = 0 if self._mail else 10 if self.draining else _TICK_MS
            before_s = time.monotonic()
            events = self._poller.wait(timeout_ms)
            self.waited_s += time.monotonic() - before_s
            self._now_ms = self._clock_ms()
            for fd, mask in events:
                connection = self._connections.get(fd)
                if connection is not None:
                    try:
                        self._on_event(connection, mask)
                    except Exception:
                        self._lose(connection)
                elif fd == self._waker.fd:
                    self._waker.reset()
            for _ in range(len(self._mail)):
                job, connection = self._mail.popleft()
                try:
                    job()
                except Exception:
                    self._lose(connection)
            if self._now_ms >= self._next_check_ms:
                self._next_check_ms = self._now_ms + _TICK_MS
                self._close_idle()
                self._close_excess()
        if self._retiring:
            self.release()

    def _finished(self) -> bool:
        if self._drain_until_s is None:
            return False
        late = time.monotonic() >= self._drain_until_s
        for connection in list(self._connections.values()):
            # One that an I/O thread has comes back: nobody else would close it where others go on.
            if not connection.is_busy() or (late and self._retiring and not connection.handed_over):
                self._close(connection)
        return not self._connections or (late and not self._retiring)

    def _on_event(self, connection: Connection, mask: int) -> None:
        if mask & BROKEN and not mask & READABLE:
            self._close(connection)
            return
        connection.last_active_ms = self._now_ms
        if connection.handshaking:
            self._handshake(connection)
            return
        if mask & WRITABLE and self._send(connection):
            self._continue(connection)
            return
        if not mask & (READABLE | BROKEN) or connection.closed:
            return
        if self._is_quiet(connection):
            self._read(connection)
        elif mask & BROKEN:
            self._close(connection)
        else:
            self._watch(connection, WRITABLE if connection.outbound.size_bytes else 0)

    def _close_idle(self) -> None:
        if self._settings.connections_max_idle_ms < 0:
            return
        limit_ms = self._now_ms - self._settings.connections_max_idle_ms
        for connection in list(self._connections.values()):
            waits_for_us = connection.handed_over or connection.in_flight is not None or connection.starved
            if connection.last_active_ms < limit_ms and not waits_for_us:
                _log.info("Closing %s: idle for %d ms", connection, self._now_ms - connection.last_active_ms)
                self._close(connection)

    def _close_excess(self) -> None:
        """Closes connections until there are no more than may be, the longest unused first."""
        if not any(map(self._exceeded, {each.listener.name for each in self._connections.values()})):
            return
        for connection in sorted(self._connections.values(), key=lambda each: each.last_active_ms):
            if not connection.is_busy() and self._exceeded(connection.listener.name):
                _log.info("Closing %s: more connections than may be (max.connections)", connection)
                self._close(connection)

    # Connections coming and going.

    def _register(self, connection: Connection) -> None:
        if self.draining:
            connection.closed = True
            connection.socket.close()
            self._on_closed(connection)
            return
        connection.last_active_ms = self._now_ms
        self._connections[connection.fd] = connection
        self._watch(connection, READABLE)

    def _take_back(self, connection: Connection) -> None:
        connection.handed_over = False
        connection.last_active_ms = self._now_ms
        self._watch(connection, READABLE)
        if self._send(connection):
            self._continue(connection)

    def _watch(self, connection: Connection, mask: int) -> None:
        if connection.mask is None:
            self._poller.register(connection.fd, mask)
        elif connection.mask != mask:
            self._poller.modify(connection.fd, mask)
        connection.mask = mask

    def _unwatch(self, connection: Connection) -> None:
        if connection.mask is not None:
            self._poller.unregister(connection.fd)
            connection.mask = None

    def _close(self, connection: Connection) -> None:
        if connection.closed:
            return
        self._unwatch(connection)
        del self._connections[connection.fd]
        connection.closed = True
        connection.socket.close()
        if connection.in_flight is None:
            connection.give_back_memory()
        self._on_closed(connection)

    def _lose(self, connection: Connection | None) -> None:
        """For an exception of whatever kind: it costs the connection, not the thread of all the others."""
        _log.exception("Closing %s", connection)
        if connection is not None:
            if connection.in_flight is not None and not connection.in_flight.parked:
                connection.in_flight = None
            self._break(connection)

    def _break(self, connection: Connection) -> None:
        """Closes a connection, or lets the I/O thread that has it find it broken."""
        if not connection.handed_over:
            self._close(connection)
            return
        with suppress(OSError):
            connection.socket.shutdown(socket.SHUT_RDWR)

    def _handshake(self, connection: Connection) -> None:
        try:
            connection.socket.do_handshake()  # type: ignore[attr-defined]  # of a TLS listener: an SSLSocket
        except ssl.SSLWantReadError:
            self._watch(connection, READABLE)
        except ssl.SSLWantWriteError:
            self._watch(connection, WRITABLE)
        except OSError as error:
            _log.info("Closing %s: TLS handshake failed: %s", connection, error)
            self._close(connection)
        else:
            connection.handshaking = False
            self._watch(connection, READABLE)
            self._read(connection)

    # Reading.

    def _read(self, connection: Connection) -> None:
        """One read; with TLS as many as it takes, for what the TLS layer holds no poller reports."""
        while self._read_once(connection) and self._is_quiet(connection) and connection.holds_decrypted():
            pass

    def _is_quiet(self, connection: Connection) -> bool:
        """Whether the connection may be read: ours, with nothing outstanding and nothing to send."""
        return not (
            connection.closed or connection.is_busy() or connection.starved or self._drain_until_s is not None
        )

    def _read_once(self, connection: Connection) -> bool:
        frame = connection.frame
        kept = len(connection.pending)
        if frame is not None:
            view = frame.room()[:_READ_BYTES]
        elif kept:
            self._buffer[:kept] = connection.pending
            view = self._view[kept:]
        else:
            view = self._view
        try:
            size = connection.socket.recv_into(view)
        except _NOTHING_TO_READ:
            return False
        except OSError as error:
            _log.debug("Closing %s: %s", connection, error)
            size = 0
        if size == 0:
            self._close(connection)
            return False
        if frame is None:
            self._process(connection, kept + size)
            return True
        frame.filled_bytes += size
        # A frame that trickles in is read here; one that flows is worth an I/O thread.
        if frame.complete or size == _READ_BYTES:
            view.release()
            self._hand_over(connection)
        return True

    def _continue(self, connection: Connection) -> None:
        """All is answered and sent: on with what was read already, and then with what comes."""
        if connection.starved:
            return
        if pending := connection.pending:
            self._buffer[: len(pending)] = pending
            self._process(connection, len(pending))
        if not self._is_quiet(connection):
            return
        self._watch(connection, READABLE)
        if connection.holds_decrypted():
            self._read(connection)

    def _process(self, connection: Connection, size: int) -> None:
        """Cuts the buffer's first `size` bytes into frames, and sends the answers that are there at once."""
        buffer = self._buffer
        position = 0
        hand_over = blocked = False
        while size - position >= 4 and not connection.closing:
            if self.memory is None:
                position = run_on(connection, self._run_frames, buffer, position, size)
                if connection.outbound.size_bytes >= _FLUSH_BYTES:
                    if self._send(connection):
                        continue
                    blocked = True
                    break
                if size - position < 4 or connection.closing:
                    break
            frame_bytes = INT32.unpack_from(buffer, position)[0]
            if not 0 < frame_bytes <= self._settings.request_max_bytes:
                self._refuse_frame(connection, frame_bytes)
                break
            end = position + 4 + frame_bytes
            large = frame_bytes > self._settings.inline_request_max_bytes
            if end > size and not large:
                break
            if self.memory is not None and not self._take_memory(connection, self.memory, frame_bytes):
                break
            if large:
                connection.frame = LargeFrame(frame_bytes, buffer[position + 4 : min(end, size)])
                position = min(end, size)
                hand_over = True
                break
            frame = buffer[position + 4 : end]
            position = end
            hand_over = not self._handle(connection, frame)
            if hand_over or connection.in_flight is not None:
                break
            if connection.outbound.size_bytes >= _FLUSH_BYTES and not self._send(connection):
                blocked = True
                break
        if connection.closed:
            return
        connection.pending = buffer[position:size] if position < size else b""
        # Once blocked, sending waits for the socket: that event, and no other, goes on with what is pending.
        if (connection.outbound.size_bytes or connection.closing) and not blocked:
            self._send(connection)
        # From here on the connection is the I/O thread's; what could not be sent is so too, in front of its
        # answer.
        if hand_over and not connection.closed:
            self._hand_over(connection)

    def _take_memory(self, connection: Connection, memory: MemoryPool, frame_bytes: int) -> bool:
        """False where the frame has to wait for memory; then the connection is not read meanwhile."""
        if memory.take(frame_bytes):
            connection.taken_bytes = frame_bytes
            return True
        connection.starved = True
        self._starved.append(connection)
        self._watch(connection, 0)
        return False

    def _feed(self) -> None:
        """Goes on with the connections that waited for memory, in the order in which they came."""
        for _ in range(len(self._starved)):
            connection = self._starved.popleft()
            connection.starved = False
            if not connection.closed and not connection.is_busy():
                self._continue(connection)

    def _refuse_frame(self, connection: Connection, frame_bytes: int) -> None:
        limit = self._settings.request_max_bytes
        what = f"a frame of {frame_bytes} bytes, allowed are 1 to {limit} (socket.request.max.bytes)"
        log_closing(connection, MalformedMessageError(what))
        connection.closing = True

    def _handle(self, connection: Connection, frame: bytearray) -> bool:
        """Has one small request handled, answered or not; False when it belongs on an I/O thread."""
        try:
            request = Request(connection, frame, self._now_ms)
        except KlogError as error:
            log_closing(connection, error)
            connection.closing = True
            return True
        connection.in_flight = request
        if self._may_block(request.api_key, request.api_version):
            request.queued_ns = time.perf_counter_ns()
            return False
        work_on(request, self._work, self._failed)
        if not request.park():
            queue_answer(request)
        return True

    # To the I/O threads.

    def _hand_over(self, connection: Connection) -> None:
        self._unwatch(connection)
        connection.handed_over = True
        self._backlog.append(connection)
        self._offer_backlog()

    def _offer_backlog(self) -> None:
        while self._backlog and self._channel.offer(self._backlog[0]):
            self._backlog.popleft()

    # Sending.

    def _complete(self, request: Request) -> None:
        connection = request.connection
        if connection.closed:
            connection.give_back_memory()
            return
        connection.last_active_ms = self._now_ms
        queue_answer(request)
        if self._send(connection):
            self._continue(connection)

    def _send(self, connection: Connection) -> bool:
        """Sends what can be sent; True when nothing is left and the connection lives on."""
        try:
            sent_all = connection.outbound.flush(connection.socket)
        except KlogError as error:
            log_closing(connection, error)
            self._close(connection)
            return False
        except OSError as error:
            _log.debug("Closing %s: %s", connection, error)
            self._close(connection)
            return False
        if not sent_all:
            self._watch(connection, WRITABLE)
            return False
        if connection.closing:
            self._close(connection)
            return False
        if connection.mask == WRITABLE:
            self._watch(connection, READABLE)
        return connection.in_flight is None
