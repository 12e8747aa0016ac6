"""A connection whose frames are served by one handler, without sockets and threads."""

from __future__ import annotations

import os
from collections.abc import Callable

from klog.formats.errors import KlogError
from klog.protocol.apis import SERVED
from klog.protocol.file_slice import BodyPart, FileSlice
from klog.server.counters.request_times import RequestCounters
from klog.server.counters.topic_stats import BrokerTopicStats, TopicStats
from klog.server.handlers.dispatch import Dispatcher, Route
from klog.server.network.connection import Connection
from klog.server.network.dispatch import queue_answer, run_on, work_on
from klog.server.network.request import Request
from klog.server.network.settings import Listener
from tests.server.handlers.parts import LISTENER


class Outbound:
    """What is to be sent, kept as it was added."""

    def __init__(self) -> None:
        self.parts: list[BodyPart] = []

    @property
    def size_bytes(self) -> int:
        return sum(part.size_bytes if isinstance(part, FileSlice) else len(part) for part in self.parts)

    def add(self, part: BodyPart) -> None:
        # The memory of answers is used again.
        self.parts.append(part if isinstance(part, FileSlice) else bytes(part))

    def read(self) -> bytes:
        return b"".join(
            os.pread(part.file.fileno(), part.size_bytes, part.position_bytes)
            if isinstance(part, FileSlice)
            else part
            for part in self.parts
        )

    def take(self) -> bytearray:
        """What is to be sent, which is nothing then."""
        taken = bytearray(self.read())
        self.parts.clear()
        return taken


class Network:
    """A network thread that nobody waits for."""

    memory = None

    def complete(self, connection: Connection, request: Request) -> None:
        queue_answer(connection, request)

    def soon(self, connection: Connection, run: Callable[[], None]) -> None:
        run()


class FrameClient:
    """`in_runs` counts the bytes of frames that the route's `run` has answered."""

    def __init__(self, api_key: int, route: Route, counters: RequestCounters, outbound: Outbound) -> None:
        self.counters = counters
        routes = {key: Route(Request.close_connection) for key in SERVED}
        routes[api_key] = route
        self.dispatcher = Dispatcher(routes, counters, lambda: 0)
        listener = Listener(LISTENER, "127.0.0.1", 0)
        self.connection = Connection(None, listener, ("127.0.0.1", 1), Network())
        self.connection.outbound = outbound
        self.in_runs = 0

    def receive(self, data: bytes) -> None:
        """Serve the frames of one read, as a network thread does."""
        buffer, connection, position = bytearray(data), self.connection, 0
        while not connection.closing:
            after = run_on(connection, self.dispatcher.handle_run, buffer, position, len(buffer))
            if connection.closing:
                return
            self.in_runs += after - position
            position = after
            size = int.from_bytes(buffer[position : position + 4], "big", signed=True)
            if size <= 0 or len(buffer) - position < 4 + size:
                return
            self.serve(buffer[position + 4 : position + 4 + size])
            position += 4 + size

    def serve(self, frame: bytearray) -> None:
        try:
            request = Request(self.connection, frame, 0)
        except KlogError:
            self.connection.closing = True
            return
        work_on(request, self.dispatcher.handle, self.dispatcher.failed)
        if not request.park():
            queue_answer(self.connection, request)


def traffic_of(stats: BrokerTopicStats) -> dict[str, list[int]]:
    """The counts of each topic."""
    return {
        topic: [getattr(counts, name) for name in TopicStats.__slots__]
        for topic, counts in stats.topics.items()
    }
