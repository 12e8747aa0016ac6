"""The pieces by themselves: request headers, frames that grow, what is still to be sent."""

from __future__ import annotations

import socket
import struct
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.formats.errors import KlogError
from klog.protocol.errors import MalformedMessageError, UnsupportedApiError
from klog.protocol.file_slice import FileSlice
from klog.protocol.messages import decode_request_header, encode_request_header
from klog.server.network.connection import Connection
from klog.server.network.large_frame import LargeFrame
from klog.server.network.outbound import Outbound
from klog.server.network.request import Request
from klog.server.network.settings import Listener
from tests.protocol.test_headers import SERVED_VERSIONS

PLAIN = Listener("TEST", "127.0.0.1", 0)


@pytest.fixture(scope="module")
def connection():
    ours, theirs = socket.socketpair()
    yield Connection(ours, PLAIN, ("10.0.0.1", 5), network=None)
    ours.close()
    theirs.close()


def _outcome(function):
    try:
        return function()
    except (MalformedMessageError, UnsupportedApiError) as error:
        return type(error)


@given(
    raw=st.binary(max_size=30)
    | st.tuples(st.sampled_from(SERVED_VERSIONS), st.text(max_size=5), st.binary(max_size=9))
)
def test_a_request_reads_its_header_as_the_protocol_package_does(connection, raw):
    if isinstance(raw, tuple):
        (key, version), client_id, body = raw
        raw = encode_request_header(key, version, 3, client_id.encode("utf-8", "replace").decode()) + body
    expected = _outcome(lambda: decode_request_header(raw))
    request = _outcome(lambda: Request(connection, bytearray(raw), 0))
    if isinstance(expected, type):
        # The client id is decoded only on demand, so a wrong encoding is no error here.
        assert isinstance(request, type) or expected is MalformedMessageError
        return
    assert (request.api_key, request.api_version, request.correlation_id) == expected[:3]
    assert request.client_id == expected.client_id
    assert request.body == raw[expected.body_position_bytes :]


@pytest.mark.parametrize("size", [-1, -2, -(2**15)])
def test_every_negative_size_of_a_client_id_is_null(connection, size):
    raw = struct.pack(">hhih", 0, 7, 3, size) + b"body"
    request = Request(connection, bytearray(raw), 0)
    assert (request.client_id, bytes(request.body)) == (None, b"body")
    assert decode_request_header(raw).client_id is None


def test_a_large_frame_grows_as_bytes_come():
    frame = LargeFrame(10_000_000, b"x" * 70_000)
    sizes = []
    while not frame.complete:
        with frame.unfilled() as room:
            sizes.append(len(frame.buffer))
            frame.filled_bytes += len(room)
    assert sizes == [280_000, 1_120_000, 4_480_000, 10_000_000]
    assert bytes(frame.buffer[:70_000]) == b"x" * 70_000


@pytest.mark.parametrize("kept_bytes", [0, 50_000, 100_000, 300_000])
def test_a_large_frame_goes_on_in_a_kept_buffer_with_what_it_has(kept_bytes):
    content = bytes(range(250)) * 800
    frame = LargeFrame(len(content), content[:70_000])
    kept = bytearray(b"?" * kept_bytes)
    assert frame.move_into(kept)
    assert frame.buffer is kept
    while not frame.complete:
        with frame.unfilled() as room:
            room[:] = content[frame.filled_bytes : frame.filled_bytes + len(room)]
            frame.filled_bytes += len(room)
    assert frame.buffer == content


def test_a_kept_buffer_that_is_still_viewed_is_not_used():
    frame = LargeFrame(200_000, b"x" * 70_000)
    kept = bytearray(b"?" * 100_000)
    with memoryview(kept)[10:20]:
        assert not frame.move_into(kept)
    assert kept == b"?" * 100_000
    assert frame.buffer == b"x" * 70_000


class CountingSocket:
    """Takes at most so many bytes a call, and counts the calls."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.calls = []
        self.taken = bytearray()

    def send(self, data):
        return self.sendmsg([data])

    def sendmsg(self, buffers, ancillary=(), flags=0):
        if self.limit == 0:
            raise BlockingIOError
        data = b"".join(bytes(buffer) for buffer in buffers)[: self.limit]
        self.calls.append((len(data), flags))
        self.taken += data
        return len(data)


def test_the_answers_of_one_read_are_sent_in_one_call():
    outbound = Outbound(tls=False)
    for number in range(20):
        outbound.add(b"answer %d" % number)
    sock = CountingSocket(1 << 20)
    assert outbound.flush(sock)
    assert len(sock.calls) == 1
    assert outbound.size_bytes == 0


@given(parts=st.lists(st.binary(max_size=50), max_size=100), limit=st.integers(1, 60))
def test_partial_sends_keep_their_rest(parts, limit):
    outbound = Outbound(tls=False)
    for part in parts:
        outbound.add(part)
    sock = CountingSocket(limit)
    assert outbound.flush(sock)
    assert sock.taken == b"".join(parts)
    assert outbound.size_bytes == 0


def test_what_the_socket_does_not_take_stays_queued():
    outbound = Outbound(tls=False)
    outbound.add(b"abc")
    assert not outbound.flush(CountingSocket(0))
    assert outbound.size_bytes == 3


def test_msg_more_is_set_only_in_front_of_a_file(tmp_path):
    (tmp_path / "segment").write_bytes(bytes(100_000))
    ours, theirs = socket.socketpair()
    with (tmp_path / "segment").open("rb") as file, ours, theirs:
        outbound = Outbound(tls=False)
        outbound.add(b"head")
        outbound.add(b"er")
        outbound.add(FileSlice(file, 0, 0))
        sock = CountingSocket(100)
        assert outbound.flush(sock)
        assert sock.calls == [(6, 0)]
        outbound.add(b"head")
        outbound.add(b"er")
        outbound.add(FileSlice(file, 0, 100_000))
        with suppress(KlogError, AttributeError):
            outbound.flush(sock)
        assert sock.calls[1] == (6, socket.MSG_MORE)
