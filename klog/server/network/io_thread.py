"""An I/O thread: reads large frames into buffers of their own, runs what may block, sends what is on a disk.

It has the connection to itself and keeps it while large frames follow each other, so a producer of large
requests needs no change of threads. It never waits long: a client that pauses inside a frame goes back to its
network thread, and connections that wait in the channel go first between frames.
"""

from __future__ import annotations

import logging
import select
import socket
import struct
import threading
import time
from collections.abc import Callable, Sequence
from typing import Final

from klog.formats.errors import KlogError
from klog.protocol.primitives import INT32
from klog.server.network.connection import Connection
from klog.server.network.dispatch import log_closing, queue_answer, work_on
from klog.server.network.handler import Handler
from klog.server.network.large_frame import LargeFrame
from klog.server.network.network_thread import NetworkThread
from klog.server.network.request import Request
from klog.server.network.request_channel import RequestChannel
from klog.server.network.settings import NetworkSettings

_log = logging.getLogger("klog.server.network")

# How long to wait for more of a frame, and for the next frame; and how much of a frame has to come in that
# time for the thread to go on with it.
_PAUSE_MS: Final = 10
_NEXT_FRAME_MS: Final = 2
_FLOWING_BYTES: Final = 64 * 1024
# A buffer up to this size is kept for the next frame: new memory costs more than the work on the frame.
_KEPT_MAX_BYTES: Final = 2 * 1024 * 1024
_PAUSE_TIMEVAL: Final = struct.pack("ll", 0, _PAUSE_MS * 1000)


def bound_blocking_reads(sock: socket.socket) -> None:
    """Limits the time of the blocking reads of an I/O thread. Other reads do not block."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _PAUSE_TIMEVAL)


class IoThread:
    """Serves the request channel until that ends it. `networks` may change meanwhile."""

    def __init__(
        self,
        name: str,
        settings: NetworkSettings,
        handler: Handler,
        channel: RequestChannel,
        networks: Sequence[NetworkThread],
        clock_ms: Callable[[], int],
        on_end: Callable[[IoThread], None],
    ) -> None:
        self._settings = settings
        self._work = handler.handle
        self._failed = handler.failed
        self._channel = channel
        self._networks = networks
        self._clock_ms = clock_ms
        self._on_end = on_end
        self._kept_buffer = bytearray()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        # Seconds waited for work so far, and since when it waits now. It is one value because other threads
        # read it at any time.
        self._waited: tuple[float, float | None] = 0.0, None

    @property
    def waited_s(self) -> float:
        """Seconds spent waiting for work, the present wait included."""
        waited_s, since_s = self._waited
        return waited_s if since_s is None else waited_s + time.monotonic() - since_s

    def start(self) -> None:
        """Begins to serve."""
        self._thread.start()

    def join(self, timeout_s: float) -> bool:
        """Waits for the thread to end; False if it has not."""
        if self._thread.ident is not None:
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while True:
            waited_s = self._waited[0]
            since_s = time.monotonic()
            self._waited = waited_s, since_s
            connection = self._channel.take()
            self._waited = waited_s + time.monotonic() - since_s, None
            if connection is None:
                self._on_end(self)
                return
            for network in tuple(self._networks):
                network.channel_available()
            try:
                self._serve(connection)
            except Exception:
                # Of any kind: it costs the connection, not the thread.
                _log.exception("Closing %s", connection)
                connection.in_flight = None
                connection.outbound.clear()
                connection.closing = True
                connection.network.take_back(connection)

    def _serve(self, connection: Connection) -> None:
        """Works on a connection until it gives it back."""
        network = connection.network
        if connection.outbound.is_cold and not self._send_cold(connection):
            network.take_back(connection)
            return
        while True:
            request = connection.in_flight or self._read_request(connection)
            if request is None:
                network.take_back(connection)
                return
            request.on_io_thread = True
            work_on(request, self._work, self._failed)
            if not request.answered:
                # The network thread must have the connection before the answer can reach it.
                network.take_back(connection)
                if not request.park():
                    network.complete(connection, request)
                return
            queue_answer(connection, request)
            if connection.throttle_ms or not self._send(connection) or not self._begin_next(connection):
                network.take_back(connection)
                return
            if len(self._channel):
                self._channel.put_back(connection)
                return
            # The request views its frame's buffer, which the next frame uses again.
            del request

    def _read_request(self, connection: Connection) -> Request | None:
        """Reads the request of the large frame; None if the frame is not complete yet, or is no request."""
        frame = connection.frame
        if frame is None:
            return None
        if frame.size_bytes <= _KEPT_MAX_BYTES and len(self._kept_buffer) > len(frame.buffer):
            frame.move_into(self._kept_buffer)
            self._kept_buffer = bytearray()
        if not self._fill(connection, frame):
            return None
        connection.frame = None
        if frame.size_bytes <= _KEPT_MAX_BYTES:
            self._kept_buffer = frame.buffer
        try:
            request = Request(connection, frame.buffer, self._clock_ms())
        except KlogError as error:
            log_closing(connection, error)
            return None
        connection.in_flight = request
        return request

    def _fill(self, connection: Connection, frame: LargeFrame) -> bool:
        """Reads until the frame is complete; False if the client pauses or is gone."""
        try:
            return _fill(connection, frame)
        except OSError as error:
            log_closing(connection, error)
            return False

    def _send_cold(self, connection: Connection) -> bool:
        """Sends what has to be read from a disk; True if there is a request to go on with."""
        while not self._send(connection) and not connection.closing:
            if not _ready(connection, select.POLLOUT, _PAUSE_MS):
                break
        request = connection.in_flight
        if connection.closing or (request is not None and request.parked):
            return False
        return request is not None or connection.frame is not None

    def _send(self, connection: Connection) -> bool:
        """True if all is sent and the connection lives on."""
        try:
            sent_all = connection.outbound.flush(connection.socket, may_wait=True)
            if sent_all:
                connection.count_sent()
            return sent_all and not connection.closing
        except (KlogError, OSError) as error:
            log_closing(connection, error)
        # What is left cannot be sent, so the network thread closes the connection at once.
        connection.outbound.clear()
        return False

    def _begin_next(self, connection: Connection) -> bool:
        """Begins the next large frame; False if none follows at once."""
        if connection.network.draining:
            return False
        if connection.session is not None:
            # The network thread looks whether it has expired.
            return False
        pending = connection.pending
        if len(pending) < INT32.size:
            if len(self._channel) or not _ready(connection, select.POLLIN, _NEXT_FRAME_MS):
                return False
            try:
                pending = bytes(pending) + connection.socket.recv(INT32.size - len(pending))
            except BlockingIOError:
                return False
            except OSError as error:
                _log.debug("Closing %s: %s", connection, error)
                connection.closing = True
                return False
            if len(pending) == len(connection.pending):
                connection.closing = True
                return False
            connection.pending = pending
            if len(pending) < INT32.size:
                return False
        size = INT32.unpack_from(pending, 0)[0]
        if not self._settings.inline_request_max_bytes < size <= self._settings.request_max_bytes:
            return False
        memory = connection.network.memory
        if memory is not None:
            if not memory.take(size):
                return False
            connection.taken_bytes = size
        connection.frame = LargeFrame(size, pending[4 : 4 + size], expected_bytes=size)
        connection.pending = pending[4 + size :]
        return True


def _ready(connection: Connection, event: int, timeout_ms: int) -> bool:
    """Whether the socket can be read (POLLIN) or written (POLLOUT) within so many ms."""
    if event == select.POLLIN and connection.holds_received():
        return True
    poll = select.poll()
    poll.register(connection.fd, event)
    return bool(poll.poll(timeout_ms))


def _fill(connection: Connection, frame: LargeFrame) -> bool:
    """Reads with one call a buffer. It blocks until the buffer is full or the client pauses (SO_RCVTIMEO)."""
    sock = connection.socket
    sock.setblocking(True)
    try:
        while not frame.complete:
            with frame.unfilled() as view:
                wanted = len(view)
                size = sock.recv_into(view, 0, socket.MSG_WAITALL)
            if size == 0:
                connection.closing = True
                return False
            frame.filled_bytes += size
            if size < min(wanted, _FLOWING_BYTES):
                return frame.complete
    except BlockingIOError:
        return False
    finally:
        sock.setblocking(False)
    return True
