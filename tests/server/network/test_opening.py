"""Before a server is open it answers some APIs; clients connect, and their requests wait until it opens."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from klog.server.network import Handler, Listener, NetworkSettings, SocketServer
from tests.server.network.servers import METADATA, PRODUCE, Client, Echo, frame, server_tls

# Fetch, whose version 7 has no flexible header.
EARLY = 1


class Runs(Echo):
    """Answers all Produce requests of a read at once."""

    def handle_run(self, connection, buffer, start, end):
        if buffer[start + 5] != PRODUCE:
            return start
        connection.outbound.add(frame(b"run"))
        return end


@contextmanager
def unopened(handler: Handler, *, tls: bool = False, **settings) -> Iterator[SocketServer]:
    listener = Listener("TEST", "127.0.0.1", 0, server_tls() if tls else None)
    server = SocketServer([listener], NetworkSettings(**settings), handler, served_before_open=[EARLY])
    server.bind()
    server.start()
    try:
        yield server
    finally:
        server.stop()


@pytest.mark.parametrize("tls", [False, True])
def test_requests_of_clients_wait_and_are_answered_in_order_once_it_is_open(tls):
    handler = Echo()
    with (
        unopened(handler, tls=tls) as server,
        Client(server, tls=tls) as client,
        Client(server, tls=tls) as other,
    ):
        client.send(frame(b"a", 1, METADATA) + frame(b"b", 2, PRODUCE))
        assert other.ask(b"control", api_key=EARLY) == b"control"
        assert len(handler.on_io_thread) == 1
        server.open()
        assert client.receive() == (1, b"a")
        assert client.receive() == (2, b"b")
        assert client.ask(b"c") == b"c"
        assert other.ask(b"d") == b"d"


def test_one_connection_may_send_both_kinds():
    with unopened(Echo()) as server, Client(server) as client:
        assert client.ask(b"control", 1, api_key=EARLY) == b"control"
        client.send(frame(b"control", 2, EARLY) + frame(b"client", 3) + frame(b"control", 4, EARLY))
        assert client.receive() == (2, b"control")
        server.open()
        assert client.receive() == (3, b"client")
        assert client.receive() == (4, b"control")


def test_a_frame_that_comes_in_pieces_waits_too():
    raw = frame(bytes(100_000), 1)
    with unopened(Echo()) as server, Client(server) as client, Client(server) as other:
        for piece in (raw[:4], raw[4:5], raw[5:6], raw[6:50_000]):
            client.send(piece)
            assert other.ask(b"control", api_key=EARLY) == b"control"
        server.open()
        client.send(raw[50_000:])
        assert client.receive() == (1, bytes(100_000))


def test_early_frames_of_every_size_are_answered():
    with unopened(Echo()) as server, Client(server) as client:
        for size in (0, 10, 60_000, 70_000, 3_000_000):
            assert client.ask(bytes(size), api_key=EARLY) == bytes(size)


def test_whole_runs_of_frames_wait_too():
    with unopened(Runs()) as server, Client(server) as client, Client(server) as other:
        client.send(frame(b"x"))
        assert other.ask(b"control", api_key=EARLY) == b"control"
        server.open()
        assert client.receive_bytes(len(frame(b"run"))) == frame(b"run")


def test_requests_wait_for_memory_after_they_have_waited_for_the_opening():
    settings = {"queued_max_request_bytes": 1000}
    with unopened(Echo(), **settings) as server, Client(server) as client, Client(server) as other:
        client.send(frame(bytes(900), 1))
        other.send(frame(bytes(900), 2))
        server.open()
        assert client.receive() == (1, bytes(900))
        assert other.receive() == (2, bytes(900))


def test_a_server_that_was_never_open_stops_and_closes_its_connections():
    with unopened(Echo()) as server, Client(server) as client, Client(server) as other:
        client.send(frame(b"waits"))
        assert other.ask(b"control", api_key=EARLY) == b"control"
        server.stop()
        assert client.is_closed()
