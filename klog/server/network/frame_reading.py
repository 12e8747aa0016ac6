"""Reads connections, cuts what was read into frames and has the requests in them handled.

All that one read brought is handled before the next read, and its answers are sent together. A frame that is
too large to be read here, or whose request may block, goes to an I/O thread with its connection.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from enum import Enum, auto
from typing import Final

from klog.formats.errors import KlogError
from klog.protocol.apis import ApiKey
from klog.protocol.errors import MalformedMessageError
from klog.protocol.primitives import INT16, INT32
from klog.security.authentication.steps import AuthenticationStep
from klog.server.network.connection import Connection
from klog.server.network.connection_registry import ConnectionRegistry
from klog.server.network.dispatch import log_closing, run_on, serve_frame
from klog.server.network.handler import Handler
from klog.server.network.large_frame import LargeFrame
from klog.server.network.memory_pool import MemoryPool
from klog.server.network.opening import Opening
from klog.server.network.phases import Phase
from klog.server.network.poller import READABLE
from klog.server.network.sending import Sender
from klog.server.network.settings import NetworkSettings

_log = logging.getLogger("klog.server.network")

# How much of a large frame is read at once, and how much is collected before it is sent.
READ_BYTES: Final = 64 * 1024
_FLUSH_BYTES: Final = 256 * 1024
# The size and the API key of a frame end here.
_API_KEY_END: Final = INT32.size + INT16.size
# Some texts hold names that the client has chosen.
_LOGGED_CHARACTERS: Final = 300

# The first bytes of clients that speak no Kafka: the TLS record of a handshake (version 3.1 or 3.3), HTTP.
_TLS_CLIENT: Final = "the client speaks TLS, and this listener does not (client: security.protocol=PLAINTEXT)"
_OTHER_PROTOCOLS: Final = {
    b"\x16\x03\x01": _TLS_CLIENT,
    b"\x16\x03\x03": _TLS_CLIENT,
    **dict.fromkeys((b"GET", b"HEA", b"POS", b"PUT"), "the client speaks HTTP, and this is a port for Kafka"),
}


class _Progress(Enum):
    """Why the handling of what was read has ended."""

    DONE = auto()
    BLOCKED = auto()
    HAND_OVER = auto()


class FrameReader:
    """Used by its network thread only, which sets `now_ms` in each turn of its loop. While `paused` nothing
    is read. `hand_over` gives a connection to the I/O threads; `schedule` has something done for a connection
    in so many ms. `read_bytes` is what one call reads at least.
    """

    def __init__(
        self,
        settings: NetworkSettings,
        handler: Handler,
        memory: MemoryPool | None,
        registry: ConnectionRegistry,
        sender: Sender,
        hand_over: Callable[[Connection], None],
        schedule: Callable[[int, Callable[[], None], Connection], None],
        read_bytes: int,
        opening: Opening,
    ) -> None:
        self._settings = settings
        self._may_block = handler.may_block
        self._work = handler.handle
        self._run_frames = handler.handle_run
        self._failed = handler.failed
        self._memory = memory
        self._registry = registry
        self._send = sender.send
        self._hand_over = hand_over
        self._schedule = schedule
        self._opening = opening
        self._held: deque[Connection] = deque()
        self._buffer = bytearray(settings.inline_request_max_bytes + 4 + read_bytes)
        self._view = memoryview(self._buffer)
        self.now_ms = 0
        self.paused = False

    def may_read(self, connection: Connection) -> bool:
        """Whether a connection may be read now: it is this thread's, and waits for nothing."""
        return not (
            self.paused or connection.closed or connection.is_busy() or connection.held or connection.muted
        )

    def read(self, connection: Connection) -> None:
        """Reads once. With TLS it reads until nothing is left that no poller would report."""
        while self._read_once(connection) and self.may_read(connection) and connection.holds_received():
            pass

    def resume(self, connection: Connection) -> None:
        """Goes on after all answers are sent: first with what was read already, then with what comes."""
        if connection.held or connection.muted:
            return
        if pending := connection.pending:
            self._buffer[: len(pending)] = pending
            self._process(connection, len(pending))
        if not self.may_read(connection):
            return
        self._registry.watch(connection, READABLE)
        if connection.holds_received():
            self.read(connection)

    def resume_held(self) -> None:
        """Goes on with the connections that waited for memory, or for the server to open, in the order in
        which they came.
        """
        for _ in range(len(self._held)):
            connection = self._held.popleft()
            connection.held = False
            if not connection.closed and not connection.is_busy():
                self.resume(connection)

    # Reading.

    def _read_once(self, connection: Connection) -> bool:
        """Reads at most one buffer; False if there was nothing, or the connection is closed."""
        frame = connection.frame
        kept = len(connection.pending)
        if frame is not None:
            view = frame.unfilled()[:READ_BYTES]
        elif kept:
            self._buffer[:kept] = connection.pending
            view = self._view[kept:]
        else:
            view = self._view
        try:
            size = connection.socket.recv_into(view)
        except BlockingIOError:
            return False
        except OSError as error:
            _log.debug("Closing %s: %s", connection, error)
            size = 0
        if size == 0:
            self._registry.close(connection)
            return False
        traffic = connection.traffic
        traffic.moved_bytes += size
        if frame is None:
            traffic.turns += _requests_in(self._buffer, kept + size)
            self._process(connection, kept + size)
            return True
        traffic.turns += 1
        frame.filled_bytes += size
        if connection.phase is not Phase.OPEN:
            if frame.complete:
                connection.frame = None
                self._authenticate(connection, frame.buffer)
                self._process(connection, 0)
            return True
        # A frame that comes in small pieces is read here. One that comes fast is worth an I/O thread.
        if frame.complete or size == READ_BYTES:
            view.release()
            self._hand_over(connection)
        return True

    def _process(self, connection: Connection, size: int) -> None:
        """Handles the whole frames in the buffer's first `size` bytes, and sends their answers."""
        position, outcome = self._handle_frames(connection, size)
        if connection.closed:
            return
        connection.pending = self._buffer[position:size] if position < size else b""
        self.begin_throttle(connection)
        # If the socket is full, the event that it takes more goes on with what is pending; nothing else does.
        if (connection.outbound.size_bytes or connection.closing) and outcome is not _Progress.BLOCKED:
            self._send(connection)
        # An I/O thread sends what could not be sent here, before its own answer.
        if (outcome is _Progress.HAND_OVER or connection.outbound.is_cold) and not connection.closed:
            self._hand_over(connection)

    def _handle_frames(self, connection: Connection, size: int) -> tuple[int, _Progress]:
        """Handles frames while the connection may go on; returns where the rest begins, and why it ended."""
        buffer = self._buffer
        outbound = connection.outbound
        position = 0
        while size - position >= 4 and not (connection.closing or connection.muted or connection.throttle_ms):
            if outbound.size_bytes >= _FLUSH_BYTES and not self._send(connection):
                return position, _Progress.BLOCKED
            if not (self._opening.is_open or self._serves_early(connection, position, size)):
                break
            # A handler that reads several frames does not know how large one may be.
            if connection.session is not None and not self._is_in_session(connection, position, size):
                break
            is_allowed = size <= self._settings.request_max_bytes
            if is_allowed and self._memory is None and connection.phase is Phase.OPEN:
                start, position = position, run_on(connection, self._run_frames, buffer, position, size)
                if connection.in_flight is not None:
                    break
                if position > start or connection.closing:
                    continue
            frame_bytes = INT32.unpack_from(buffer, position)[0]
            if not 0 < frame_bytes <= self._allowed_bytes(connection):
                self._refuse_frame(connection, frame_bytes)
                break
            end = position + 4 + frame_bytes
            is_open = connection.phase is Phase.OPEN
            large = frame_bytes > self._settings.inline_request_max_bytes and (is_open or end > size)
            if end > size and not large:
                break
            if (
                is_open
                and self._memory is not None
                and not self._take_memory(connection, self._memory, frame_bytes)
            ):
                break
            if large:
                connection.frame = LargeFrame(frame_bytes, buffer[position + 4 : min(end, size)])
                return min(end, size), _Progress.HAND_OVER if is_open else _Progress.DONE
            frame = buffer[position + 4 : end]
            position = end
            if not is_open:
                self._authenticate(connection, frame)
            elif not self._handle(connection, frame):
                return position, _Progress.HAND_OVER
            elif connection.in_flight is not None:
                break
        return position, _Progress.DONE

    def _serves_early(self, connection: Connection, position: int, size: int) -> bool:
        """Whether a frame may be handled before the server is open. If not, the connection waits, or its next
        bytes will tell what the request is.
        """
        if connection.phase is not Phase.OPEN:
            return True
        if size - position < _API_KEY_END:
            return False
        if self._opening.serves(INT16.unpack_from(self._buffer, position + INT32.size)[0]):
            return True
        self._hold(connection)
        return False

    def _take_memory(self, connection: Connection, memory: MemoryPool, frame_bytes: int) -> bool:
        """False if the frame has to wait for memory; the connection is not read meanwhile."""
        if memory.take(frame_bytes):
            connection.taken_bytes = frame_bytes
            return True
        self._hold(connection)
        return False

    def _hold(self, connection: Connection) -> None:
        """Leaves the frame where it is; the connection is not read until `resume_held`."""
        connection.held = True
        self._held.append(connection)
        self._registry.watch(connection, 0)

    def _allowed_bytes(self, connection: Connection) -> int:
        """How large a frame may be at present."""
        authentication = connection.authentication
        return self._settings.request_max_bytes if authentication is None else authentication.max_frame_bytes

    def _refuse_frame(self, connection: Connection, frame_bytes: int) -> None:
        limit = self._allowed_bytes(connection)
        config = (
            "socket.request.max.bytes"
            if connection.authentication is None
            else "sasl.server.max.receive.size"
        )
        what = _OTHER_PROTOCOLS.get(INT32.pack(frame_bytes)[:3])
        if what is None:
            what = f"a frame of {frame_bytes} bytes, allowed are 1 to {limit} ({config})"
        log_closing(connection, MalformedMessageError(what))

    # Authentication.

    def _authenticate(self, connection: Connection, frame: bytearray) -> None:
        """Gives a frame to the connection's authentication, and does what that has led to."""
        if connection.authentication is None:
            return
        try:
            step = connection.authentication.take_frame(frame)
        except KlogError as error:
            log_closing(connection, error)
            return
        except Exception:
            # Of any kind: it costs the connection, not the thread.
            _log.exception("Closing %s: its authentication failed", connection)
            connection.closing = True
            return
        if step.failed:
            self._fail_later(connection, step)
            return
        connection.outbound.add(step.answer)
        if step.principal is not None:
            connection.open(step.principal, step.session)
            connection.last_active_ms = self.now_ms

    def _is_in_session(self, connection: Connection, position: int, size: int) -> bool:
        """Whether the next request may be handled. One that comes after the session's end closes the
        connection, unless it begins another authentication (KIP-368).
        """
        session = connection.session
        if session is None:
            return True
        is_known = size - position >= _API_KEY_END
        api_key = INT16.unpack_from(self._buffer, position + INT32.size)[0] if is_known else None
        if api_key == ApiKey.SASL_HANDSHAKE and self.now_ms >= session.renewable_from_ms:
            connection.authenticate_again(session)
        elif self.now_ms > session.expires_ms and is_known:
            _log.info("Closing %s: its session has expired, and it has not authenticated again", connection)
            connection.closing = True
            return False
        return is_known

    def _fail_later(self, connection: Connection, step: AuthenticationStep) -> None:
        """Sends the answer and closes the connection after the delay that slows down guessing."""

        def fail() -> None:
            if not connection.closed:
                connection.outbound.add(step.answer)
                connection.closing = True
                self._send(connection)

        _log.info("Failed authentication with %s (%s)", connection, step.why[:_LOGGED_CHARACTERS])
        connection.muted = True
        self._schedule(self._settings.failed_authentication_delay_ms, fail, connection)

    # Throttling.

    def begin_throttle(self, connection: Connection) -> None:
        """Mutes a connection for the time that its last answer says (KIP-219)."""
        if not connection.throttle_ms:
            return

        def unmute() -> None:
            connection.muted = False
            connection.last_active_ms = self.now_ms
            if not connection.closed and not connection.is_busy():
                self.resume(connection)

        connection.muted = True
        self._schedule(connection.throttle_ms, unmute, connection)
        connection.throttle_ms = 0

    # Handling.

    def _handle(self, connection: Connection, frame: bytearray) -> bool:
        """Has one small request handled; False if it belongs on an I/O thread."""
        return serve_frame(connection, frame, self.now_ms, self._may_block, self._work, self._failed)


def _requests_in(buffer: bytearray, size: int) -> int:
    """How many requests the first `size` bytes of the buffer hold if all are as large as the first one; at
    least 1.
    """
    first_bytes = 4 + INT32.unpack_from(buffer)[0] if size >= INT32.size else 0
    return size // first_bytes if 0 < first_bytes <= size else 1
