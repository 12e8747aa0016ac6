"""A slice leaves with the bytes around it in one call; the compiled function and its twin do the same."""

from __future__ import annotations

import importlib
import random
import select
import socket
import struct
import sys
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from klog.protocol.file_slice import FileSlice
from klog.server.network import _pyfile_sending, outbound
from klog.server.network.outbound import Outbound

IMPLEMENTATIONS = [_pyfile_sending.send_with_file]
with suppress(ImportError):
    compiled = importlib.import_module("klog.server.network._file_sending")
    IMPLEMENTATIONS.append(compiled.send_with_file)

CONTENT = random.Random(9).randbytes(2_000_000)


@pytest.fixture(params=IMPLEMENTATIONS, ids=lambda each: each.__module__.rpartition(".")[2])
def send_with_file(request):
    return request.param


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("sending") / "segment"
    path.write_bytes(CONTENT)
    with path.open("rb") as opened:
        yield opened


@pytest.fixture
def pair():
    listening = socket.create_server(("127.0.0.1", 0))
    with listening, socket.create_connection(listening.getsockname()) as client:
        server = listening.accept()[0]
        with server:
            server.setblocking(False)
            client.settimeout(60)
            yield server, client


def received(client: socket.socket, size: int) -> bytes:
    out = bytearray()
    while len(out) < size:
        out += client.recv(size - len(out))
    return bytes(out)


linux_only = pytest.mark.skipif(sys.platform != "linux", reason="TCP_CORK and this TCP_INFO are Linux's")


def is_corked(sock: socket.socket) -> bool:
    return bool(sys.platform == "linux" and sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_CORK))


def segments_sent(sock: socket.socket) -> int:
    """The segments with data (tcpi_data_segs_out)."""
    return struct.unpack_from("I", sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 160), 156)[0]


@pytest.mark.parametrize("head", [b"", b"head"])
@pytest.mark.parametrize("tail", [b"", b"tail"])
def test_all_of_it_is_sent_if_the_socket_takes_it(send_with_file, file, pair, head, tail):
    server, client = pair
    sent = send_with_file(server, head, file.fileno(), 1000, 5000, tail)
    expected = head + CONTENT[1000:6000] + tail
    assert sent == len(expected)
    assert received(client, sent) == expected
    assert not is_corked(server)


@linux_only
@pytest.mark.parametrize("head", [b"", b"head"])
@pytest.mark.parametrize("tail", [b"", b"tail"])
def test_what_fits_into_one_segment_leaves_in_one(send_with_file, file, pair, head, tail):
    server, client = pair
    server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    before = segments_sent(server)
    received(client, send_with_file(server, head, file.fileno(), 1000, 5000, tail))
    assert segments_sent(server) - before == 1


def test_a_full_socket_takes_a_part_and_then_nothing(send_with_file, file, pair):
    server, client = pair
    server.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    whole = b"head" + CONTENT + b"tail"
    position = 0
    out = b""
    while position < len(whole):
        try:
            if position < 4:
                sent = send_with_file(server, whole[position:4], file.fileno(), 0, len(CONTENT), b"tail")
            elif position < 4 + len(CONTENT):
                at = position - 4
                sent = send_with_file(server, b"", file.fileno(), at, len(CONTENT) - at, b"tail")
            else:
                sent = server.send(whole[position:])
            assert sent > 0
            assert not is_corked(server)
            position += sent
        except BlockingIOError:
            assert not is_corked(server)
            if select.select([client], [server], [], 60)[0]:
                out += client.recv(1 << 20)
    out += received(client, len(whole) - len(out))
    assert out == whole


def test_a_file_that_has_ended_is_an_error_once_what_is_before_it_is_sent(send_with_file, file, pair):
    server, client = pair
    assert send_with_file(server, b"head", file.fileno(), len(CONTENT), 10, b"tail") == 4
    assert received(client, 4) == b"head"
    with pytest.raises(EOFError):
        send_with_file(server, b"", file.fileno(), len(CONTENT), 10, b"tail")
    assert not is_corked(server)


def test_a_file_that_ends_early_is_sent_without_its_tail(send_with_file, file, pair):
    server, client = pair
    sent = send_with_file(server, b"head", file.fileno(), len(CONTENT) - 5, 10, b"tail")
    assert received(client, sent) == b"head" + CONTENT[-5:]
    assert not is_corked(server)


def test_a_broken_connection_is_an_error(send_with_file, file, pair):
    server, _ = pair
    server.shutdown(socket.SHUT_WR)
    with pytest.raises(BrokenPipeError):
        send_with_file(server, b"head", file.fileno(), 0, 10, b"")
    with pytest.raises(BrokenPipeError):
        send_with_file(server, b"", file.fileno(), 0, 10, b"")


def test_a_file_that_is_not_open_is_an_error(send_with_file, pair):
    with pytest.raises(OSError, match=r"Bad file descriptor|cannot send"):
        send_with_file(pair[0], b"", -1, 0, 10, b"")


HEAD, SLICE_BYTES, TAIL = b"head", 40_000, b"end"
BORDERS = (0, len(HEAD), len(HEAD) + SLICE_BYTES, len(HEAD) + SLICE_BYTES + len(TAIL))
# A socket may take any number of bytes.
CUTS = sorted(
    {cut for border in BORDERS for cut in range(border - 5, border + 6) if 0 < cut <= BORDERS[-1]}
    | set(range(4096, BORDERS[-1], 4096))
)


@pytest.mark.parametrize("cut", CUTS)
def test_an_answer_arrives_whole_wherever_a_send_ended(send_with_file, file, pair, cut, monkeypatch):
    server, client = pair
    calls = 0

    def until_cut(sock, head, fd, position, size, tail):
        nonlocal calls
        calls += 1
        if calls > 1:
            return send_with_file(sock, head, fd, position, size, tail)
        if cut <= len(head):
            return sock.send(head[:cut])
        of_slice = min(size, cut - len(head))
        return send_with_file(sock, head, fd, position, of_slice, tail[: cut - len(head) - of_slice])

    monkeypatch.setattr(outbound, "send_with_file", until_cut)
    sending = Outbound(tls=False)
    for part in (HEAD, FileSlice(file, 1000, SLICE_BYTES), TAIL):
        sending.add(part)
    whole = HEAD + CONTENT[1000 : 1000 + SLICE_BYTES] + TAIL
    out = bytearray()
    while not sending.flush(server):
        out += client.recv(1 << 20)
    assert out + received(client, len(whole) - len(out)) == whole
    assert sending.size_bytes == 0
    assert not is_corked(server)


@given(
    head=st.binary(max_size=20),
    tail=st.binary(max_size=20),
    position=st.integers(0, len(CONTENT) + 10),
    size=st.integers(1, 100_000),
)
@settings(max_examples=50)
def test_the_twins_agree(file, head, tail, position, size):
    outcomes = []
    for send in IMPLEMENTATIONS:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            ours.setblocking(False)
            try:
                sent = send(ours, head, file.fileno(), position, size, tail)
            except OSError as error:
                outcomes.append(type(error))
            except EOFError:
                outcomes.append(EOFError)
            else:
                outcomes.append(received(theirs, sent))
    assert outcomes == outcomes[:1] * len(outcomes)
