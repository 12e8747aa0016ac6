"""SCRAM proves that both sides know the password, by RFC 5802; failures tell the client nothing."""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64decode, b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.client import sasl
from klog.formats.errors import FormatError
from klog.security.authentication.errors import FailedLoginError, RefusedLoginError
from klog.security.authentication.scram import Scram
from klog.security.authentication.scram_credentials import (
    HASHES,
    ScramCredential,
    ScramCredentials,
    credential_of_password,
    parse_credential,
)
from klog.security.authentication.steps import Login

# RFC 7677, section 3.
RFC_SALT = b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
RFC_CLIENT_NONCE = "rOprNGfwEbeRWgbNEkqO"
RFC_SERVER_NONCE = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
RFC_PROOF = "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
RFC_VERIFIER = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def server(
    credential: ScramCredential | None, mechanism: str = "SCRAM-SHA-256", nonce: str = "n0nce"
) -> Scram:
    return Scram(mechanism, {"user": credential, "a,b=c": credential}.get, lambda: nonce)


CREDENTIAL = credential_of_password("SCRAM-SHA-256", "pencil", b"salt")


def test_the_example_of_the_standard() -> None:
    scram = server(credential_of_password("SCRAM-SHA-256", "pencil", RFC_SALT), nonce=RFC_SERVER_NONCE)
    first = scram.respond(f"n,,n=user,r={RFC_CLIENT_NONCE}".encode())
    nonces = RFC_CLIENT_NONCE + RFC_SERVER_NONCE
    assert first.message == f"r={nonces},s={b64encode(RFC_SALT).decode()},i=4096".encode()
    assert first.login is None
    last = scram.respond(f"c=biws,r={nonces},p={RFC_PROOF}".encode())
    assert (last.message, last.login) == (RFC_VERIFIER, Login("user"))


@pytest.mark.parametrize("mechanism", HASHES)
@pytest.mark.parametrize("user", ["user", "a,b=c"])
def test_the_client_of_klog_and_this_server_understand_each_other(mechanism: str, user: str) -> None:
    credential = credential_of_password(mechanism, "pencil", b"\x00salt\xff", 5000)
    scram = server(credential, mechanism)
    client = sasl.scram(sasl.Sasl(mechanism, user, "pencil"), "c1ient")
    final = client.send(scram.respond(next(client)).message)
    reply = scram.respond(final)
    assert reply.login == Login(user)
    with pytest.raises(StopIteration):
        client.send(reply.message)


def fails(scram: Scram, *messages: str, error: type[Exception] = FailedLoginError) -> None:
    *before, last = messages
    for message in before:
        scram.respond(message.encode())
    with pytest.raises(error):
        scram.respond(last.encode())


@pytest.mark.parametrize(
    "message",
    [
        "",
        "n,,n=nobody,r=x",
        "y,,n=user,r=x",
        "p=tls-unique,,n=user,r=x",
        "n,,n=us=er,r=x",
        "n,,n=user,r=",
        "n,,n=user,r=a b",
        "n,,n=user",
        "n,,n=us\u00e9r,r=x",
        "n,,n=user,r=x,tokenauth=true",
        "n,,n=user,r=x,a=b,tokenauth=TRUE",
    ],
)
def test_a_first_message_that_names_no_user_fails(message: str) -> None:
    fails(server(CREDENTIAL), message)


def test_a_first_message_may_have_extensions_and_a_reserved_part() -> None:
    scram = server(CREDENTIAL)
    assert scram.respond(b"n,a=user,m=what,n=user,r=x,ext=1").message.startswith(b"r=xn0nce,s=")


def test_another_authorization_id_is_refused_in_words() -> None:
    fails(server(CREDENTIAL), "n,a=bob,n=user,r=x", error=RefusedLoginError)


def test_a_credential_with_few_iterations_is_no_credential() -> None:
    weak = credential_of_password("SCRAM-SHA-256", "pencil", b"salt", 4095)
    fails(server(weak), "n,,n=user,r=x")


@pytest.mark.parametrize(
    "final",
    [
        "",
        "c=biws,r=xn0nce",
        "c=biws,r=other,p=AAAA",
        "c=biws,r=xn0nce,p=AAAA",
        f"c=biws,r=xn0nce,p={b64encode(bytes(32)).decode()}",
        "c=biws,r=xn0nce,p=!",
    ],
)
def test_a_wrong_proof_fails(final: str) -> None:
    fails(server(CREDENTIAL), "n,,n=user,r=x", final)


@given(st.binary(max_size=300), st.binary(max_size=300))
def test_any_bytes_fail(first: bytes, second: bytes) -> None:
    scram = server(CREDENTIAL)
    for message in (first, second):
        with pytest.raises((FailedLoginError, RefusedLoginError)):
            scram.respond(message)


def test_a_proof_made_for_another_exchange_fails() -> None:
    def proof(scram: Scram) -> str:
        client = sasl.scram(sasl.Sasl("SCRAM-SHA-256", "user", "pencil"), "x")
        return client.send(scram.respond(next(client)).message).decode()

    replayed = proof(server(CREDENTIAL, nonce="first"))
    fails(server(CREDENTIAL, nonce="second"), "n,,n=user,r=x", replayed)


# Credentials.

KAFKA_TEXT = (
    "salt=MWx2NHBkbnc0ZndxN25vdGN4bTB5Y2szaDQ=,"
    "stored_key=hOQQl+gUdWFcMY5mpVHBmTGvL0kSDZTvJ4U8MOZu6WM=,"
    "server_key=QoPwBBtp2Q7hyFgAPFEUqCmPkbLBQsgUqgHLpuFJEsw=,iterations=8192"
)


def test_a_credential_is_written_as_it_was_read() -> None:
    assert parse_credential(KAFKA_TEXT).text() == KAFKA_TEXT
    assert parse_credential(KAFKA_TEXT).iterations == 8192


def test_keys_are_those_of_the_standard() -> None:
    salted = hashlib.pbkdf2_hmac("sha512", b"pencil", b"salt", 4096)
    client_key = hmac.digest(salted, b"Client Key", "sha512")
    found = credential_of_password("SCRAM-SHA-512", "pencil", b"salt")
    assert found.stored_key == hashlib.sha512(client_key).digest()
    assert found.server_key == hmac.digest(salted, b"Server Key", "sha512")


@pytest.mark.parametrize(
    "text",
    ["", "x", "salt=,stored_key=,server_key=", KAFKA_TEXT.replace("8192", "many"), KAFKA_TEXT + ",more=1",
     KAFKA_TEXT.replace("hOQQ", "!OQQ")],
)  # fmt: skip
def test_a_credential_that_cannot_be_read_is_not_shown(text: str) -> None:
    with pytest.raises(FormatError) as refused:
        parse_credential(text)
    assert text == "" or text not in str(refused.value)


def test_a_broker_knows_the_credentials_of_its_users_as_they_change(caplog: pytest.LogCaptureFixture) -> None:
    known = ScramCredentials()
    known.user_changed("alice", {"SCRAM-SHA-256": KAFKA_TEXT, "producer_byte_rate": "1024"})
    known.user_changed("bob", {"SCRAM-SHA-512": KAFKA_TEXT, "SCRAM-SHA-256": "broken"})
    assert known.find("SCRAM-SHA-256", "alice") == parse_credential(KAFKA_TEXT)
    assert known.find("SCRAM-SHA-512", "alice") is None
    assert known.find("SCRAM-SHA-256", "bob") is None
    assert "SCRAM-SHA-256 credential of user bob is ignored" in caplog.text
    known.user_changed("alice", {"producer_byte_rate": "1024"})
    assert known.find("SCRAM-SHA-256", "alice") is None
    known.keep_only(["alice"])
    assert known.find("SCRAM-SHA-512", "bob") is None
