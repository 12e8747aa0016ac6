"""The blocking channel: the answer to the request, or a clear error within the timeout."""

from __future__ import annotations

import socket
import struct
import threading
import time
from contextlib import contextmanager

import pytest

from klog.protocol.api_versions import decode_api_versions_request, encode_api_versions_response
from klog.protocol.apis import SERVED, ApiKey
from klog.protocol.channel import Channel
from klog.protocol.errors import (
    ConnectFailedError,
    ConnectionLostError,
    ConnectRefusedError,
    RequestTimeoutError,
    UnexpectedResponseError,
    UnsupportedApiError,
)
from klog.protocol.interbroker.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse
from klog.protocol.messages import (
    decode_request,
    decode_request_header,
    encode_response,
    encode_response_header,
)
from klog.server.network import Handler, Listener, NetworkSettings, SocketServer
from tests.server.network.servers import client_tls, server_tls

UPDATE = UpdateMetadataRequest(controller_id=1, controller_epoch=2, topic_states=(), live_brokers=())


class Broker(Handler):
    """Answers ApiVersions, and UpdateMetadata with the controller's id as its error code."""

    def may_block(self, api_key, api_version):
        return False

    def failed(self, request, fault):
        raise fault

    def handle(self, request):
        if request.api_key == ApiKey.API_VERSIONS:
            request.respond([encode_api_versions_response(request.api_version)])
            return
        entity = decode_request(request.api_key, request.api_version, request.body)
        request.respond([encode_response(UpdateMetadataResponse(error_code=entity.controller_id))])


class Silent(Broker):
    """Answers nothing but ApiVersions."""

    def handle(self, request):
        if request.api_key == ApiKey.API_VERSIONS:
            super().handle(request)


def sized(frame):
    """An answer of as many equal bytes as the request says."""
    header = decode_request_header(frame)
    size = int.from_bytes(frame[header.body_position_bytes :], "big")
    return framed(encode_response_header(*header[:3]) + bytes([size % 251]) * size)


@contextmanager
def broker(tls=None, handler=Broker):
    server = SocketServer([Listener("TEST", "127.0.0.1", 0, tls)], NetworkSettings(), handler())
    server.bind()
    server.start()
    yield server.port("TEST")
    server.stop()


@contextmanager
def peer(*answers, seen=None, stays=None):
    """A listening socket on which a script answers frame by frame: functions of the request's frame.

    `seen` gets the socket of the connection, which stays open until the event `stays`.
    """
    with socket.create_server(("127.0.0.1", 0)) as server:

        def run():
            sock, _ = server.accept()
            if seen is not None:
                seen.append(sock)
            with sock:
                for answer in answers:
                    size = struct.unpack(">i", _receive(sock, 4))[0]
                    raw = answer(_receive(sock, size))
                    if raw is None:
                        return
                    sock.sendall(raw)
                sock.recv(1)
                if stays is not None:
                    stays.wait(60)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        yield server.getsockname()[1]
        thread.join(5)


def _receive(sock, size):
    out = b""
    while len(out) < size:
        piece = sock.recv(size - len(out))
        if not piece:
            raise EOFError
        out += piece
    return out


def framed(raw):
    return struct.pack(">i", len(raw)) + raw


def versions(frame):
    header = decode_request_header(frame)
    head = encode_response_header(*header[:3])
    return framed(head + encode_api_versions_response(header.api_version))


def test_tls_and_plain_ports_that_are_mixed_up_are_named():
    with broker(server_tls()) as port, pytest.raises(ConnectionLostError, match=r"security\.protocol=SSL"):
        Channel("localhost", port).connect()
    no_tls = r"does not speak TLS.*security\.protocol=PLAINTEXT"
    with broker() as port, pytest.raises(ConnectFailedError, match=no_tls):
        Channel("localhost", port, tls=client_tls()).connect()


def test_the_response_entity_matches_the_request_entity():
    with broker() as port, Channel("127.0.0.1", port) as channel:
        for number in (0, 3, 11):
            answer = channel.send(UpdateMetadataRequest(**{**_fields(UPDATE), "controller_id": number}))
            assert answer == UpdateMetadataResponse(error_code=number)


def _fields(entity):
    return {name: getattr(entity, name) for name in entity.__slots__}


def test_a_channel_can_use_tls():
    with broker(server_tls()) as port, Channel("localhost", port, tls=client_tls()) as channel:
        assert channel.send(UPDATE).error_code == 1


def test_a_peer_with_an_untrusted_certificate_is_refused():
    import ssl

    with broker(server_tls()) as port, pytest.raises(ConnectFailedError, match="certificate"):
        Channel("localhost", port, tls=ssl.create_default_context()).connect()


def test_connecting_asks_for_the_supported_versions():
    with broker() as port, Channel("127.0.0.1", port) as channel:
        assert channel.version_of(ApiKey.METADATA) == SERVED[ApiKey.METADATA].max_version
        assert channel.version_of(ApiKey.METADATA, at_most=7) == 7
        with pytest.raises(UnsupportedApiError, match="does not support DescribeQuorum"):
            channel.version_of(ApiKey.DESCRIBE_QUORUM)
        with pytest.raises(UnsupportedApiError, match="none of which"):
            channel.version_of(ApiKey.STOP_REPLICA, at_most=0)


def test_the_receive_buffer_of_the_socket_is_set_before_it_connects(monkeypatch):
    """The system doubles the size that it is told."""
    made = []

    class Socket(socket.socket):
        def connect(self, address):
            made.append(self.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF))
            super().connect(address)

    with broker() as port:
        monkeypatch.setattr(socket, "socket", Socket)
        with Channel("127.0.0.1", port, receive_buffer_bytes=20_000) as channel:
            assert channel.version_of(ApiKey.METADATA) == SERVED[ApiKey.METADATA].max_version
        assert made == [40_000]
        with pytest.raises(ConnectRefusedError):
            Channel("127.0.0.1", 1, receive_buffer_bytes=20_000).connect()


def test_an_older_peer_is_asked_again_in_a_version_that_it_names():
    asked = []

    def old(frame):
        header = decode_request_header(frame)
        asked.append(header.api_version)
        body = frame[header.body_position_bytes :]
        assert decode_api_versions_request(header.api_version, body).name in ("klog", "")
        known = encode_api_versions_response(99).replace(b"\0\4", b"\0\2")
        answer = known if header.api_version > 2 else encode_api_versions_response(header.api_version)
        return framed(encode_response_header(*header[:3]) + answer)

    with peer(old, old) as port, Channel("127.0.0.1", port) as channel:
        assert channel.version_of(ApiKey.PRODUCE) == 11
    assert asked == [4, 2]


def test_a_closed_port_is_a_failed_connect():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(ConnectFailedError, match=f"127.0.0.1:{port}"):
        Channel("127.0.0.1", port).connect()


def test_a_host_without_an_address_is_a_failed_connect():
    with pytest.raises(ConnectFailedError):
        Channel("no-such-host.invalid", 9092, timeout_ms=2000).connect()


def test_a_peer_that_closes_is_a_lost_connection():
    with peer(versions, lambda frame: None) as port, Channel("127.0.0.1", port) as channel:
        with pytest.raises(ConnectionLostError):
            channel.send(UPDATE)
        assert not channel.connected


def test_a_connection_that_is_closed_at_the_first_request_may_need_a_login():
    with (
        peer(versions, lambda frame: None) as port,
        Channel("127.0.0.1", port) as channel,
        pytest.raises(ConnectionLostError) as lost,
    ):
        channel.exchange(ApiKey.METADATA, 9, (b"",))
    cure = "if that port needs a login: security.protocol, sasl.mechanism and sasl.jaas.config"
    assert lost.value.cure == cure
    answered = [versions, lambda frame: framed(frame[4:8] + b"\0"), lambda frame: None]
    with peer(*answered) as port, Channel("127.0.0.1", port) as channel:
        channel.exchange(ApiKey.METADATA, 9, (b"",))
        with pytest.raises(ConnectionLostError) as later:
            channel.exchange(ApiKey.METADATA, 9, (b"",))
    assert later.value.cure is None


def test_a_peer_that_does_not_answer_is_a_timeout_after_which_the_channel_is_closed():
    with peer(versions, lambda frame: b"") as port, Channel("127.0.0.1", port) as channel:
        started_s = time.monotonic()
        with pytest.raises(RequestTimeoutError):
            channel.send(UPDATE, timeout_ms=100)
        assert time.monotonic() - started_s < 20  # by itself it would wait 30 s
        assert not channel.connected


def test_a_peer_that_does_not_answer_is_a_timeout_with_tls_too():
    with broker(server_tls(), Silent) as port, Channel("localhost", port, tls=client_tls()) as channel:
        with pytest.raises(RequestTimeoutError):
            channel.send(UPDATE, timeout_ms=100)
        assert not channel.connected


def test_a_peer_that_reads_nothing_is_a_timeout():
    stays = threading.Event()
    with peer(versions, stays=stays) as port, Channel("127.0.0.1", port) as channel:
        with pytest.raises(RequestTimeoutError):
            channel.exchange(ApiKey.PRODUCE, 7, (bytes(64 << 20),), timeout_ms=100)
        stays.set()


def test_each_request_has_its_own_limit():
    with peer(versions, versions, lambda frame: b"") as port, Channel("127.0.0.1", port) as channel:
        channel.exchange(ApiKey.API_VERSIONS, 3, (b"",), timeout_ms=60_000)
        with pytest.raises(RequestTimeoutError):
            channel.exchange(ApiKey.API_VERSIONS, 3, (b"",), timeout_ms=100)


def test_bytes_that_trickle_in_do_not_extend_the_timeout():
    with peer(versions, lambda frame: b"\0\0") as port:
        channel = Channel("127.0.0.1", port)
        channel.connect()
        with pytest.raises(RequestTimeoutError):
            channel.send(UPDATE, timeout_ms=100)


BAD_ANSWERS = {
    "another request's": lambda frame: framed(struct.pack(">i", 999) + b"\0" + b"\0\0\0"),
    "no header": lambda frame: framed(b"\0"),
    "no message": lambda frame: framed(frame[4:8] + b"\0" + b"\0"),
    "a negative size": lambda frame: struct.pack(">i", -7),
}


@pytest.mark.parametrize("answer", BAD_ANSWERS.values(), ids=BAD_ANSWERS.keys())
def test_an_invalid_response_closes_the_channel(answer):
    with peer(versions, answer) as port, Channel("127.0.0.1", port) as channel:
        with pytest.raises(UnexpectedResponseError):
            channel.send(UPDATE)
        assert not channel.connected


def test_a_peer_that_is_not_kafka_is_an_unexpected_response():
    with peer(lambda frame: b"HTTP/1.1 400 Bad Request\r\n\r\n" * 40) as port:
        channel = Channel("127.0.0.1", port, timeout_ms=500)
        with pytest.raises((UnexpectedResponseError, RequestTimeoutError)):
            channel.connect()
        assert not channel.connected


def test_another_thread_may_close_the_channel_during_a_request():
    with peer(versions, lambda frame: b"") as port, Channel("127.0.0.1", port) as channel:
        threading.Timer(0.1, channel.close).start()
        with pytest.raises(ConnectionLostError):
            channel.send(UPDATE)


def test_a_closed_channel_refuses_and_connects_again():
    with broker() as port:
        channel = Channel("127.0.0.1", port)
        with pytest.raises(ConnectionLostError, match="no connection"):
            channel.send(UPDATE)
        for _ in range(2):
            channel.connect()
            assert channel.send(UPDATE).error_code == 1
            channel.close()


def test_large_bodies_are_sent_and_received_whole():
    body = bytes(range(256)) * 20_000

    def echo(frame):
        header = decode_request_header(frame)
        assert frame[header.body_position_bytes :] == body
        return framed(encode_response_header(*header[:3]) + body)

    with peer(versions, echo) as port, Channel("127.0.0.1", port) as channel:
        parts = [body[:10], memoryview(body)[10:4_000_000], body[4_000_000:]]
        assert channel.exchange(ApiKey.PRODUCE, 7, parts) == body


@pytest.mark.parametrize("size", [0, 1, 4083, 4084, 4085, 4088, 4089, 9000])
@pytest.mark.parametrize("first", [1, 3, 4, 5, 4096, 20_000])
def test_answers_are_read_whole_however_they_come(size, first):
    body = bytes(range(256)) * 40

    def in_two_pieces(frame):
        header = decode_request_header(frame)
        raw = framed(encode_response_header(*header[:3]) + body[:size])
        sock = connections[-1]
        sock.sendall(raw[:first])
        return raw[first:]

    connections = []
    with peer(versions, in_two_pieces, seen=connections) as port, Channel("127.0.0.1", port) as channel:
        assert channel.exchange(ApiKey.PRODUCE, 7, [b""]) == body[:size]


def test_a_peer_that_sends_two_answers_is_not_trusted():
    def twice(frame):
        header = decode_request_header(frame)
        return framed(encode_response_header(*header[:3])) * 2

    with peer(versions, twice) as port, Channel("127.0.0.1", port) as channel:
        with pytest.raises(UnexpectedResponseError, match="more than one answer"):
            channel.exchange(ApiKey.PRODUCE, 7, [b""])
        assert not channel.connected


def test_answers_of_any_size_follow_each_other():
    sizes = (100, 3_000_000, 7, 0, 2_999_999, 3_000_001, 140_000)
    with peer(versions, *[sized] * len(sizes)) as port, Channel("127.0.0.1", port) as channel:
        for size in sizes:
            answer = channel.exchange(ApiKey.PRODUCE, 7, [size.to_bytes(4, "big")])
            assert answer == bytes([size % 251]) * size


def test_an_answer_is_received_into_the_memory_of_one_that_nobody_keeps_a_view_of():
    sizes = (1_200_000, 1_200_001, 1_200_002, 1_200_003)
    with peer(versions, *[sized] * len(sizes)) as port, Channel("127.0.0.1", port) as channel:

        def answer(size):
            return channel.exchange(ApiKey.PRODUCE, 7, [size.to_bytes(4, "big")])

        first = answer(sizes[0])
        part = first[1000:2000]
        second = answer(sizes[1])
        assert second.obj is not first.obj
        memory = first.obj
        del first
        assert answer(sizes[2]).obj is not memory
        assert part == bytes([sizes[0] % 251]) * 1000
        del part
        assert answer(sizes[3]).obj is memory
        assert second == bytes([sizes[1] % 251]) * sizes[1]


def test_a_posted_request_waits_for_no_answer():
    received = threading.Event()

    def take(frame):
        received.set()
        return b""

    with peer(versions, take) as port, Channel("127.0.0.1", port) as channel:
        channel.post(ApiKey.PRODUCE, 7, [b"acks=0"])
        assert received.wait(20)
