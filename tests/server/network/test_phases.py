"""A connection is open after TLS and authentication, which name its principal."""

from __future__ import annotations

import logging
import socket
import ssl
import struct
from contextlib import contextmanager, suppress

import pytest

from klog.security.authentication.principal_rules import parse_rules
from klog.security.authentication.steps import AuthenticationStep, Session
from klog.security.principal import ANONYMOUS, KafkaPrincipal
from klog.server.network import Listener, NetworkSettings
from tests.server.network.servers import (
    TIMEOUT_S,
    TLS_FILES,
    Client,
    Echo,
    client_tls,
    frame,
    running,
    server_tls,
)
from tests.server.network.test_deadlines import Clock
from tests.waiting import eventually

ALICE = KafkaPrincipal("User", "alice")


def framed(content: bytes) -> bytes:
    return struct.pack(">i", len(content)) + content


class Passwords:
    """Two frames, a name and a password: the first is answered, the second may fail."""

    max_frame_bytes = 300_000

    def __init__(self) -> None:
        self.name: str | None = None

    def take_frame(self, frame: bytearray) -> AuthenticationStep:
        if frame == b"bug":
            raise LookupError("a bug")
        if self.name is None:
            self.name = frame.strip().decode()
            return AuthenticationStep(framed(b"name?"))
        if frame == b"right":
            return AuthenticationStep(framed(b""), KafkaPrincipal("User", self.name))
        return AuthenticationStep(framed(b"wrong"), failed=True)


class Asking(Echo):
    def __init__(self) -> None:
        super().__init__()
        self.principals: list[KafkaPrincipal] = []

    def answer(self, request):
        self.principals.append(request.principal)
        return super().answer(request)


def authenticating(handler: Echo, tls: ssl.SSLContext | None = None, **options):
    return running(handler, listener=Listener("TEST", "127.0.0.1", 0, tls, Passwords), **options)


def received(client: Client) -> bytes:
    return client.receive_bytes(struct.unpack(">i", client.receive_bytes(4))[0])


def test_frames_before_the_principal_is_known_are_no_requests():
    handler = Asking()
    with authenticating(handler) as server, Client(server) as client:
        client.send(framed(b"alice"))
        assert received(client) == b"name?"
        client.send(framed(b"right"))
        assert received(client) == b""
        assert handler.principals == []
        assert client.ask(b"x") == b"x"
    assert handler.principals == [ALICE]


def test_all_of_an_exchange_and_requests_may_come_in_one_read():
    handler = Asking()
    with authenticating(handler) as server, Client(server) as client:
        client.send(framed(b"alice") + framed(b"right") + frame(b"x", 7))
        assert (received(client), received(client)) == (b"name?", b"")
        assert client.receive() == (7, b"x")
    assert handler.principals == [ALICE]


@pytest.mark.parametrize("size", [1_000, 70_000, 100_000, 299_999])
def test_a_frame_of_an_exchange_may_be_larger_than_one_read(size):
    handler = Asking()
    with authenticating(handler) as server, Client(server) as client:
        client.send(framed(b"alice".ljust(size)))
        assert received(client) == b"name?"
        client.send(framed(b"right") + frame(b"x", 7))
        assert received(client) == b""
        assert client.receive() == (7, b"x")
    assert handler.principals == [ALICE]


def test_after_authentication_frames_may_be_as_large_as_requests_are():
    with authenticating(Asking()) as server, Client(server) as client:
        client.send(framed(b"alice") + framed(b"right"))
        assert (received(client), received(client)) == (b"name?", b"")
        assert client.ask(bytes(1_000_000)) == bytes(1_000_000)


@pytest.mark.parametrize("size", [300_001, 0, -1])
def test_a_frame_of_a_wrong_size_closes_the_connection(size, caplog):
    with authenticating(Asking()) as server, Client(server) as client:
        client.send(struct.pack(">i", size))
        assert client.is_closed()
    assert "allowed are 1 to 300000 (sasl.server.max.receive.size)" in caplog.text


def test_a_failure_is_answered_and_closed_after_a_delay(caplog):
    caplog.set_level(logging.INFO, "klog.server")
    clock, handler = Clock(), Asking()
    open_listener = Listener("OPEN", "127.0.0.1", 0)
    secure = Listener("TEST", "127.0.0.1", 0, None, Passwords)
    settings = {"failed_authentication_delay_ms": 700}
    with running(handler, listener=secure, clock_ms=clock, **settings) as server, Client(server) as client:
        server.reconfigure([secure, open_listener], NetworkSettings(**settings))
        with Client(server, listener="OPEN") as other:
            client.send(framed(b"alice") + framed(b"guess") + framed(b"right") + frame(b"x"))
            assert received(client) == b"name?"
            eventually(lambda: "Failed authentication with" in caplog.text)
            clock.now_ms = 699
            for number in range(3):
                other.ask(b"x", number)
            client.sock.setblocking(False)
            with pytest.raises(BlockingIOError):
                client.sock.recv(1)
            client.sock.settimeout(TIMEOUT_S)
            clock.now_ms = 700
            assert other.ask(b"x") == b"x"
            assert received(client) == b"wrong"
            assert client.is_closed()
    assert set(handler.principals) == {ANONYMOUS}


def test_an_exchange_that_breaks_costs_its_connection_and_no_thread(caplog):
    with authenticating(Asking()) as server:
        with Client(server) as client:
            client.send(framed(b"bug"))
            assert client.is_closed()
        with Client(server) as client:
            client.send(framed(b"alice"))
            assert received(client) == b"name?"
    assert "a bug" in caplog.text


def mutual_tls(mode: ssl.VerifyMode) -> ssl.SSLContext:
    context = server_tls()
    for name in ("certificate.pem", "other_holder.pem", "renewed.pem"):
        context.load_verify_locations(TLS_FILES / name)
    context.verify_mode = mode
    return context


def ask_with(server, certificate: str | None) -> bytes:
    raw = socket.create_connection(("127.0.0.1", server.port("TEST")), TIMEOUT_S)
    with client_tls(certificate).wrap_socket(raw, server_hostname="localhost") as sock:
        sock.sendall(frame(b"x"))
        return sock.recv(100)


def test_a_client_certificate_names_the_principal_and_none_is_anonymous():
    handler = Asking()
    listener = Listener("TEST", "127.0.0.1", 0, mutual_tls(ssl.CERT_OPTIONAL))
    with running(handler, listener=listener) as server:
        for certificate in ("other_holder.pem", None, "first.pem", "renewed.pem"):
            assert ask_with(server, certificate).endswith(b"x")
    assert list(map(str, handler.principals)) == [
        "User:CN=other",
        "User:ANONYMOUS",
        "User:CN=localhost",
        "User:CN=LOCALHOST\\ ",
    ]


def test_a_client_without_the_certificate_that_is_required_is_refused(caplog):
    caplog.set_level(logging.INFO, "klog.server")
    handler = Asking()
    listener = Listener("TEST", "127.0.0.1", 0, mutual_tls(ssl.CERT_REQUIRED))
    with running(handler, listener=listener) as server:
        with suppress(ssl.SSLError, ConnectionError):
            # With TLS 1.3 the client learns of it when it reads.
            assert ask_with(server, None) == b""
        assert ask_with(server, "first.pem").endswith(b"x")
    assert "TLS handshake failed" in caplog.text
    assert list(map(str, handler.principals)) == ["User:CN=localhost"]


def test_after_tls_a_connection_authenticates_and_its_principal_replaces_the_certificates():
    handler = Asking()
    with authenticating(handler, server_tls()) as server, Client(server, tls=True) as client:
        client.send(framed(b"alice") + framed(b"right") + frame(b"x", 7))
        assert (received(client), received(client)) == (b"name?", b"")
        assert client.receive() == (7, b"x")
    assert handler.principals == [ALICE]


class Expiring(Passwords):
    """As `Passwords`, for sessions of 1000 ms of `clock` that may be renewed after 100 ms."""

    clock = Clock()

    def take_frame(self, frame: bytearray) -> AuthenticationStep:
        step = super().take_frame(frame)
        if step.principal is None:
            return step
        now_ms = self.clock()
        return step._replace(session=Session(now_ms + 1000, now_ms + 100, Renewed))


class Renewed(Expiring):
    """The first frame is the request that begins it."""

    def take_frame(self, frame: bytearray) -> AuthenticationStep:
        if frame[:2] == SASL_HANDSHAKE:
            return AuthenticationStep(framed(b"again"))
        return super().take_frame(frame)


SASL_HANDSHAKE = struct.pack(">h", 17)
HANDSHAKE = SASL_HANDSHAKE + struct.pack(">hih", 1, 8, -1) + b"\0\5PLAIN"


@contextmanager
def in_session(clock: Clock):
    Expiring.clock = clock
    listener = Listener("TEST", "127.0.0.1", 0, None, Expiring)
    with running(Asking(), listener=listener, clock_ms=clock) as server, Client(server) as client:
        client.send(framed(b"alice") + framed(b"right"))
        assert (received(client), received(client)) == (b"name?", b"")
        assert client.ask(b"x") == b"x"
        yield client


def test_the_first_request_after_a_session_closes_the_connection(caplog):
    caplog.set_level(logging.INFO, "klog.server")
    clock = Clock()
    with in_session(clock) as client:
        clock.now_ms = 1000
        assert client.ask(b"x") == b"x"
        clock.now_ms = 1001
        client.send(frame(b"x"))
        assert client.is_closed()
    assert "its session has expired" in caplog.text


def test_a_session_is_renewed_on_the_open_connection_even_after_its_end():
    clock = Clock()
    with in_session(clock) as client:
        for clock.now_ms in (900, 5_000):
            client.send(framed(HANDSHAKE))
            assert received(client) == b"again"
            client.send(framed(b"alice") + framed(b"right") + frame(b"x", 7))
            assert (received(client), received(client)) == (b"name?", b"")
            assert client.receive() == (7, b"x")
        clock.now_ms = 6_001
        client.send(frame(b"x"))
        assert client.is_closed()


def test_a_renewal_that_comes_too_early_is_an_ordinary_request():
    clock = Clock()
    with in_session(clock) as client:
        clock.now_ms = 99
        client.send(framed(HANDSHAKE))
        assert client.receive()[0] == 8
        assert client.ask(b"x") == b"x"


def test_a_renewal_with_a_wrong_password_ends_the_connection(caplog):
    caplog.set_level(logging.INFO, "klog.server")
    clock = Clock()
    with in_session(clock) as client:
        clock.now_ms = 500
        client.send(framed(HANDSHAKE) + framed(b"alice") + framed(b"guess"))
        assert (received(client), received(client)) == (b"again", b"name?")
        eventually(lambda: "Failed authentication with" in caplog.text)
        clock.now_ms = 700
        assert received(client) == b"wrong"
        assert client.is_closed()


def test_large_requests_in_a_row_end_with_the_session():
    clock = Clock()
    with in_session(clock) as client:
        assert client.ask(bytes(200_000)) == bytes(200_000)
        clock.now_ms = 1001
        client.send(frame(bytes(200_000)))
        assert client.is_closed()


def test_rules_make_the_principal_s_name_of_the_certificate_s(caplog):
    caplog.set_level(logging.INFO, "klog.server")
    handler = Asking()
    rules = parse_rules("RULE:^CN=(other)$/$1@acme/U")
    listener = Listener("TEST", "127.0.0.1", 0, mutual_tls(ssl.CERT_OPTIONAL), principal_rules=rules)
    with running(handler, listener=listener) as server:
        for certificate in ("other_holder.pem", None):
            assert ask_with(server, certificate).endswith(b"x")
        with suppress(ConnectionError):
            assert ask_with(server, "first.pem") == b""
    assert list(map(str, handler.principals)) == ["User:OTHER@ACME", "User:ANONYMOUS"]
    assert "no rule of ssl.principal.mapping.rules applies to CN=localhost" in caplog.text
