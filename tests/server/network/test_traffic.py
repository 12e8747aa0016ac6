"""Connections that move many bytes are served by threads of their own, and come back when they move few."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.server.network import Listener, NetworkSettings
from klog.server.network.connection_traffic import ConnectionTraffic, TrafficLimits
from tests.server.network.servers import TIMEOUT_S, Calling, Client, Echo, frame, running
from tests.threads import join, started
from tests.waiting import eventually

LIMITS = TrafficLimits(
    bytes_per_turn=1000, bytes_per_s=1_000_000, look_bytes=50_000, look_turns=10, window_ms=100
)
# Every turn is looked at, and a second's silence is too short to come back.
QUICK = TrafficLimits(bytes_per_turn=10_000, bytes_per_s=1, look_bytes=1, look_turns=1, window_ms=0)


def traffic(moved_bytes: int, turns: int) -> ConnectionTraffic:
    made = ConnectionTraffic(0)
    made.moved_bytes, made.turns = moved_bytes, turns
    return made


@pytest.mark.parametrize(
    ("moved_bytes", "turns", "elapsed_ms", "expected"),
    [
        (100_000, 100, 100, True),
        # Too few a turn: small requests, however many.
        (99_900, 100, 100, False),
        # Too few a second: large ones now and then.
        (100_000, 100, 101, False),
        (0, 0, 100, False),
    ],
)
def test_bulk_traffic_moves_many_bytes_a_turn_and_a_second(moved_bytes, turns, elapsed_ms, expected):
    assert traffic(moved_bytes, turns).is_bulk(elapsed_ms, LIMITS, was_bulk=False) is expected


@pytest.mark.parametrize(
    ("moved_bytes", "turns", "elapsed_ms", "expected"),
    [(25_000, 100, 100, True), (24_900, 100, 100, False), (25_000, 100, 101, False), (0, 0, 1000, False)],
)
def test_bulk_traffic_stays_so_down_to_a_quarter(moved_bytes, turns, elapsed_ms, expected):
    assert traffic(moved_bytes, turns).is_bulk(elapsed_ms, LIMITS, was_bulk=True) is expected


@given(moved_bytes=st.integers(0, 10**9), turns=st.integers(0, 10**6), elapsed_ms=st.integers(0, 10**5))
def test_what_becomes_bulk_does_not_come_back_by_the_same_figures(moved_bytes, turns, elapsed_ms):
    found = traffic(moved_bytes, turns)
    if found.is_bulk(elapsed_ms, LIMITS, was_bulk=False):
        assert found.is_bulk(elapsed_ms, LIMITS, was_bulk=True)


def test_a_look_is_due_after_many_bytes_or_turns_and_not_before_its_window_has_passed():
    assert not traffic(49_999, 9).is_due(100, LIMITS)
    assert traffic(50_000, 0).is_due(100, LIMITS)
    assert traffic(0, 10).is_due(100, LIMITS)
    assert not traffic(50_000, 10).is_due(99, LIMITS)
    restarted = traffic(50_000, 10)
    restarted.restart(100)
    assert (restarted.moved_bytes, restarted.turns, restarted.since_ms) == (0, 0, 100)


class Watching(Echo):
    """Knows which thread has handled each request."""

    def __init__(self) -> None:
        super().__init__()
        self.handled_by: list[str] = []

    def answer(self, request):
        self.handled_by.append(threading.current_thread().name.rpartition("-")[0])
        return super().answer(request)


@pytest.mark.parametrize("tls", [False, True])
def test_a_connection_goes_to_the_threads_for_bulk_traffic_and_comes_back(tls):
    handler = Watching()
    with running(handler, tls=tls, bulk_traffic=QUICK) as server, Client(server, tls=tls) as client:
        client.ask(b"small")
        for _ in range(20):
            client.ask(bytes(30_000))
        assert handler.handled_by[0] == "klog-network"
        assert handler.handled_by[-1] == "klog-bulk"
        for _ in range(20):
            client.ask(b"small")
        assert handler.handled_by[-1] == "klog-network"


def test_answers_count_as_bytes_that_are_moved():
    def handle(request):
        threads.append(threading.current_thread().name)
        request.respond([bytes(50_000)])

    threads: list[str] = []
    with running(Calling(handle), bulk_traffic=QUICK) as server, Client(server) as client:
        for _ in range(20):
            client.send(frame(b"fetch"))
            client.receive()
    assert threads[0] == "klog-network-0"
    assert threads[-1].startswith("klog-bulk-")


def test_the_threads_for_bulk_traffic_share_the_connections():
    handler = Echo()
    with running(handler, bulk_traffic=QUICK, bulk_threads=3) as server:
        clients = [Client(server) for _ in range(6)]
        for _ in range(5):
            for client in clients:
                client.ask(bytes(30_000))
        for client in clients:
            client.sock.close()
    assert {"klog-bulk-0", "klog-bulk-1", "klog-bulk-2"} <= handler.threads


def test_without_such_threads_all_connections_stay_where_they_are():
    handler = Watching()
    with running(handler, bulk_traffic=QUICK, bulk_threads=0) as server, Client(server) as client:
        for _ in range(20):
            client.ask(bytes(30_000))
    assert set(handler.handled_by) == {"klog-network"}


def test_small_requests_stay_with_the_usual_settings():
    handler = Watching()
    with running(handler) as server, Client(server) as client:
        for number in range(100):
            client.send(b"".join(frame(b"x" * 200) for _ in range(10)))
            for _ in range(10):
                assert client.receive() == (1, b"x" * 200), number
    assert set(handler.handled_by) == {"klog-network"}


@pytest.mark.parametrize("answer_bytes", [10, 300])
def test_small_requests_stay_however_many_of_them_come_at_once(answer_bytes):
    threads = set()

    def handle(request):
        threads.add(threading.current_thread().name)
        request.respond([bytes(answer_bytes)])

    with running(Calling(handle), bulk_traffic=QUICK) as server, Client(server) as client:
        for _ in range(20):
            client.send(b"".join(frame(b"x" * 200) for _ in range(100)))
            for _ in range(100):
                client.receive()
    assert threads == {"klog-network-0"}


@pytest.mark.parametrize("seed", range(2))
def test_pipelined_requests_of_every_size_keep_their_order_while_connections_move(seed):
    sizes = [(number * 7919 + seed * 31) % 5 for number in range(300)]
    bodies = [
        bytes([number % 256]) * (10, 5_000, 40_000, 64_000, 150_000)[size]
        for number, size in enumerate(sizes)
    ]
    parked = []

    def handle(request):
        if len(request.body) == 5_000:
            threading.Timer(0.001, request.respond, [[bytes(request.body)]]).start()
            parked.append(request)
        else:
            request.respond([bytes(request.body)])

    with running(Calling(handle), bulk_traffic=QUICK, io_threads=2) as server, Client(server) as client:
        raw = b"".join(frame(body, number) for number, body in enumerate(bodies))
        sender = started(client.send, raw)
        for number, body in enumerate(bodies):
            assert client.receive() == (number, body)
        join([sender])
    assert parked


def test_a_client_that_reads_slowly_moves_with_what_is_still_to_be_sent():
    threads = []

    def handle(request):
        threads.append(threading.current_thread().name)
        request.respond([bytes([request.correlation_id]) * 8_000_000])

    with running(Calling(handle), bulk_traffic=QUICK) as server, Client(server) as client:
        client.send(b"".join(frame(b"", number) for number in range(6)))
        for number in range(6):
            assert client.receive() == (number, bytes([number]) * 8_000_000)
    assert threads[-1].startswith("klog-bulk-")


def test_connections_with_bulk_traffic_go_with_their_listener_and_with_the_server():
    inner, outer = Listener("TEST", "127.0.0.1", 0), Listener("OUTER", "127.0.0.1", 0)
    settings = NetworkSettings(bulk_traffic=QUICK)
    with running(Echo(), bulk_traffic=QUICK) as server:
        server.reconfigure([inner, outer], settings)
        clients = [Client(server, listener=name) for name in ("TEST", "OUTER")]
        for client in clients:
            for _ in range(20):
                client.ask(bytes(30_000))
        server.reconfigure([inner], settings)
        assert clients[1].is_closed()
        assert clients[0].ask(bytes(30_000)) == bytes(30_000)
        eventually(lambda: server.counts.total == 1)
    assert clients[0].is_closed()
    assert server.counts.total == 0
    for client in clients:
        client.sock.close()


def test_stopping_while_connections_move_closes_all():
    stop = threading.Event()
    settings = {"bulk_traffic": QUICK, "stop_timeout_ms": 2 * TIMEOUT_S * 1000}
    for _ in range(5):
        stop.clear()
        with running(Echo(), **settings) as server:
            clients = [Client(server) for _ in range(4)]

            def load(client: Client) -> None:
                try:
                    while not stop.is_set():
                        client.ask(bytes(30_000))
                        client.ask(b"small")
                except (EOFError, ConnectionError):
                    pass

            threads = [started(load, client) for client in clients]
            eventually(lambda server=server: server.counts.total == 4)
        assert server.counts.total == 0
        stop.set()
        join(threads)
        for client in clients:
            client.sock.close()
