"""Clients receive file slices byte for byte, by sendfile and by TLS; a bad file costs the connection."""

from __future__ import annotations

import fcntl
import hashlib
import random
import struct
import sys
import threading

import pytest

from klog.protocol.file_slice import FileSlice, LazyBytes
from klog.server.network.poller import WRITABLE
from tests.server.network.servers import Calling, Client, frame, running
from tests.waiting import eventually


@pytest.fixture
def segment(tmp_path):
    path = tmp_path / "segment"
    path.write_bytes(random.Random(5).randbytes(6_000_000))
    with path.open("rb") as file:
        yield file


@pytest.mark.parametrize("tls", [False, True])
def test_parts_and_slices_arrive_in_order(segment, tls):
    content = segment.read()
    plan = [(0, 10), (10, 20_000), (5_000_000, 1_000_000), (3, 16_384), (7, 16_385), (100, 0), (0, 6_000_000)]

    def handle(request):
        parts = [b"head"]
        for position, size in plan:
            parts += [FileSlice(segment, position, size), b"-", b""]
        request.respond(parts)

    expected = b"head" + b"".join(content[start : start + size] + b"-" for start, size in plan)
    with running(Calling(handle), tls=tls) as server, Client(server, tls=tls) as client:
        for number in range(3):
            client.send(frame(b"", number))
            answered, body = client.receive()
            assert answered == number
            assert hashlib.sha256(body).digest() == hashlib.sha256(expected).digest()


def made_in(threads: list[str], count: int = 50):
    for number in range(count):
        threads.append(threading.current_thread().name)
        yield bytes([number % 256]) * 100_000


@pytest.mark.parametrize("tls", [False, True])
def test_bytes_are_made_by_io_threads_while_they_are_sent(tls):
    threads: list[str] = []

    def handle(request):
        request.respond([b"<", LazyBytes(5_000_000, made_in(threads)), b">"])

    expected = b"<" + b"".join(made_in([])) + b">"
    with running(Calling(handle), tls=tls) as server, Client(server, tls=tls) as client:
        for number in range(2):
            client.send(frame(b"", number))
            assert client.receive() == (number, expected)
    assert all("-io-" in name for name in threads)
    assert len(threads) == 100


def test_no_more_is_made_than_the_client_takes():
    threads: list[str] = []

    def handle(request):
        request.respond([LazyBytes(100_000_000, made_in(threads, 1000))])

    with running(Calling(handle)) as server, Client(server) as client:
        client.send(frame(b"", 1))
        client.receive_bytes(1_000_000)
    assert 10 <= len(threads) < 500


def test_bytes_that_cannot_be_made_cost_the_connection():
    def handle(request):
        request.respond([LazyBytes(10, iter((b"abc",)))])

    with running(Calling(handle)) as server, Client(server) as client:
        client.send(frame(b"", 1))
        with pytest.raises(EOFError, match="closed after 3 of 10"):
            client.receive()


def test_a_client_that_reads_slowly_gets_all_of_a_slice_and_pipelined_answers_in_order(segment):
    content = segment.read()

    def handle(request):
        if request.body == b"slice":
            request.respond([b"<", FileSlice(segment, 0, len(content)), b">"])
        else:
            request.respond([bytes(request.body)])

    with running(Calling(handle)) as server, Client(server) as client:
        client.send(frame(b"slice", 1) + frame(b"after", 2) + frame(b"slice", 3))
        out = bytearray()
        total = 3 * 8 + 2 * (len(content) + 2) + 5
        while len(out) < total:
            out += client.receive_bytes(min(50_000, total - len(out)))
        assert out[8 : 10 + len(content)] == b"<" + content + b">"
        assert out[18 + len(content) : 23 + len(content)] == b"after"
        assert out[-len(content) - 2 :] == b"<" + content + b">"


@pytest.mark.skipif(sys.platform != "linux", reason="SIOCOUTQNSD is Linux's")
@pytest.mark.parametrize("as_slice", [True, False])
def test_the_system_holds_few_bytes_of_an_answer_that_the_client_does_not_read(segment, as_slice):
    content = segment.read()
    connections = []

    def handle(request):
        connections.append(request.connection)
        request.respond([FileSlice(segment, 0, len(content)) if as_slice else content])

    def unsent_bytes() -> int:
        siocoutqnsd = 0x894B
        return struct.unpack("i", fcntl.ioctl(connections[0].socket, siocoutqnsd, bytes(4)))[0]

    with running(Calling(handle), unsent_max_bytes=64 * 1024) as server, Client(server) as client:
        client.send(frame(b""))
        eventually(lambda: bool(connections) and connections[0].mask == WRITABLE)
        # One call may go beyond the bound by what it adds at once.
        assert unsent_bytes() <= 4 * 64 * 1024
        assert client.receive() == (1, content)


@pytest.mark.parametrize("size", [1_000, 100_000])
@pytest.mark.parametrize("tls", [False, True])
def test_a_file_that_ends_early_costs_the_connection(segment, size, tls, caplog):
    def handle(request):
        if request.body == b"beyond":
            request.respond([b"head", FileSlice(segment, 6_000_000 - 10, size)])
        else:
            request.respond([b"fine"])

    with running(Calling(handle), tls=tls) as server:
        with Client(server, tls=tls) as client:
            client.send(frame(b"beyond"))
            with pytest.raises((EOFError, ConnectionError)):
                client.receive_bytes(size + 12)
        with Client(server, tls=tls) as client:
            assert client.ask(b"") == b"fine"
    assert "the file ends before the records" in caplog.text


def test_a_closed_file_costs_the_connection(tmp_path, caplog):
    (tmp_path / "segment").write_bytes(bytes(100_000))
    file = (tmp_path / "segment").open("rb")
    file.close()

    def handle(request):
        request.respond([FileSlice(file, 0, 100_000)])

    with running(Calling(handle)) as server, Client(server) as client:
        client.send(frame(b""))
        with pytest.raises((EOFError, ConnectionError)):
            client.receive()
        eventually(lambda: server.counts.total == 0)
    assert "the file was closed" in caplog.text


def test_a_file_that_is_deleted_while_it_is_sent_is_sent_whole(tmp_path):
    path = tmp_path / "segment"
    path.write_bytes(b"x" * 5_000_000)

    with path.open("rb") as file:

        def handle(request):
            path.unlink()
            request.respond([FileSlice(file, 0, 5_000_000)])

        with running(Calling(handle)) as server, Client(server) as client:
            assert client.ask(b"") == b"x" * 5_000_000
