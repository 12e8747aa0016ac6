"""What the network threads of a simulated broker do: frames in, frames out, by the real broker's handlers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from klog.protocol.primitives import INT32
from klog.server.handlers.dispatch import Dispatcher
from klog.server.network.connection import Connection
from klog.server.network.dispatch import queue_answer, run_on, serve_frame, work_on
from klog.server.network.outbound import Outbound
from klog.server.network.request import Request
from klog.server.network.settings import Listener
from klog.server.startup.routes import HandlerServices, routes
from tests.simulation.scheduler import stream

if TYPE_CHECKING:
    from tests.simulation.broker import SimulatedBroker

_LISTENER = Listener("PLAINTEXT", "localhost", 0)
_PEER = ("client", 0)
# The share of messages that are offered to the paths for usual frames.
_RUNS = 0.7


class _Output:
    """The socket of a connection; it takes everything. `on_sent` is told of what is sent at a time."""

    __slots__ = ("on_sent", "sent")

    def __init__(self) -> None:
        self.sent = bytearray()
        self.on_sent: Callable[[bytes], object] = _ignore

    def send(self, data: bytes) -> int:
        self.sent += data
        if self.on_sent is not _ignore:
            self.on_sent(bytes(data))
        return len(data)


def _is_cached(_slice: object) -> bool:
    return True


def _ignore(_sent: bytes) -> None:
    """The answers are looked at when all are there."""


def _ignore_frames(_frames: int) -> None:
    """Nobody asks when a frame is handled."""


class ServedConnection(Connection):
    """A connection on which one message at a time comes: one request, or several that a client sends
    together.
    """

    __slots__ = ("answer", "buffer", "is_served", "on_handled", "output", "position", "uses_runs")

    def __init__(self, serving: Serving) -> None:
        self.output = _Output()
        super().__init__(cast(Any, self.output), _LISTENER, _PEER, cast(Any, serving))
        # As for TLS: file slices are read into memory.
        self.outbound = Outbound(tls=True, is_cached=_is_cached)
        self.is_served = False

    def take(
        self,
        frames: bytes,
        answer: Callable[[bytes], None],
        on_sent: Callable[[bytes], object],
        on_handled: Callable[[int], object],
        *,
        uses_runs: bool,
    ) -> None:
        """The next message."""
        self.on_handled = on_handled
        self.buffer = bytearray(frames)
        self.position = 0
        self.answer = answer
        self.uses_runs = uses_runs
        self.output.sent.clear()
        self.output.on_sent = on_sent


class Serving:
    """Serves messages. By the seed some are offered to the paths for usual frames, as all are in a broker."""

    memory = None

    def __init__(self, broker: SimulatedBroker, parts: HandlerServices) -> None:
        self._dispatcher = Dispatcher(routes(parts), parts.counters, parts.clock_ns)
        self._broker = broker
        # Connections on which all is answered.
        self._idle: list[ServedConnection] = []
        self._random = stream(broker.world.schedule.seed, "serving", broker.broker_id, broker.world.starts)

    def serve(
        self,
        frames: bytes,
        answer: Callable[[bytes], None],
        on_sent: Callable[[bytes], object] = _ignore,
        on_handled: Callable[[int], object] = _ignore_frames,
    ) -> None:
        """Handle requests. `answer` is called once, with all their answers; not at all if the connection
        breaks. `on_sent` is told of answers when they are sent, `on_handled` how many requests are handled
        now.
        """
        connection = self._idle.pop() if self._idle else ServedConnection(self)
        connection.take(frames, answer, on_sent, on_handled, uses_runs=self._random.random() < _RUNS)
        self._go_on(connection)

    def complete(self, connection: Connection, request: Request) -> None:
        """An answer is there that the connection waits for. In the broker another thread calls this."""
        served = cast(ServedConnection, connection)
        if not served.is_served:
            self._go_on(served)

    def soon(self, connection: Connection, run: Callable[[], None]) -> None:
        """In the broker the network thread runs it later."""
        run()

    def _go_on(self, connection: ServedConnection) -> None:
        """Do what `FrameReader` and an I/O thread do, as far as answers are there."""
        buffer, end = connection.buffer, len(connection.buffer)
        connection.is_served = True
        while not connection.closing:
            request = connection.in_flight
            if request is not None:
                if not request.answered:
                    break
                queue_answer(connection, request)
            elif connection.position == end:
                break
            else:
                self._serve_next(connection, buffer, end)
            connection.outbound.flush(connection.socket)
        connection.is_served = False
        if connection.in_flight is None and not connection.closing:
            answer, answers = connection.answer, bytes(connection.output.sent)
            self._idle.append(connection)
            answer(answers)

    def _serve_next(self, connection: ServedConnection, buffer: bytearray, end: int) -> None:
        start = connection.position
        if connection.uses_runs:
            connection.position = run_on(connection, self._dispatcher.handle_run, buffer, start, end)
            if connection.position > start:
                self._broker.world.counts["frames in runs"] += 1
                connection.on_handled(_frames_in(buffer, start, connection.position))
                return
        if connection.closing:
            return
        after = start + INT32.size + INT32.unpack_from(buffer, start)[0]
        connection.position = after
        frame = buffer[start + INT32.size : after]
        connection.on_handled(1)
        work, failed = self._dispatcher.handle, self._dispatcher.failed
        if serve_frame(connection, frame, 0, self._dispatcher.may_block, work, failed):
            return
        request = connection.in_flight
        assert request is not None
        request.on_io_thread = True
        work_on(request, work, failed)
        request.park()


def _frames_in(buffer: bytearray, start: int, end: int) -> int:
    count = 0
    while start < end:
        start += INT32.size + INT32.unpack_from(buffer, start)[0]
        count += 1
    return count
