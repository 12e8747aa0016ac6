"""What the network threads of a simulated broker do: frames in, frames out, by the real broker's handlers."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from klog.formats.errors import StorageError
from klog.protocol.file_slice import BodyPart, FileSlice, LazyBytes
from klog.protocol.primitives import INT32, Buffer
from klog.server.handlers.dispatch import Dispatcher
from klog.server.network.connection import Connection
from klog.server.network.dispatch import queue_answer, run_on, serve_frame, work_on
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
# The share of what a network thread is to do soon that it does later, after other work, and when on average.
_LATER = 0.3
_MEAN_LATER_US = 5_000


class _Answers:
    """What a connection has to send, in place of an `Outbound`: the client takes everything when it is sent.

    `on_sent` is told of what is sent at a time.
    """

    __slots__ = ("_waiting", "on_sent", "sent", "size_bytes")

    def __init__(self) -> None:
        self.sent = bytearray()
        self.size_bytes = 0
        self._waiting: list[Buffer] = []
        self.on_sent: Callable[[bytes], object] | None = None

    def add(self, part: BodyPart) -> None:
        """As `Outbound.add`; all slices are read into memory."""
        if isinstance(part, FileSlice):
            data = os.pread(part.file.fileno(), part.size_bytes, part.position_bytes)
            if len(data) < part.size_bytes:
                raise StorageError("the file ends before the records", position_bytes=part.position_bytes)
            part = data
        assert not isinstance(part, LazyBytes), "no client of the simulation asks for old records"
        self.size_bytes += len(part)
        self._waiting.append(part)

    def send(self) -> None:
        """Let the client have everything."""
        if self._waiting:
            data = b"".join(self._waiting)
            self._waiting.clear()
            self.size_bytes = 0
            self.sent += data
            if self.on_sent is not None:
                self.on_sent(data)


def _ignore_frames(_frames: int) -> None:
    """Nobody asks when a frame is handled."""


class ServedConnection(Connection):
    """A connection on which one message at a time comes: one request, or several that a client sends
    together.
    """

    __slots__ = ("answer", "answers", "buffer", "is_served", "on_handled", "position", "uses_runs")

    def __init__(self, serving: Serving) -> None:
        super().__init__(cast(Any, None), _LISTENER, _PEER, cast(Any, serving))
        self.answers = _Answers()
        self.outbound = cast(Any, self.answers)
        self.is_served = False

    def take(
        self,
        frames: bytes,
        answer: Callable[[bytes], None],
        on_sent: Callable[[bytes], object] | None,
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
        self.answers.sent.clear()
        self.answers.on_sent = on_sent


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
        on_sent: Callable[[bytes], object] | None = None,
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
        """An answer is there that the connection waits for. In the broker any thread calls this, perhaps with
        locks that the next request needs: its network thread serves that.
        """
        served = cast(ServedConnection, connection)
        if served.is_served:
            return
        queue_answer(served, request)
        served.answers.send()
        if served.position < len(served.buffer):
            self._broker.after(0, lambda: self._go_on(served))
        else:
            self._go_on(served)

    def soon(self, connection: Connection, run: Callable[[], None]) -> None:
        """Run it at once, or after other work that the network thread has, as the seed says. A connection has
        one request at a time, and so one call that waits.
        """
        if self._random.random() < _LATER:
            self._broker.world.counts["done later"] += 1
            self._broker.after(int(self._random.expovariate(1 / _MEAN_LATER_US)) + 1, run)
        else:
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
            connection.answers.send()
        connection.is_served = False
        if connection.in_flight is None and not connection.closing:
            answer, answers = connection.answer, bytes(connection.answers.sent)
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
