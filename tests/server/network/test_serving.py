"""Requests of any size are answered in order, by whatever thread and however late."""

from __future__ import annotations

import random
import socket
import struct
import threading

import pytest

from klog.formats.errors import UsageError
from klog.protocol.messages import encode_request_header
from klog.server.network import Listener, NetworkSettings, SocketServer
from klog.server.network.poller import EpollPoller, PollPoller
from klog.storage.log.scheduler import monotonic_ms
from tests.server.network.servers import (
    CREATE_TOPICS,
    METADATA,
    TIMEOUT_S,
    Calling,
    Client,
    Echo,
    frame,
    running,
)
from tests.threads import join, started
from tests.waiting import eventually

LARGE = 200_000


@pytest.fixture(params=["plain", "tls", "poll"])
def kind(request):
    """The ways to serve: epoll, TLS, and the poller of other systems."""
    return {
        "plain": {"tls": False, "poller_factory": EpollPoller},
        "tls": {"tls": True},
        "poll": {"tls": False, "poller_factory": PollPoller},
    }[request.param]


def test_a_request_is_answered(kind):
    with running(Echo(), **kind) as server, Client(server, tls=kind["tls"]) as client:
        assert client.ask(b"hello", 7) == b"hello"


def test_pipelined_requests_are_answered_in_order(kind):
    with running(Echo(), **kind) as server, Client(server, tls=kind["tls"]) as client:
        client.send(b"".join(frame(b"%d" % number, number) for number in range(500)))
        assert [client.receive() for _ in range(500)] == [(number, b"%d" % number) for number in range(500)]


@pytest.mark.parametrize("seed", range(3))
def test_frames_of_every_size_in_pieces_of_every_size(kind, seed):
    rng = random.Random(seed)
    sizes = [
        rng.choice((0, 1, 100, 5_000, 65_525, 65_526, 65_527, 70_000, 131_072, LARGE, 1_500_000))
        for _ in range(40)
    ]
    keys = [rng.choice((0, CREATE_TOPICS)) for _ in sizes]
    bodies = [rng.randbytes(size) for size in sizes]
    frames = [
        frame(body, number, key, 4) for number, (key, body) in enumerate(zip(keys, bodies, strict=True))
    ]
    with running(Echo(), **kind) as server, Client(server, tls=kind["tls"]) as client:

        def send_in_pieces(raw: bytes) -> None:
            position = 0
            while position < len(raw):
                size = rng.choice((1, 3, 4, 5, 1000, 65_536, 300_000))
                client.send(raw[position : position + size])
                position += size

        received = []
        if kind["tls"]:
            # Python's TLS sockets must not be used by two threads at once.
            for raw in frames:
                send_in_pieces(raw)
                received.append(client.receive())
        else:
            sender = started(send_in_pieces, b"".join(frames))
            received = [client.receive() for _ in frames]
            join([sender])
    assert received == list(enumerate(bodies))


def test_small_requests_are_handled_on_the_network_thread_and_large_ones_on_an_io_thread():
    echo = Echo()
    with running(echo) as server, Client(server) as client:
        client.ask(b"small")
        client.ask(bytes(LARGE))
        client.ask(b"small")
        client.ask(b"may block", api_key=CREATE_TOPICS, version=4)
    assert echo.on_io_thread == [False, True, False, True]
    assert {name.rpartition("-")[0] for name in echo.threads} == {"klog-network", "klog-io"}


def test_an_io_thread_keeps_a_connection_on_which_large_frames_follow_each_other(kind):
    handled_by = set()
    all_sent = threading.Event()

    def handle(request):
        handled_by.add(threading.current_thread().name)
        # All frames are in the socket's buffers first: a slow sender would lose the thread.
        assert all_sent.wait(TIMEOUT_S)
        request.respond([b""])

    large = {"inline_request_max_bytes": 1000}
    with (
        running(Calling(handle), io_threads=2, **large, **kind) as server,
        Client(server, tls=kind["tls"]) as client,
    ):
        client.send(frame(bytes(1500)) * 30)
        all_sent.set()
        for _ in range(30):
            client.receive()
    assert len(handled_by) == 1


def test_a_producer_of_large_frames_does_not_delay_waiting_connections():
    with running(Echo(), io_threads=1) as server, Client(server) as producer, Client(server) as other:
        stop = threading.Event()

        def stream() -> None:
            while not stop.is_set():
                answered.append(producer.ask(bytes(LARGE)))

        answered: list[bytes] = []
        streaming = started(stream)
        eventually(lambda: answered)
        for number in range(20):
            assert other.ask(b"x", number, api_key=CREATE_TOPICS, version=4) == b"x"
        before = len(answered)
        eventually(lambda: len(answered) > before)
        stop.set()
        join([streaming])


def test_an_answer_may_come_later_from_another_thread(kind):
    waiting = []
    with running(Calling(waiting.append), **kind) as server, Client(server, tls=kind["tls"]) as client:
        client.send(frame(b"first", 1) + frame(b"second", 2) + frame(bytes(LARGE), 3) + frame(b"fourth", 4))
        for number in range(1, 5):
            eventually(lambda: len(waiting) == 1)
            request = waiting.pop()
            request.respond([b"answer %d" % number])
            assert client.receive() == (number, b"answer %d" % number)


def test_one_request_of_a_connection_is_handled_at_a_time():
    waiting = []
    with running(Calling(waiting.append)) as server, Client(server) as client, Client(server) as other:
        client.send(frame(b"a", 1) + frame(b"b", 2))
        eventually(lambda: len(waiting) == 1)
        other.send(frame(b"c", 3))
        eventually(lambda: len(waiting) == 2)
        assert [request.correlation_id for request in waiting] == [1, 3]
        for request in waiting[:2]:
            request.respond([b""])
        assert client.receive() == (1, b"")
        eventually(lambda: len(waiting) == 3)
        waiting[2].respond([b""])
        assert client.receive() == (2, b"")


def test_many_delayed_answers_from_many_threads_arrive():
    def later(request):
        threading.Timer(random.random() / 50, request.respond, [[bytes(request.body)]]).start()

    with running(Calling(later), network_threads=3) as server:
        clients = [Client(server) for _ in range(30)]
        for round_number in range(5):
            for number, client in enumerate(clients):
                client.send(frame(b"%d" % number, round_number))
            for number, client in enumerate(clients):
                assert client.receive() == (round_number, b"%d" % number)
        for client in clients:
            client.sock.close()


def test_an_answer_of_one_request_may_come_from_the_handling_of_another():
    parked = []

    def handle(request):
        if request.body == b"wait":
            parked.append(request)
            return
        parked.pop().respond([b"woken"])
        request.respond([b"waker"])

    with running(Calling(handle)) as server, Client(server) as waiter, Client(server) as waker:
        for number in range(200):
            waiter.send(frame(b"wait", number))
            eventually(lambda: len(parked) == 1)
            assert waker.ask(b"wake", number) == b"waker"
            assert waiter.receive() == (number, b"woken")


def test_no_answer_is_sent_if_the_handler_gives_none():
    def handle(request):
        request.respond(None if request.body == b"acks=0" else [bytes(request.body)])

    with running(Calling(handle)) as server, Client(server) as client:
        client.send(frame(b"acks=0", 1) + frame(b"acks=1", 2) + frame(b"acks=0", 3) + frame(b"acks=1", 4))
        assert client.receive() == (2, b"acks=1")
        assert client.receive() == (4, b"acks=1")


def test_a_handler_may_close_the_connection_instead_of_answering():
    def handle(request):
        if request.body == b"close":
            request.close_connection()
        else:
            request.respond([bytes(request.body)])

    with running(Calling(handle)) as server, Client(server) as client, Client(server) as other:
        client.send(frame(b"a", 1) + frame(b"close", 2) + frame(b"b", 3))
        assert client.receive() == (1, b"a")
        assert client.is_closed()
        assert other.ask(b"still here") == b"still here"


def test_a_request_is_answered_once():
    failures = []

    def handle(request):
        request.respond([b"first"])
        with pytest.raises(UsageError):
            request.respond([b"second"])
        failures.append("refused")

    with running(Calling(handle)) as server, Client(server) as client:
        assert client.ask(b"") == b"first"
        assert failures == ["refused"]


def test_a_request_has_its_client_its_api_and_its_time():
    seen = []

    def handle(request):
        seen.append(request)
        request.respond([])

    began_ms = monotonic_ms()
    with running(Calling(handle)) as server, Client(server) as client:
        header = encode_request_header(METADATA, 12, 77, "älice")
        client.send(struct.pack(">i", len(header) + 4) + header + b"body")
        size, correlation_id = struct.unpack(">ii", client.receive_bytes(8))
        assert (size, correlation_id, client.receive_bytes(1)) == (5, 77, b"\0")
    request = seen[0]
    assert (request.api_key, request.api_version, request.client_id) == (METADATA, 12, "älice")
    assert (request.listener, request.peer_address) == ("TEST", "127.0.0.1")
    assert request.body == b"body"
    assert not request.body.readonly
    assert began_ms <= request.received_ms <= monotonic_ms()


def test_api_versions_of_an_unknown_version_reaches_the_handler_and_gets_the_oldest_header():
    with running(Echo()) as server, Client(server) as client:
        client.send(frame(b"\0hello", 9, api_key=18, version=99))
        assert client.receive() == (9, b"hello")


def test_the_body_of_a_request_without_an_answer_yet_is_not_overwritten():
    waiting = []

    def handle(request):
        if request.body == b"keep":
            waiting.append(request)
        else:
            request.respond([bytes(request.body)])

    with running(Calling(handle)) as server, Client(server) as keeper, Client(server) as other:
        keeper.send(frame(b"keep"))
        eventually(lambda: len(waiting) == 1)
        for number in range(50):
            other.ask(b"%d" % number)
        assert waiting[0].body == b"keep"
        waiting[0].respond([bytes(waiting[0].body)])
        assert keeper.receive() == (1, b"keep")


def test_large_bodies_that_are_kept_after_their_answers_are_not_overwritten():
    kept = []

    def handle(request):
        if len(kept) % 3:
            kept.append(request.body)
        else:
            kept.append(bytes(request.body))
        request.respond([b""])

    with running(Calling(handle), io_threads=1) as server, Client(server) as client:
        bodies = [bytes([number]) * (LARGE + 1000 * number) for number in range(1, 30)]
        client.send(b"".join(frame(body) for body in bodies))
        for _ in bodies:
            client.receive()
    assert [bytes(body) for body in kept] == bodies


def test_several_network_threads_share_the_connections():
    echo = Echo()
    with running(echo, network_threads=3) as server:
        clients = [Client(server) for _ in range(6)]
        for client in clients:
            client.ask(b"x")
        for client in clients:
            client.sock.close()
    assert echo.threads == {"klog-network-0", "klog-network-1", "klog-network-2"}


def test_when_the_request_channel_is_full_connections_wait_and_are_served_in_the_end():
    gate = threading.Event()

    def handle(request):
        if request.on_io_thread:
            gate.wait(TIMEOUT_S)
        request.respond([bytes(request.body)])

    with running(Calling(handle), io_threads=1, queued_max_requests=2) as server:
        clients = [Client(server) for _ in range(10)]
        for number, client in enumerate(clients):
            client.send(frame(b"blocking", number, CREATE_TOPICS, 4))
        with Client(server) as other:
            assert other.ask(b"inline") == b"inline"
        assert server.queued_requests <= 2
        gate.set()
        for number, client in enumerate(clients):
            assert client.receive() == (number, b"blocking")
            client.sock.close()


def is_ours(host: str) -> bool:
    """Whether this machine has the address: containers often support IPv6 and have no IPv6 address."""
    try:
        socket.create_server((host, 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


def test_a_listener_without_a_host_is_reached_by_ipv4_and_ipv6():
    seen = []

    def handle(request):
        seen.append(request.peer_address)
        request.respond([bytes(request.body)])

    hosts = ["127.0.0.1", "::1"] if socket.has_dualstack_ipv6() and is_ours("::1") else ["127.0.0.1"]
    server = SocketServer([Listener("TEST", "", 0)], NetworkSettings(), Calling(handle))
    server.bind()
    server.start()
    try:
        for host in hosts:
            with socket.create_connection((host, server.port("TEST")), TIMEOUT_S) as sock:
                sock.sendall(frame(b"x"))
                assert sock.recv(4) == struct.pack(">i", 5)
    finally:
        server.stop()
    assert seen == hosts
