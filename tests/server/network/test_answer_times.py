"""How long requests take is counted once the socket has taken their answers."""

from __future__ import annotations

import socket
import struct
import time

import pytest

from tests.server.network.servers import CREATE_TOPICS, Calling, Client, frame, running
from tests.waiting import eventually


class Counter:
    """Keeps what it counts: (requests, ns spent before, ns to send)."""

    def __init__(self) -> None:
        self.counted: list[tuple[int, int, int]] = []

    def sent(self, requests: int, spent_ns: int, send_ns: int) -> None:
        self.counted.append((requests, spent_ns, send_ns))


def answering(counter: Counter, body: bytes | None) -> Calling:
    def handle(request):
        request.connection.unsent.append((counter, 1, 7, time.perf_counter_ns()))
        request.respond(None if body is None else [body])

    return Calling(handle)


@pytest.mark.parametrize("options", [{}, {"api_key": CREATE_TOPICS, "version": 4}], ids=["network", "I/O"])
def test_an_answer_is_counted_when_it_is_sent(options):
    counter = Counter()
    with running(answering(counter, b"x")) as server, Client(server) as client:
        client.ask(b"", **options)
        eventually(lambda: counter.counted)
        ((requests, spent_ns, send_ns),) = counter.counted
        assert (requests, spent_ns) == (1, 7)
        assert send_ns > 0


def test_an_answer_that_the_socket_does_not_take_is_counted_later():
    counter, size = Counter(), 30_000_000
    with running(answering(counter, bytes(size))) as server, Client(server) as client:
        client.send(frame(b""))
        begin_ns = time.perf_counter_ns()
        client.receive_bytes(8)
        time.sleep(0.05)
        assert not counter.counted
        waited_ns = time.perf_counter_ns() - begin_ns
        client.receive_bytes(size)
        eventually(lambda: counter.counted)
        assert counter.counted[0][2] >= waited_ns - 50_000_000


@pytest.mark.parametrize("options", [{}, {"api_key": CREATE_TOPICS, "version": 4}], ids=["network", "I/O"])
def test_a_request_without_an_answer_is_counted_at_once(options):
    counter = Counter()
    with running(answering(counter, None)) as server, Client(server) as client:
        client.send(frame(b"", **options))
        eventually(lambda: counter.counted)


def test_what_a_closed_connection_was_not_sent_is_counted():
    counter = Counter()
    with running(answering(counter, bytes(30_000_000))) as server:
        with Client(server) as client:
            client.send(frame(b""))
            client.receive_bytes(8)
        eventually(lambda: len(counter.counted) == 1)


def test_a_request_whose_client_leaves_while_it_waits_is_counted_when_it_is_answered():
    counter, waiting = Counter(), []

    def handle(request):
        def answered() -> None:
            request.connection.unsent.append((counter, 1, 7, time.perf_counter_ns()))

        request.on_answered = answered
        waiting.append(request)

    with running(Calling(handle)) as server:
        with Client(server) as client:
            client.send(frame(b""))
            eventually(lambda: waiting)
            # With a reset, which is noticed at once: an answer to a client that only ends is sent.
            client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        eventually(lambda: server.counts.total == 0)
        assert not counter.counted
        waiting[0].respond([b"too late"])
        eventually(lambda: counter.counted)
    assert [each[:2] for each in counter.counted] == [(1, 7)]
