"""PLAIN takes a user with the right password, and says what is wrong in Kafka's words."""

from __future__ import annotations

import pytest

from klog.security.authentication.errors import RefusedLoginError
from klog.security.authentication.plain import Plain
from klog.security.authentication.steps import Login, Reply

PASSWORDS = {"alice": "wonder", "bärbel": "pass=wörd, mit leerzeichen", "empty": ""}
_WRONG = "Authentication failed: Invalid username or password"
_OTHER = "Authentication failed: Client requested an authorization id that is different from username"


@pytest.mark.parametrize("acting_as", ["", "alice"])
def test_the_right_password_logs_in(acting_as: str) -> None:
    assert Plain(PASSWORDS).respond(f"{acting_as}\0alice\0wonder".encode()) == Reply(b"", Login("alice"))


def test_names_and_passwords_may_have_any_characters() -> None:
    reply = Plain(PASSWORDS).respond("\0bärbel\0pass=wörd, mit leerzeichen".encode())
    assert reply.login == Login("bärbel")


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (b"\0alice\0Wonder", _WRONG),
        (b"\0alice\0wonder ", _WRONG),
        (b"\0nobody\0wonder", _WRONG),
        (b"\0nobody\0\xff", _WRONG),
        (b"\0\0wonder", "Authentication failed: username not specified"),
        (b"\0alice\0", "Authentication failed: password not specified"),
        (b"\0empty\0", "Authentication failed: password not specified"),
        (b"bob\0alice\0wonder", _OTHER),
        (b"bob\0alice\0guess", _WRONG),
        (b"", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
        (b"alice\0wonder", "Invalid SASL/PLAIN response: expected 3 tokens, got 2"),
        (b"\0alice\0wonder\0", "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
        (b"\0" * 9, "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
    ],
)
def test_a_refusal_has_kafka_s_words(message: bytes, why: str) -> None:
    with pytest.raises(RefusedLoginError) as refused:
        Plain(PASSWORDS).respond(message)
    assert refused.value.what == why


def test_passwords_are_not_in_the_representation() -> None:
    assert "wonder" not in repr(Plain(PASSWORDS))
