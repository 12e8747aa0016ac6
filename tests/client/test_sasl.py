"""SASL messages are those of the RFCs, and a server that does not know the password is not trusted."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace

import pytest

from klog.client.sasl import Sasl, authenticate, plain, scram
from klog.protocol.apis import ApiKey
from klog.protocol.error_codes import ErrorCode
from klog.protocol.errors import AuthenticationFailedError
from tests.client.fake_broker import FakeConnection

# RFC 7677, section 3.
USER = Sasl("SCRAM-SHA-256", "user", "pencil")
NONCE = "rOprNGfwEbeRWgbNEkqO"
CHALLENGE = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
PROOF = (
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
    b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)
VERDICT = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def test_scram_is_the_example_of_its_rfc():
    exchange = scram(USER, NONCE)
    assert next(exchange) == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    assert exchange.send(CHALLENGE) == PROOF
    with pytest.raises(StopIteration):
        exchange.send(VERDICT)


def test_plain_is_one_message():
    assert list(plain(Sasl("PLAIN", "me", "secret"))) == [b"\0me\0secret"]


def test_commas_and_equal_signs_in_a_name_are_escaped():
    assert next(scram(Sasl("SCRAM-SHA-512", "a=b,c", "x"), "n")) == b"n,,n=a=3Db=2Cc,r=n"


@pytest.mark.parametrize(
    "challenge",
    [
        b"",
        b"\xff",
        b"r=other,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
        b"r=" + NONCE.encode() + b",s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
        CHALLENGE.replace(b"i=4096", b"i=1"),
        CHALLENGE.replace(b"i=4096", b"i=999999999"),
        CHALLENGE.replace(b"i=4096", b"i=x"),
        CHALLENGE.replace(b"W22Z", b"?!"),
    ],
)
def test_a_bad_challenge_is_refused(challenge):
    exchange = scram(USER, NONCE)
    next(exchange)
    with pytest.raises(AuthenticationFailedError):
        exchange.send(challenge)


@pytest.mark.parametrize("verdict", [b"v=AAAA", b"", b"e=unknown-user", "v=ä".encode()])
def test_a_server_that_does_not_know_the_password_is_refused(verdict):
    exchange = scram(USER, NONCE)
    next(exchange)
    exchange.send(CHALLENGE)
    with pytest.raises(AuthenticationFailedError):
        exchange.send(verdict)


class Speaking(FakeConnection):
    """A connection to a broker with SASL."""

    def version_of(self, api_key, at_most=None):
        return {ApiKey.SASL_HANDSHAKE: 1, ApiKey.SASL_AUTHENTICATE: 2}[api_key]


def answered(*answers: object) -> Speaking:
    connection = Speaking(answers=answers)
    connection.connect()
    return connection


def handshake(code: ErrorCode = ErrorCode.NONE) -> SimpleNamespace:
    return SimpleNamespace(error_code=code, mechanisms=("PLAIN", "SCRAM-SHA-256"))


def authenticated(
    data: bytes, code: ErrorCode = ErrorCode.NONE, message: str | None = None
) -> SimpleNamespace:
    return SimpleNamespace(
        error_code=code, error_message=message, auth_bytes=data, session_lifetime=timedelta(milliseconds=1500)
    )


def test_a_connection_is_authenticated_by_handshake_and_messages():
    connection = answered(handshake(), authenticated(CHALLENGE), authenticated(VERDICT))
    assert authenticate(connection, USER, NONCE) == 1500
    shake, first, second = connection.sent
    assert shake.mechanism == "SCRAM-SHA-256"
    assert (first.auth_bytes, second.auth_bytes) == (b"n,,n=user,r=" + NONCE.encode(), PROOF)


def test_a_mechanism_that_the_broker_lacks_is_named_with_those_it_has():
    connection = answered(handshake(ErrorCode.UNSUPPORTED_SASL_MECHANISM))
    with pytest.raises(AuthenticationFailedError, match=r"SCRAM-SHA-512.*it offers PLAIN, SCRAM-SHA-256"):
        authenticate(connection, Sasl("SCRAM-SHA-512", "u", "p"), NONCE)


def test_a_wrong_password_is_the_brokers_message():
    refused = authenticated(b"", ErrorCode.SASL_AUTHENTICATION_FAILED, "Invalid username or password")
    connection = answered(handshake(), refused)
    with pytest.raises(AuthenticationFailedError, match="Invalid username or password"):
        authenticate(connection, Sasl("PLAIN", "u", "p"), NONCE)
