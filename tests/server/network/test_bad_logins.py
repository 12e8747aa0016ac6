"""Clients that log in badly cost little, and others are undisturbed."""

from __future__ import annotations

import random
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from klog.security.authentication.exchange import (
    ApiVersionsAnswer,
    ExchangeSettings,
    MechanismSettings,
    SaslExchange,
)
from klog.security.authentication.plain import Plain
from klog.server.network import Listener
from klog.storage.log.scheduler import monotonic_ms
from tests.server.network.servers import TIMEOUT_S, Client, Echo, frame, running, server_tls
from tests.server.network.test_phases import framed, received

LIMIT_BYTES = 4096


def plain() -> Plain:
    return Plain({"alice": "wonder"})


def exchange(server: Callable[[], Plain] = plain) -> SaslExchange:
    settings = ExchangeSettings(
        {"PLAIN": MechanismSettings(server)},
        LIMIT_BYTES,
        lambda version, body: ApiVersionsAnswer(b"", accepted=True),
        monotonic_ms,
        monotonic_ms,
    )
    return SaslExchange(lambda: settings)


@pytest.fixture
def server() -> Iterator[object]:
    listener = Listener("TEST", "127.0.0.1", 0, None, exchange)
    with running(Echo(), listener=listener, failed_authentication_delay_ms=50) as served:
        yield served


def handshake(version: int = 1) -> bytes:
    return framed(struct.pack(">hhih", 17, version, 1, -1) + b"\0\5PLAIN")


def message(content: bytes) -> bytes:
    return framed(struct.pack(">hhih", 36, 0, 2, -1) + struct.pack(">i", len(content)) + content)


def log_in(client: Client) -> None:
    client.send(handshake() + message(b"\0alice\0wonder"))
    assert received(client)[4:6] == b"\0\0"
    assert received(client)[4:6] == b"\0\0"
    assert client.ask(b"x") == b"x"


def test_hundreds_of_failed_logins_at_once_disturb_nobody(server) -> None:
    with Client(server) as good, ExitStack() as others:
        log_in(good)
        guessing = [others.enter_context(Client(server)) for _ in range(300)]
        for client in guessing:
            client.send(handshake() + message(b"\0alice\0guess") + frame(b"x"))
        for number in range(50):
            assert good.ask(b"x", number) == b"x"
        for client in guessing:
            received(client)
            assert struct.unpack_from(">h", received(client), 4)[0] == 58
            assert client.is_closed()
        with Client(server) as later:
            log_in(later)


@pytest.mark.parametrize("size", [LIMIT_BYTES + 1, 2**31 - 1, -1, 0])
def test_a_frame_above_the_limit_is_not_read(server, size: int) -> None:
    with Client(server) as client:
        client.send(struct.pack(">i", size))
        assert client.is_closed()


def test_a_defect_of_an_authentication_costs_its_connection_and_is_logged_with_its_place(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def defective() -> Plain:
        raise RuntimeError("a defect")

    listener = Listener("TEST", "127.0.0.1", 0, None, lambda: exchange(defective))
    with running(Echo(), listener=listener) as served, Client(served) as client:
        client.send(handshake())
        assert client.is_closed()
    assert "Traceback" in caplog.text
    assert "in defective" in caplog.text


def test_handshakes_without_end_are_ended(server) -> None:
    with Client(server) as client:
        client.send(handshake() * 100)
        received(client)
        assert struct.unpack_from(">h", received(client), 4)[0] == 34
        assert client.is_closed()


def test_a_login_that_comes_byte_by_byte_is_a_login(server) -> None:
    with Client(server) as client:
        for byte in handshake() + message(b"\0alice\0wonder"):
            client.send(bytes((byte,)))
        received(client)
        received(client)
        assert client.ask(b"x") == b"x"


@pytest.mark.parametrize("tls", [False, True])
def test_a_client_that_sends_byte_by_byte_has_the_idle_time_for_its_login(tls: bool) -> None:
    now_ms = 0
    listener = Listener("TEST", "127.0.0.1", 0, server_tls() if tls else None, exchange)
    limits = {"connections_max_idle_ms": 10_000, "clock_ms": lambda: now_ms}
    with (
        running(Echo(), listener=listener, **limits) as server,
        Client(server) as slow,
        Client(server, tls=tls) as good,
    ):
        log_in(good)
        for byte in b"\x16\x03\x01\x01\x00\x01" if tls else b"\0\0\1\0\0\x11":
            slow.send(bytes((byte,)))
            now_ms += 2_000
            # Its thread has seen the byte.
            assert good.ask(b"x") == b"x"
        assert slow.is_closed()
        assert good.ask(b"x") == b"x"


def test_random_bytes_log_nobody_in_and_the_server_lives_on(server) -> None:
    chance = random.Random(11)
    good = handshake() + message(b"\0alice\0wonder")
    for _ in range(150):
        sent = bytearray(good)
        for _ in range(chance.randrange(1, 6)):
            sent[chance.randrange(len(sent))] = chance.randrange(256)
        if sent == good:
            continue
        with socket.create_connection(("127.0.0.1", server.port("TEST")), TIMEOUT_S) as sock:
            sock.sendall(sent + frame(b"x" * 8, 77))
            sock.shutdown(socket.SHUT_WR)
            answer = b""
            while more := _receive(sock):
                answer += more
        assert b"x" * 8 not in answer or b"\0alice\0wonder" in sent
    with Client(server) as client:
        log_in(client)


def _receive(sock: socket.socket) -> bytes:
    try:
        return sock.recv(4096)
    except ConnectionError:
        return b""
