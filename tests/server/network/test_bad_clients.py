"""A client that does something wrong loses its own connection, with one log line; others are served."""

from __future__ import annotations

import logging
import os
import random
import resource
import socket
import struct
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress

import pytest

from klog.security.quotas.ip_limits import IpLimits
from klog.security.quotas.usage import QuotaWindows
from klog.server.network import Listener, NetworkSettings, SocketServer, work_on
from klog.server.network.large_frame import LargeFrame
from tests.server.network.servers import (
    CREATE_TOPICS,
    Calling,
    Client,
    Echo,
    frame,
    running,
)
from tests.threads import join, started
from tests.waiting import eventually

LARGE = 1_000_000

BAD_FRAMES = {
    "a negative size": struct.pack(">i", -5),
    "size zero": struct.pack(">i", 0),
    "more than socket.request.max.bytes": struct.pack(">i", 1_000_001),
    "no room for a header": struct.pack(">i", 3) + b"abc",
    "an unknown API": frame(b"", api_key=999),
    "an API that is not announced": frame(b"", api_key=55, version=0),
    "an unknown version": frame(b"", version=99),
    "a negative key": frame(b"", api_key=-1),
    "a client id that ends after the frame": struct.pack(">ihhih", 10, 0, 7, 1, 100),
    "tagged fields that end after the frame": struct.pack(">ihhih", 12, 3, 12, 1, -1) + b"\x01\x05",
    "an HTTP request": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "a TLS client hello": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(40),
}


@pytest.mark.parametrize("bad", BAD_FRAMES.values(), ids=BAD_FRAMES.keys())
def test_a_bad_frame_closes_its_connection_with_one_log_line(bad, caplog):
    caplog.set_level(logging.INFO, "klog.server")
    with (
        running(Echo(), request_max_bytes=1_000_000) as server,
        Client(server) as client,
        Client(server) as other,
    ):
        client.send(frame(b"good", 1) + bad)
        assert client.receive() == (1, b"good")
        assert client.is_closed()
        assert other.ask(b"still here") == b"still here"
        eventually(lambda: server.counts.total == 1)
    lines = [record.getMessage() for record in caplog.records if record.name.startswith("klog.")]
    assert len(lines) == 1, lines
    assert lines[0].startswith("Closing 127.0.0.1:")


def test_a_large_frame_that_is_no_request_closes_its_connection(caplog):
    with running(Echo()) as server, Client(server) as client, Client(server) as other:
        client.send(frame(bytes(100_000), api_key=999))
        assert client.is_closed()
        assert other.ask(b"still here") == b"still here"
    assert "API 999 is not served" in caplog.text


def test_random_bytes_never_stop_the_server():
    rng = random.Random(11)
    with running(Echo(), request_max_bytes=100_000) as server:
        for _ in range(150):
            with Client(server) as client:
                noise = rng.randbytes(rng.randrange(1, 200))
                if rng.random() < 0.5:
                    noise = struct.pack(">i", len(noise)) + noise
                client.send(noise)
        with Client(server) as client:
            assert client.ask(b"fine") == b"fine"
        eventually(lambda: server.counts.total == 0)


class OddError(Exception):
    """An exception that no code expects."""


@pytest.mark.parametrize("error", [KeyError, OddError])
@pytest.mark.parametrize("large", [False, True])
def test_a_bug_in_the_handler_costs_the_connection_that_met_it(large, error, caplog):
    def handle(request):
        if request.body[:4] == b"oops":
            raise error("a bug")
        request.respond([bytes(request.body)])

    padding = bytes(200_000) if large else b""
    with running(Calling(handle), io_threads=1) as server, Client(server) as client, Client(server) as other:
        client.send(frame(b"oops" + padding))
        assert client.is_closed()
        assert other.ask(b"fine" + padding) == b"fine" + padding
    assert "the handler failed at <Produce v7 #1 from 127.0.0.1:" in caplog.text
    assert error.__name__ in caplog.text


@pytest.mark.parametrize("large", [False, True])
def test_the_handler_may_answer_for_its_bug_and_the_connection_goes_on(large):
    class Apologising(Echo):
        def answer(self, request):
            if request.body[:4] == b"oops":
                raise OddError
            return super().answer(request)

        def failed(self, request, fault):
            request.respond([type(fault).__name__.encode()])

    padding = bytes(200_000) if large else b""
    with running(Apologising()) as server, Client(server) as client:
        assert client.ask(b"oops" + padding) == b"OddError"
        assert client.ask(b"fine" + padding) == b"fine" + padding


@pytest.mark.parametrize("thread", ["klog-network-0", "klog-io-0"])
def test_a_lack_of_memory_for_a_frame_costs_its_connection_and_no_thread(thread, monkeypatch, caplog):
    """A network thread reads a frame that comes in small pieces, an I/O thread one that comes fast."""
    unfilled = LargeFrame.unfilled

    def short(frame):
        if threading.current_thread().name == thread and frame.size_bytes > LARGE:
            raise MemoryError
        return unfilled(frame)

    monkeypatch.setattr(LargeFrame, "unfilled", short)
    with running(Echo(), io_threads=1) as server, Client(server) as client, Client(server) as other:
        for _ in range(2):
            with Client(server) as large, suppress(OSError):
                rest = iter(lambda: bytes(10) if thread == "klog-network-0" else bytes(LARGE), None)
                large.send(struct.pack(">i", 50_000_000))
                for piece in rest:
                    large.send(piece)
        assert client.ask(bytes(LARGE - 100)) == bytes(LARGE - 100)
        assert other.ask(b"fine") == b"fine"
    assert "MemoryError" in caplog.text


def test_a_connection_that_cannot_be_set_up_does_not_end_the_accepting():
    class Odd:
        refused = 0

        def wrap_bio(self, *_memory, **_options):
            self.refused += 1
            raise OddError

    odd = Odd()
    listeners = [Listener("ODD", "127.0.0.1", 0, odd), Listener("TEST", "127.0.0.1", 0)]
    server = SocketServer(listeners, NetworkSettings(), Echo())
    server.bind()
    server.start()
    try:
        for _ in range(2):
            with Client(server, listener="ODD") as refused:
                assert refused.is_closed()
        with Client(server) as client:
            assert client.ask(b"fine") == b"fine"
            # A refused connection is closed first and then no longer counted.
            eventually(lambda: server.counts.total == 1)
        assert odd.refused == 2
    finally:
        server.stop()


def test_an_answer_that_cannot_be_sent_costs_its_connection_and_no_thread(caplog):
    parked = []

    def handle(request):
        if request.body == b"later":
            parked.append(request)
        else:
            request.respond([bytes(request.body)])

    def broken():
        raise OddError

    with running(Calling(handle)) as server, Client(server) as client, Client(server) as other:
        client.send(frame(b"later"))
        eventually(lambda: len(parked) == 1)
        parked[0].on_answered = broken
        parked[0].respond([b"never"])
        assert client.is_closed()
        assert other.ask(b"fine") == b"fine"
    assert "OddError" in caplog.text


@pytest.mark.parametrize("answered", [False, True])
def test_work_that_fails_on_a_thread_of_the_handler_costs_the_connection_too(answered, caplog):
    """The handler left the request to another thread, where the work fails."""
    worker = ThreadPoolExecutor(1)

    def work(request):
        if answered:
            request.respond([b"all is well"])
        raise OddError

    def failed(request, fault):
        raise fault

    def handle(request):
        worker.submit(work_on, request, work, failed)

    with worker, running(Calling(handle)) as server, Client(server) as client:
        client.send(frame(b""))
        if answered:
            assert client.receive()[1] == b"all is well"
        else:
            assert client.is_closed()
    assert "OddError" in caplog.text


@pytest.mark.parametrize("size", [50, 100_000])
def test_a_client_that_writes_slowly_is_served_and_delays_no_other(size):
    raw = frame(bytes(size), 5)
    pieces = [raw[start : start + max(1, size // 60)] for start in range(0, len(raw), max(1, size // 60))]
    with running(Echo(), io_threads=1) as server, Client(server) as slow, Client(server) as other:
        for number, piece in enumerate(pieces):
            slow.send(piece)
            time.sleep(0.002)
            if number % 10 == 0:
                assert other.ask(b"x") == b"x"
                assert other.ask(b"x", api_key=CREATE_TOPICS, version=4) == b"x"
        assert slow.receive() == (5, bytes(size))


def test_clients_that_pause_inside_large_frames_do_not_use_up_the_io_threads():
    with running(Echo(), io_threads=1) as server:
        paused = [Client(server) for _ in range(20)]
        for client in paused:
            client.send(frame(bytes(1_000_000))[:300_000])
        with Client(server) as other:
            assert other.ask(b"x", api_key=CREATE_TOPICS, version=4) == b"x"
        for client in paused:
            client.send(frame(bytes(1_000_000))[300_000:])
            assert client.receive() == (1, bytes(1_000_000))
            client.sock.close()


def test_a_frame_takes_memory_only_for_the_bytes_that_have_come():
    with running(Echo()) as server:
        before_kib = _resident_kib()
        clients = [Client(server) for _ in range(50)]
        for client in clients:
            client.send(struct.pack(">i", 100 * 1024 * 1024) + frame(b"")[4:])
        time.sleep(0.2)
        assert _resident_kib() - before_kib < 50_000
        for client in clients:
            client.sock.close()


def _resident_kib() -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGESIZE") // 1024


@pytest.mark.parametrize("tls", [False, True])
def test_a_client_that_never_reads_is_not_read_either_and_delays_no_other(tls):
    answered = []

    def handle(request):
        answered.append(request.correlation_id)
        request.respond([bytes(500_000)])

    with (
        running(Calling(handle), tls=tls) as server,
        Client(server, tls=tls) as slow,
        Client(server, tls=tls) as other,
    ):
        slow.send(b"".join(frame(b"", number) for number in range(1000)))
        time.sleep(0.3)
        before = len(answered)
        other.send(frame(b""))
        other.receive()
        assert before < 100
        # When it reads at last, all answers come in order.
        assert [slow.receive()[0] for _ in range(1000)] == list(range(1000))


@pytest.mark.parametrize("tls", [False, True])
def test_a_client_that_shuts_its_sending_half_gets_its_answers(tls):
    with running(Echo(), tls=tls) as server, Client(server, tls=tls) as client:
        client.send(frame(b"one", 1) + frame(b"two", 2))
        # What TLS does itself at its `shutdown` is that it decrypts no more.
        socket.socket.shutdown(client.sock, socket.SHUT_WR)
        assert client.receive() == (1, b"one")
        assert client.receive() == (2, b"two")
        assert client.is_closed()


def test_an_answer_to_a_client_that_is_gone_is_dropped():
    waiting = []
    with running(Calling(waiting.append)) as server:
        client = Client(server)
        client.send(frame(b"x"))
        eventually(lambda: len(waiting) == 1)
        client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.sock.close()
        eventually(lambda: waiting[0].connection.closed)
        waiting[0].respond([b"too late"])
        with Client(server) as other:
            other.send(frame(b"y", 2))
            eventually(lambda: len(waiting) == 2)
            waiting[1].respond([b"in time"])
            assert other.receive() == (2, b"in time")


def test_an_idle_connection_is_closed_and_a_waiting_one_is_not():
    waiting = []
    now_ms = 0

    def handle(request):
        if request.body == b"wait":
            waiting.append(request)
        else:
            request.respond([b""])

    running_server = running(Calling(handle), connections_max_idle_ms=10_000, clock_ms=lambda: now_ms)
    with running_server as server, Client(server) as idle, Client(server) as patient:
        patient.send(frame(b"wait"))
        idle.ask(b"")
        eventually(lambda: len(waiting) == 1)
        now_ms = 10_001
        assert idle.is_closed()
        eventually(lambda: server.counts.total == 1)
        waiting[0].respond([b"at last"])
        assert patient.receive() == (1, b"at last")


def test_with_a_negative_limit_no_connection_is_idle():
    with running(Echo(), connections_max_idle_ms=-1) as server, Client(server) as idle:
        idle.ask(b"")
        # The network thread checks for idle connections once a second.
        idle.sock.settimeout(1.3)
        with pytest.raises(TimeoutError):
            idle.sock.recv(1)
        assert idle.ask(b"still here") == b"still here"


def test_connections_beyond_the_limit_of_an_address_are_closed():
    with running(Echo(), max_connections_per_ip=2) as server, Client(server) as one, Client(server) as two:
        assert one.ask(b"x") == two.ask(b"x") == b"x"
        with Client(server) as three:
            assert three.is_closed()
        one.sock.close()
        eventually(lambda: server.counts.total == 1)
        with Client(server) as four:
            assert four.ask(b"x") == b"x"


def test_an_address_may_have_a_limit_of_its_own():
    limits = {"max_connections_per_ip": 1, "max_connections_per_ip_overrides": {"127.0.0.1": 2}}
    with running(Echo(), **limits) as server, Client(server) as one, Client(server) as two:
        assert one.ask(b"x") == two.ask(b"x") == b"x"


def limit_of_two_in_a_minute() -> IpLimits:
    limits = IpLimits(QuotaWindows(2, 60_000), lambda name: name)
    limits.set_limit("127.0.0.1", 2 / 60)
    return limits


def test_connections_beyond_the_rate_of_their_address_are_held_and_not_served():
    counted = {"ip_limits": limit_of_two_in_a_minute(), "rate_window_ms": 60_000}
    with running(Echo(), **counted) as server, Client(server) as one, Client(server) as two:
        assert one.ask(b"x") == two.ask(b"x") == b"x"
        three = Client(server)
        three.send(frame(b"x"))
        # Another address is accepted after it, and served.
        other = ("127.0.0.2", 0)
        with socket.create_connection(("127.0.0.1", server.port("TEST")), source_address=other) as sock:
            sock.sendall(frame(b"x"))
            assert sock.recv(4) == (4 + 1).to_bytes(4)
        assert server.counts.total <= 3
        three.sock.settimeout(0.1)
        with pytest.raises(TimeoutError):
            three.receive()
        three.sock.settimeout(60)
    # It is closed when the server stops.
    assert three.is_closed()
    three.sock.close()


def test_a_held_connection_is_closed_in_the_end():
    limits = IpLimits(QuotaWindows(2, 100), lambda name: name)
    limits.set_limit("127.0.0.1", 0)
    with running(Echo(), ip_limits=limits) as server, Client(server) as client:
        assert client.is_closed()
        limits.set_limit("127.0.0.1", None)
        with Client(server) as later:
            assert later.ask(b"x") == b"x"


def test_at_the_limit_of_all_connections_the_next_one_waits_until_another_closes():
    with running(Echo(), max_connections=2) as server:
        one, two, three = Client(server), Client(server), Client(server)
        assert one.ask(b"x") == two.ask(b"x") == b"x"
        three.send(frame(b"waited"))
        time.sleep(0.1)
        assert server.counts.total == 2
        one.sock.close()
        assert three.receive() == (1, b"waited")
        two.sock.close()
        three.sock.close()


def test_with_no_descriptors_left_accepting_waits_and_logs_it_once(caplog):
    with running(Echo()) as server, Client(server) as client, ExitStack() as others:
        client.ask(b"x")
        # These have their descriptors already, so only accepting fails for lack of one.
        more = [others.enter_context(socket.socket()) for _ in range(3)]
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))) + 1, hard))
        try:
            with suppress(OSError):
                while True:
                    others.callback(os.close, os.dup(client.sock.fileno()))
            for each in more:
                each.connect(("127.0.0.1", server.port("TEST")))
            eventually(lambda: bool(caplog.records))
            before_s = time.process_time()
            time.sleep(0.6)
            assert time.process_time() - before_s < 0.3
            assert client.ask(b"still here") == b"still here"
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        with Client(server) as late:
            assert late.ask(b"accepted") == b"accepted"
    lines = [record.getMessage() for record in caplog.records if record.name.startswith("klog.")]
    assert [line[:13] for line in lines] == ["Cannot accept"]


def test_connecting_and_disconnecting_leaks_nothing():
    with running(Echo()) as server:

        def churn(count: int) -> None:
            for number in range(count):
                with Client(server) as client:
                    if number % 3:
                        client.ask(bytes(number * 1000))
                    elif number % 2:
                        client.send(frame(bytes(100_000))[: number * 100])
            eventually(lambda: server.counts.total == 0)

        churn(30)
        before = len(os.listdir("/proc/self/fd"))
        join([started(churn, 100) for _ in range(4)])
        eventually(lambda: server.counts.total == 0)
        eventually(lambda: len(os.listdir("/proc/self/fd")) <= before)


def test_a_client_that_does_not_speak_tls_is_closed_on_a_tls_listener(caplog):
    caplog.set_level(logging.INFO, "klog.server")
    with running(Echo(), tls=True) as server, Client(server) as plain:
        plain.send(frame(b"x"))
        # TLS sends an alert of its own before the end.
        with suppress(ConnectionResetError):
            while plain.sock.recv(100):
                pass
        with Client(server, tls=True) as client:
            assert client.ask(b"x") == b"x"
    assert "TLS handshake failed" in caplog.text
    assert "the client does not speak TLS, and this listener does" in caplog.text


@pytest.mark.parametrize(
    ("begin", "expected"),
    [
        (b"\x16\x03\x01\x02\x00\x01", "the client speaks TLS, and this listener does not"),
        (b"GET / HTTP/1.1\r\n", "the client speaks HTTP"),
        (b"\x7f\xff\xff\xff\0\0", "a frame of 2147483647 bytes"),
    ],
)
def test_clients_of_other_protocols_are_closed_and_named(begin, expected, caplog):
    with running(Echo()) as server, Client(server) as client:
        client.send(begin)
        assert client.is_closed()
    assert expected in caplog.text
