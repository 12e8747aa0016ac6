"""Binding, starting and stopping."""

from __future__ import annotations

import os
import socket
import threading
import time

import pytest

from klog.formats.errors import UsageError
from klog.server.network import BindError, Listener, NetworkSettings, SocketServer
from tests.server.network.servers import TIMEOUT_S, Calling, Client, Echo, frame, running
from tests.threads import join, started
from tests.waiting import eventually


def test_ports_are_known_and_connections_wait_from_bind_on():
    server = SocketServer([Listener("TEST", "127.0.0.1", 0)], NetworkSettings(), Echo())
    server.bind()
    with Client(server) as early:
        early.send(frame(b"early"))
        server.start()
        assert early.receive() == (1, b"early")
    server.stop()


def test_a_request_names_the_listener_that_it_came_through():
    listeners = [Listener("INTERNAL", "127.0.0.1", 0), Listener("TEST", "127.0.0.1", 0)]
    server = SocketServer(
        listeners, NetworkSettings(), Calling(lambda request: request.respond([request.listener.encode()]))
    )
    server.bind()
    server.start()
    assert server.port("INTERNAL") != server.port("TEST")
    with Client(server) as client:
        assert client.ask(b"") == b"TEST"
    server.stop()


def test_an_address_in_use_is_an_error_and_leaves_nothing_bound():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        listeners = [Listener("FREE", "127.0.0.1", 0), Listener("TAKEN", "127.0.0.1", port)]
        server = SocketServer(listeners, NetworkSettings(), Echo())
        with pytest.raises(BindError, match=f"cannot listen at 127.0.0.1:{port} .TAKEN."):
            server.bind()
        with pytest.raises(UsageError):
            server.port("FREE")
        server.stop()


def test_a_stopped_server_has_closed_all_and_ended_its_threads():
    descriptors, threads = len(os.listdir("/proc/self/fd")), set(threading.enumerate())
    with running(Echo()) as server:
        clients = [Client(server) for _ in range(5)]
        for client in clients:
            client.ask(b"x")
        port = server.port("TEST")
    for client in clients:
        assert client.is_closed()
        client.sock.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), TIMEOUT_S)
    # Descriptors and threads of earlier tests may end meanwhile.
    assert len(os.listdir("/proc/self/fd")) <= descriptors
    assert set(threading.enumerate()) <= threads


@pytest.mark.parametrize("body", [b"small", bytes(200_000)])
def test_stopping_waits_for_the_answers_that_are_outstanding(body):
    waiting = []
    settings = NetworkSettings(stop_timeout_ms=TIMEOUT_S * 1000)
    server = SocketServer([Listener("TEST", "127.0.0.1", 0)], settings, Calling(waiting.append))
    server.bind()
    server.start()
    with Client(server) as client:
        client.send(frame(body))
        eventually(lambda: len(waiting) == 1)
        stopping = started(server.stop)
        time.sleep(0.1)
        assert stopping.is_alive()
        waiting[0].respond([b"answered"])
        assert client.receive() == (1, b"answered")
        assert client.is_closed()
        join([stopping])


def test_stopping_waits_no_longer_than_its_timeout():
    def stop_s() -> float:
        waiting = []
        with running(Calling(waiting.append), stop_timeout_ms=200) as server:
            client = Client(server)
            client.send(frame(b"x"))
            eventually(lambda: len(waiting) == 1)
            started_s = time.monotonic()
        stopped_s = time.monotonic()
        assert client.is_closed()
        client.sock.close()
        waiting[0].respond([b"too late"])
        return stopped_s - started_s

    # It would wait 5 s by itself. A busy machine may take as long once.
    eventually(lambda: stop_s() < 4.5)


def test_stopping_under_load_ends():
    stop = threading.Event()
    with running(Echo(), io_threads=2, stop_timeout_ms=2 * TIMEOUT_S * 1000) as server:
        clients = [Client(server) for _ in range(8)]

        def load(client: Client, size: int) -> None:
            try:
                while not stop.is_set():
                    client.ask(bytes(size))
            except (EOFError, ConnectionError):
                pass

        threads = [
            started(load, client, 10 if number % 2 else 300_000) for number, client in enumerate(clients)
        ]
        time.sleep(0.3)
        started_s = time.monotonic()
    assert time.monotonic() - started_s < TIMEOUT_S
    stop.set()
    join(threads)
    for client in clients:
        client.sock.close()
