"""The socket with TLS by itself: what it receives and sends by one call, and how a connection ends."""

from __future__ import annotations

import socket
import ssl
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.server.network.outbound import Outbound
from klog.server.network.tls_socket import TlsSocket
from tests.server.network.servers import client_tls, server_tls

MIB = 1 << 20
SERVER_TLS, CLIENT_TLS = server_tls(), client_tls()


class Wire:
    """A socket with what the client has sent. It takes as many bytes as it may, and counts its calls."""

    def __init__(self) -> None:
        self.received = bytearray()
        self.sent = bytearray()
        self.ended = False
        self.takes_bytes = MIB * MIB
        self.receives = 0
        self.close = self.fileno = self.setblocking = self.shutdown = None

    def recv(self, size: int, flags: int = 0) -> bytes:
        self.receives += 1
        if not self.received and not self.ended:
            raise BlockingIOError
        data = bytes(self.received[:size])
        del self.received[:size]
        return data

    def sendmsg(self, buffers, _ancillary=(), _flags=0) -> int:
        data = b"".join(buffers)[: self.takes_bytes]
        if not data:
            raise BlockingIOError
        self.takes_bytes -= len(data)
        self.sent += data
        return len(data)


class Pair:
    """A client, the wire, and the server's socket, after their handshake."""

    def __init__(self) -> None:
        self.wire = Wire()
        self.server = TlsSocket(self.wire, SERVER_TLS)
        self.to_client, self.from_client = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.client = CLIENT_TLS.wrap_bio(self.to_client, self.from_client, server_hostname="localhost")
        complete = False
        while not complete:
            with suppress(ssl.SSLWantReadError):
                self.client.do_handshake()
            self.wire.received += self.from_client.read()
            complete = self.server.continue_handshake() is None
            self.arrive()

    def arrive(self) -> None:
        self.to_client.write(bytes(self.wire.sent))
        self.wire.sent.clear()

    def says(self, *parts: bytes) -> bytes:
        """The records of the client, one for each part or more."""
        for part in parts:
            self.client.write(part)
        return self.from_client.read()

    def heard(self) -> bytes:
        self.arrive()
        out = b""
        with suppress(ssl.SSLWantReadError):
            while data := self.client.read(MIB):
                out += data
        return out

    def reads(self, size: int, flags: int = 0) -> bytes:
        return bytes(read(self.server, size, flags))


def read(sock: TlsSocket, size: int, flags: int = 0) -> bytearray:
    buffer = bytearray(size)
    with memoryview(buffer) as view:
        filled = sock.recv_into(view, 0, flags)
    return buffer[:filled]


def test_many_records_are_received_by_one_call():
    pair = Pair()
    content = bytes(range(256)) * 400
    pair.wire.received += pair.says(content)
    before = pair.wire.receives
    assert pair.reads(200_000) == content
    assert pair.wire.receives == before + 1
    assert not pair.server.holds_received


@pytest.mark.parametrize("flags", [0, socket.MSG_WAITALL])
@given(
    parts=st.lists(st.binary(min_size=1, max_size=300) | st.just(b"r" * 40_000), min_size=1, max_size=6),
    steps=st.lists(st.sampled_from([1, 5, 30, 5_000, 50_000]), max_size=8),
    views=st.lists(st.sampled_from([1, 4, 1000, 70_000]), max_size=8),
)
def test_what_a_client_sends_arrives_in_whatever_pieces_it_comes_and_is_read(flags, parts, steps, views):
    pair = Pair()
    raw, content = pair.says(*parts), b"".join(parts)
    steps, views = [*steps, 30_000], [*views, 60_000]
    got, turn = b"", 0
    while len(got) < len(content):
        step, size = steps[turn % len(steps)], views[turn % len(views)]
        pair.wire.received += raw[:step]
        raw = raw[step:]
        turn += 1
        with suppress(BlockingIOError):
            got += pair.reads(size, flags)
        with suppress(BlockingIOError):
            while pair.server.holds_received:
                got += pair.reads(70_000)
    assert got == content
    # A poller would report nothing any more, and nothing is left.
    with pytest.raises(BlockingIOError):
        pair.reads(1)


def test_bytes_that_no_poller_reports_are_announced():
    pair = Pair()
    pair.wire.received += pair.says(b"first", b"second")
    assert pair.reads(5) == b"first"
    assert pair.server.holds_received
    assert pair.reads(100) == b"second"
    assert not pair.server.holds_received


@pytest.mark.parametrize("says_so", [True, False])
def test_the_end_of_a_connection_comes_after_all_that_was_sent(says_so):
    pair = Pair()
    raw = pair.says(b"last words")
    if says_so:
        with suppress(ssl.SSLWantReadError):
            pair.client.unwrap()
        raw += pair.from_client.read()
    pair.wire.received += raw
    pair.wire.ended = not says_so
    assert pair.reads(100) == b"last words"
    assert [pair.reads(100), pair.reads(100)] == [b"", b""]


def test_what_came_before_a_damaged_record_is_read_and_the_client_is_told():
    pair = Pair()
    pair.wire.received += pair.says(b"before", b"damaged")
    pair.wire.received[-1] ^= 1
    assert pair.reads(100) == b"before"
    assert pair.server.holds_received
    for _ in range(2):
        with pytest.raises(ssl.SSLError):
            pair.reads(100)
    with pytest.raises(ssl.SSLError, match=r"(?i)bad.record.mac"):
        pair.heard()


@pytest.mark.parametrize("flags", [0, socket.MSG_WAITALL])
@pytest.mark.parametrize("good_bytes", [1000, 100_000])
def test_damage_takes_nothing_that_came_with_it_before(good_bytes, flags):
    """Whichever piece of what one call receives has the damage, and whatever follows it."""
    pair = Pair()
    good, damaged = pair.says(b"g" * good_bytes), bytearray(pair.says(b"damaged"))
    damaged[-1] ^= 1
    pair.wire.received += good + damaged + pair.says(b"f" * 200_000)
    assert pair.reads(400_000, flags) == b"g" * good_bytes
    with pytest.raises(ssl.SSLError):
        pair.reads(100)


def test_one_call_looks_at_half_a_record_once(monkeypatch):
    """Each look makes an exception. One call receives 256 KiB, in four pieces that end within records."""
    pair = Pair()
    content = b"r" * 300_000
    with pytest.raises(BlockingIOError):
        pair.reads(1)
    pair.wire.received += pair.says(content)
    read_some, asked = pair.server._tls.read, []
    monkeypatch.setattr(pair.server._tls, "read", lambda *of: asked.append(of) or read_some(*of))
    begin = pair.reads(300_000)
    whole = len(begin) // 16_384
    assert begin == content[: whole * 16_384]
    assert (whole, len(asked)) == (15, 16)
    assert pair.reads(300_000) == content[len(begin) :]


@given(
    parts=st.lists(st.binary(min_size=1, max_size=100) | st.just(b"p" * 100_000), min_size=1, max_size=12),
    takes=st.lists(st.sampled_from([1, 50, 5_000, 100_000, MIB]), min_size=1, max_size=5),
)
def test_answers_arrive_whole_and_count_as_queued_until_the_socket_has_taken_them(parts, takes):
    pair = Pair()
    outbound = Outbound(tls=True)
    turn = 0
    for part in parts:
        outbound.add(part)
        pair.wire.takes_bytes = takes[turn % len(takes)]
        turn += 1
        outbound.flush(pair.server)
    while outbound.size_bytes:
        pair.wire.takes_bytes = takes[turn % len(takes)] + 100
        turn += 1
        sent_all = outbound.flush(pair.server)
        assert sent_all == (outbound.size_bytes == 0)
    assert pair.heard() == b"".join(parts)


def test_small_answers_leave_as_one_record():
    pair = Pair()
    outbound = Outbound(tls=True)
    for number in range(50):
        outbound.add(b"answer %2d" % number)
    outbound.flush(pair.server)
    # A record has a head of 5 bytes, and 17 bytes that protect it and say what it is.
    assert len(pair.wire.sent) == 50 * 9 + 22


def test_a_client_that_makes_tls_answer_and_does_not_read_is_given_up():
    class Chatty:
        """Answers each byte with a kilobyte, as OpenSSL answers changes of keys."""

        def wrap_bio(self, _incoming, outgoing, server_side):
            self.outgoing = outgoing
            return self

        def pending(self):
            return 0

        def getpeercert(self, binary_form=False):
            raise NotImplementedError

        def read(self, size, view):
            self.outgoing.write(b"!" * 1000)
            view[0] = 0
            return 1

    wire = Wire()
    wire.takes_bytes = 0
    wire.received += b"anything" * 100
    sock = TlsSocket(wire, Chatty())
    for _ in range(16):
        assert read(sock, 1) == b"\0"
    with pytest.raises(OSError, match="does not read that"):
        read(sock, 1)
