"""Tokens come from an endpoint, a file or the login options, and are kept as long as they are good."""

from __future__ import annotations

import base64
import io
import json
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NoReturn

import pytest

from klog.client.oauth_tokens import ENDPOINT, Token, TokenSource, login, unsecured_token
from klog.formats.errors import UsageError
from klog.protocol.errors import AuthenticationFailedError

URL = "http://idp.example/token"
OPTIONS = {"clientId": "me", "clientSecret": "s3cret", "scope": "kafka"}
Answer = Callable[[urllib.request.Request], bytes]


def no_tls(_: Mapping[str, str]) -> NoReturn:
    raise AssertionError("nothing here is https")


def token_of(answer: Answer, options: dict[str, str] = OPTIONS, **properties: str) -> str:
    def send(request: urllib.request.Request, timeout_s: float, context: object) -> bytes:
        assert (timeout_s, context) == (5, None)
        return answer(request)

    given = {ENDPOINT: URL, **{name.replace("_", "."): value for name, value in properties.items()}}
    return login(given, options, no_tls, now_s=lambda: 0, timeout_s=5, send=send).token()


def test_an_endpoint_is_asked_with_the_clients_credentials() -> None:
    asked: list[urllib.request.Request] = []

    def answer(request: urllib.request.Request) -> bytes:
        asked.append(request)
        return b'{"access_token": "abc", "expires_in": 60}'

    assert token_of(answer) == "abc"
    (request,) = asked
    assert (request.full_url, request.get_method()) == (URL, "POST")
    assert request.data == b"grant_type=client_credentials&scope=kafka"
    assert request.get_header("Authorization") == "Basic " + base64.b64encode(b"me:s3cret").decode()


def refuse(request: urllib.request.Request) -> bytes:
    raise urllib.error.HTTPError(request.full_url, 401, "Unauthorized", {}, io.BytesIO())  # type: ignore[arg-type]


def fail(_: urllib.request.Request) -> bytes:
    raise urllib.error.URLError("no route")


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (refuse, "answered 401 Unauthorized"),
        (fail, "gave no answer"),
        (lambda _: b"<html>", "without an access_token"),
        (lambda _: b"[]", "without an access_token"),
        (lambda _: b'{"access_token": 5}', "without an access_token"),
        (lambda _: b'{"access_token": "a", "expires_in": "soon"}', "without an access_token"),
    ],
)
def test_an_endpoint_that_gives_no_token_is_named(answer: Answer, problem: str) -> None:
    with pytest.raises(AuthenticationFailedError, match=problem) as raised:
        token_of(answer)
    assert URL in str(raised.value)
    assert "s3cret" not in str(raised.value)


@pytest.mark.parametrize(
    ("properties", "options"),
    [
        ({}, OPTIONS),
        ({ENDPOINT: URL}, {}),
        ({ENDPOINT: "ftp://x/y"}, OPTIONS),
    ],
)
def test_settings_that_give_no_token_are_wrong_usage(properties, options) -> None:
    with pytest.raises(UsageError):
        login(properties, options, no_tls, now_s=lambda: 0, timeout_s=5)


def test_a_file_is_read_for_each_connection(tmp_path: Path) -> None:
    path = tmp_path / "a token"
    path.write_text("first\n")
    bearer = login({ENDPOINT: path.as_uri()}, {}, no_tls, now_s=lambda: 0, timeout_s=5)
    assert bearer.token() == "first"
    path.write_text("second")
    assert bearer.token() == "second"
    path.unlink()
    with pytest.raises(AuthenticationFailedError, match="a token cannot be read"):
        bearer.token()


def test_a_token_is_fetched_again_when_most_of_its_life_is_over() -> None:
    now_s, fetched = 1000.0, []

    def fetch() -> Token:
        fetched.append(now_s)
        return Token(f"t{len(fetched)}", now_s + 100)

    source = TokenSource(fetch, lambda: now_s)
    assert [source(), source()] == ["t1", "t1"]
    now_s = 1079.0
    assert source() == "t1"
    now_s = 1080.0
    assert source() == "t2"


def test_while_no_other_token_can_be_had_the_last_one_is_good_to_its_end() -> None:
    now_s, fails = 1000.0, False

    def fetch() -> Token:
        if fails:
            raise AuthenticationFailedError("away")
        return Token("t", now_s + 100)

    source = TokenSource(fetch, lambda: now_s)
    assert source() == "t"
    now_s, fails = 1099.0, True
    assert source() == "t"
    now_s = 1100.0
    with pytest.raises(AuthenticationFailedError, match="away"):
        source()


def test_an_unsecured_token_has_the_claims_of_the_options() -> None:
    options = {
        "unsecuredLoginStringClaim_sub": "alice",
        "unsecuredLoginListClaim_scope": "|a|b",
        "unsecuredLoginNumberClaim_n": "1.5",
        "unsecuredLoginLifetimeSeconds": "10",
    }
    token = unsecured_token(options, 100.0)
    header, claims, signature = token.text.split(".")
    assert json.loads(base64.b64decode(header + "==")) == {"alg": "none"}
    assert json.loads(base64.b64decode(claims + "==")) == {
        "sub": "alice", "scope": ["a", "b"], "n": 1.5, "iat": 100.0, "exp": 110.0,
    }  # fmt: skip
    assert (signature, token.expires_s) == ("", 110.0)


def test_an_unsecured_token_is_not_issued_later_than_a_broker_that_counts_milliseconds_knows() -> None:
    claims = unsecured_token({}, 1_700_000_000.1239).text.split(".")[1]
    assert json.loads(base64.b64decode(claims + "=="))["iat"] == 1_700_000_000.123


def test_a_number_that_is_none_is_refused() -> None:
    with pytest.raises(AuthenticationFailedError, match="no number"):
        unsecured_token({"unsecuredLoginNumberClaim_n": "x"}, 0)


def test_extensions_are_sent_along() -> None:
    options = {"unsecuredLoginStringClaim_sub": "a", "extension_traceId": "7"}
    assert login({}, options, no_tls, now_s=lambda: 0, timeout_s=5).extensions == {"traceId": "7"}
