"""The keys of a provider of tokens over real HTTP and HTTPS: rotated, and while it behaves badly."""

from __future__ import annotations

import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from klog.config.tls_context import context_of
from klog.security.authentication.oauth_bearer import InvalidTokenError
from klog.security.authentication.signed_tokens import SignedTokens
from klog.server.network.jwks import RefreshedKeys, read_keys
from tests.server.network import token_provider as provider_that
from tests.server.network.servers import TLS_FILES, server_tls
from tests.server.network.token_provider import Answer, TokenProvider
from tests.waiting import eventually

HOUR_MS = 3_600_000
BAD_ANSWERS = [
    provider_that.with_an_error,
    provider_that.as_no_json,
    provider_that.as_no_http,
    provider_that.too_much,
    provider_that.not_all,
    provider_that.never,
    provider_that.byte_by_byte,
    provider_that.headers_without_end,
]


@contextmanager
def keys_of(provider: TokenProvider, refresh_ms: int = HOUR_MS) -> Iterator[RefreshedKeys]:
    keys = RefreshedKeys(f"{provider.url}/keys", refresh_ms, 5, 20, partial(read_keys, timeout_s=0.5))
    keys.await_first()
    try:
        yield keys
    finally:
        keys.stop()


def key_ids(keys: RefreshedKeys) -> list[object]:
    return [each["kid"] for each in keys().keys]


def tokens_of(keys: RefreshedKeys) -> SignedTokens:
    return SignedTokens(keys, lambda: time.time_ns() // 1_000_000, keys.expedite)


@pytest.mark.parametrize("answer", BAD_ANSWERS, ids=lambda answer: answer.__name__)
def test_while_a_provider_answers_badly_the_keys_stay_and_it_is_asked_again(
    answer: Answer, caplog: pytest.LogCaptureFixture
) -> None:
    with TokenProvider() as provider, keys_of(provider, refresh_ms=20) as keys:
        tokens = tokens_of(keys)
        provider.answers = answer
        asked = provider.asked
        eventually(lambda: provider.asked >= asked + 3)
        assert tokens.validate(provider.token("alice")).user == "alice"
        provider.answers, provider.key_id = provider_that.well, "second"
        eventually(lambda: key_ids(keys) == ["second"])
    assert caplog.text.count("cannot be read") == 1


@pytest.mark.parametrize("over_tls", [False, True])
@pytest.mark.parametrize("answer", [provider_that.byte_by_byte, provider_that.headers_without_end])
def test_an_answer_that_drips_ends_with_the_time_limit(answer: Answer, over_tls: bool) -> None:
    tls = server_tls() if over_tls else None
    with TokenProvider(tls) as provider:
        provider.answers = answer
        with pytest.raises(OSError, match=r"not complete after 0\.3 s"):
            read_keys(f"{provider.url}/keys", trusting(TLS_FILES / "certificate.pem"), 0.3)


def test_a_provider_that_is_away_at_first_is_found_later() -> None:
    with TokenProvider() as provider:
        provider.answers = provider_that.with_an_error
        with keys_of(provider) as keys:
            assert key_ids(keys) == []
            with pytest.raises(InvalidTokenError):
                tokens_of(keys).validate(provider.token("alice"))
            provider.answers = provider_that.well
            eventually(lambda: key_ids(keys) == ["first"])
    # Now nobody listens there.
    with keys_of(provider) as keys:
        assert key_ids(keys) == []


def test_a_token_of_a_new_key_is_good_a_moment_after_it_was_refused() -> None:
    with TokenProvider() as provider, keys_of(provider) as keys:
        tokens = tokens_of(keys)
        provider.key_id = "second"
        with pytest.raises(InvalidTokenError, match="no key"):
            tokens.validate(provider.token("alice"))
        eventually(lambda: key_ids(keys) == ["second"])
        assert tokens.validate(provider.token("alice")).user == "alice"
        with pytest.raises(InvalidTokenError, match="no key"):
            tokens.validate(provider.token("alice", "first"))


def test_a_storm_of_unknown_keys_asks_the_provider_once_and_waits_for_nothing() -> None:
    with TokenProvider() as provider, keys_of(provider) as keys:
        tokens = tokens_of(keys)
        provider.answers = provider_that.never
        stranger, _, rest = provider.token("alice", "unknown").partition(".")
        assert stranger
        for _ in range(500):
            with pytest.raises(InvalidTokenError, match="no key"):
                tokens.validate(f"{stranger}.{rest}")
        eventually(lambda: provider.asked >= 2)
        # Good tokens are checked meanwhile. The provider that does not answer is asked by one thread.
        assert tokens.validate(provider.token("alice")).user == "alice"
        assert provider.asked < 20


def test_over_https_the_certificate_must_be_trusted() -> None:
    with TokenProvider(server_tls()) as provider:
        url = f"{provider.url}/keys"
        keys = read_keys(url, trusting(TLS_FILES / "certificate.pem"))
        assert [each["kid"] for each in keys.keys] == ["first"]
        with pytest.raises(OSError, match="CERTIFICATE_VERIFY_FAILED"):
            read_keys(url, trusting(TLS_FILES / "other_holder.pem"))
        with pytest.raises(OSError, match="CERTIFICATE_VERIFY_FAILED"):
            read_keys(url)


def trusting(path: Path) -> ssl.SSLContext:
    return context_of({"ssl.truststore.type": "PEM", "ssl.truststore.location": str(path)})
