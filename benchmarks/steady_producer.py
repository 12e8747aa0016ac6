"""Small Produce requests at a steady rate, and how long each took."""

from __future__ import annotations

import selectors
import socket
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from benchmarks.measure import BenchmarkError
from benchmarks.request_frames import batch_of, produce_answer, produce_frame

SMALL_TOPIC = "small"
SMALL_BATCH_BYTES = 200
SMALL_PER_S = 2000
_SMALL_CONNECTIONS = 8


@dataclass(frozen=True)
class Latencies:
    """Of small requests, in ms; and how fast the consumer beside them was."""

    p50: float
    p99: float
    most: float
    consumed_mib_s: float = 0.0
    requests: int = 0


def latencies(taken_ms: list[float], consumed_mib_s: float = 0.0) -> Latencies:
    """Sums up what `small_requests` has taken."""
    taken_ms.sort()
    p50, p99 = (taken_ms[int(len(taken_ms) * share)] for share in (0.5, 0.99))
    return Latencies(p50, p99, taken_ms[-1], consumed_mib_s, len(taken_ms))


@dataclass
class _Client:
    """A connection of small requests: when each that has no answer yet was due, and what was received."""

    sock: socket.socket
    due_s: deque[float] = field(default_factory=deque)
    received: bytearray = field(default_factory=bytearray)

    def answered(self) -> int:
        """Reads what is there; how many answers are complete now."""
        self.received += self.sock.recv(65536)
        count = 0
        while len(self.received) >= 4:
            size = 4 + int.from_bytes(self.received[:4], "big")
            if len(self.received) < size:
                break
            if any(
                self.received[at] or self.received[at + 1] for at in produce_answer(SMALL_TOPIC).errors_at
            ):
                raise BenchmarkError("a small request is answered with an error")
            del self.received[:size]
            count += 1
        return count


def small_requests(port: int, goes_on: Callable[[], bool]) -> list[float]:
    """Latencies in ms of requests at a steady rate, on several connections in turn.

    They are sent whether earlier ones are answered or not. A latency counts from the time at which the
    request was due, because a request that waits delays those behind it.
    """
    frame = produce_frame(SMALL_TOPIC, batch_of(SMALL_BATCH_BYTES))
    selector = selectors.SelectSelector()  # epoll waits for whole milliseconds
    clients = [_Client(socket.create_connection(("127.0.0.1", port))) for _ in range(_SMALL_CONNECTIONS)]
    for client in clients:
        client.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        selector.register(client.sock, selectors.EVENT_READ, client)
    taken_ms: list[float] = []
    start_s, sent, running = time.perf_counter(), 0, True
    while running or any(client.due_s for client in clients):
        next_s = start_s + sent / SMALL_PER_S
        now_s = time.perf_counter()
        if running and now_s >= next_s:
            client = clients[sent % len(clients)]
            client.due_s.append(next_s)
            client.sock.sendall(frame)
            sent += 1
            running = sent % 16 != 0 or goes_on()
        timeout_s = max(0.0, next_s - now_s) if running else None
        for key, _ in selector.select(timeout_s):
            client = key.data
            answered_s = time.perf_counter()
            taken_ms += [(answered_s - client.due_s.popleft()) * 1000 for _ in range(client.answered())]
    for client in clients:
        client.sock.close()
    selector.close()
    return taken_ms
