"""OAUTHBEARER is the exchange of RFC 7628."""

from __future__ import annotations

import pytest

from klog.client.sasl_oauth import OAuthBearer, oauth_bearer
from klog.protocol.errors import AuthenticationFailedError


def test_a_token_and_its_extensions_are_one_message() -> None:
    exchange = oauth_bearer(OAuthBearer(lambda: "abc.def", {"logicalCluster": "lkc-1"}))
    assert next(exchange) == b"n,,\x01auth=Bearer abc.def\x01logicalCluster=lkc-1\x01\x01"
    with pytest.raises(StopIteration):
        exchange.send(b"")


def test_a_refusal_is_taken_note_of_and_then_told() -> None:
    exchange = oauth_bearer(OAuthBearer(lambda: "abc"))
    next(exchange)
    assert exchange.send(b'{"status":"invalid_token"}') == b"\x01"
    with pytest.raises(AuthenticationFailedError, match="invalid_token"):
        exchange.send(b"")


@pytest.mark.parametrize("token", ["", "a b", "a\x01auth=Bearer b", "a\n"])
def test_a_token_that_would_break_the_message_is_not_sent(token: str) -> None:
    with pytest.raises(AuthenticationFailedError, match="characters"):
        next(oauth_bearer(OAuthBearer(lambda: token)))


def test_the_token_is_not_shown() -> None:
    assert "secret" not in repr(OAuthBearer(lambda: "secret"))
