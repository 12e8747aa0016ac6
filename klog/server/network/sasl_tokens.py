"""Reads the configs of OAUTHBEARER: how tokens are checked, and where this broker has its own from.

Rules: `sasl.oauthbearer.*` of Kafka's documentation, KIP-768. Kafka accepts unsecured tokens unless a
callback handler is named; klog only if the handler for them is.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from klog.client.oauth_tokens import ENDPOINT, login, token_file
from klog.client.sasl_oauth import OAuthBearer
from klog.config.broker import BrokerConfig
from klog.config.keys import ConfigError, Value, text_of
from klog.config.tls_context import context_of
from klog.formats.errors import FormatError, UsageError
from klog.protocol.errors import AuthenticationFailedError
from klog.security.authentication.oauth_bearer import OAUTHBEARER
from klog.security.authentication.signed_tokens import require_library
from klog.security.authentication.unsecured_tokens import OPTIONS
from klog.server.network.jwks import read_keys

_PACKAGE: Final = "org.apache.kafka.common.security.oauthbearer"
_SIGNED: Final = (
    f"{_PACKAGE}.OAuthBearerValidatorCallbackHandler",
    f"{_PACKAGE}.secured.OAuthBearerValidatorCallbackHandler",
)
_UNSECURED: Final = f"{_PACKAGE}.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
_LOGINS: Final = (
    f"{_PACKAGE}.OAuthBearerLoginCallbackHandler",
    f"{_PACKAGE}.secured.OAuthBearerLoginCallbackHandler",
    f"{_PACKAGE}.internals.unsecured.OAuthBearerUnsecuredLoginCallbackHandler",
)
_URL: Final = "sasl.oauthbearer.jwks.endpoint.url"
_LOGIN_TIMEOUT_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class TokenConfig:
    """How tokens are checked: with the keys at `jwks_url`, or, if it is None, unsecured ones. `options` are
    those of the login module that begin with `unsecuredValidator`. `tls` is for a URL of https.
    """

    jwks_url: str | None
    options: Mapping[str, str] = field(default_factory=dict)
    tls: ssl.SSLContext | None = None
    audiences: tuple[str, ...] = ()
    issuer: str | None = None
    clock_skew_s: int = 30
    subject_claim: str = "sub"
    scope_claim: str = "scope"
    refresh_ms: int = 3_600_000
    retry_ms: int = 100
    most_retry_ms: int = 10_000


def read_tokens(
    config: BrokerConfig, listener: str, handler: str | None, options: Mapping[str, str]
) -> TokenConfig:
    """The configs of a listener whose callback handler is `handler`. Raises `ConfigError`."""

    def value(name: str) -> object:
        return config.for_mechanism(listener, OAUTHBEARER, f"sasl.oauthbearer.{name}")

    def number(name: str) -> int:
        found = value(name)
        return found if isinstance(found, int) else 0

    name = f"listener.name.{listener.lower()}.oauthbearer.sasl.server.callback.handler.class"
    url = value("jwks.endpoint.url")
    if handler == _UNSECURED:
        return TokenConfig(None, {each: options[each] for each in OPTIONS if each in options})
    if handler is not None and handler not in _SIGNED:
        raise ConfigError(name, handler, "klog cannot load Java classes", cure=_SIGNED[0])
    if not isinstance(url, str) or not url:
        raise ConfigError(
            _URL,
            "null",
            f"the tokens of listener {listener} would not be checked",
            cure=f"set it; or, for tests, where everybody may be anybody, {name}={_UNSECURED}",
        )
    audiences, issuer = value("expected.audience"), value("expected.issuer")
    return TokenConfig(
        _checked(url),
        tls=_tls(url, options),
        audiences=audiences if isinstance(audiences, tuple) else (),
        issuer=issuer if isinstance(issuer, str) and issuer else None,
        clock_skew_s=number("clock.skew.seconds"),
        subject_claim=str(value("sub.claim.name")),
        scope_claim=str(value("scope.claim.name")),
        refresh_ms=number("jwks.endpoint.refresh.ms"),
        retry_ms=number("jwks.endpoint.retry.backoff.ms"),
        most_retry_ms=number("jwks.endpoint.retry.backoff.max.ms"),
    )


def login_by_token(
    config: BrokerConfig, listener: str, options: Mapping[str, str], now_s: Callable[[], float] = time.time
) -> OAuthBearer:
    """How this broker logs in by tokens at the listener of that name of other brokers. They come from the
    token endpoint, for `clientId` and `clientSecret` of the login module, from a file, or are unsecured ones
    by its options. Raises `ConfigError`.
    """

    def value(name: str) -> Value:
        return config.for_mechanism(listener, OAUTHBEARER, name)

    name = f"listener.name.{listener.lower()}.oauthbearer.sasl.login.callback.handler.class"
    handler = config.own_text(name)
    if handler and handler not in _LOGINS:
        raise ConfigError(name, handler, "klog cannot load Java classes", cure=_LOGINS[0])
    url, timeout_ms = text_of(value(ENDPOINT)), value("sasl.login.read.timeout.ms")
    properties = {} if url is None else {ENDPOINT: url}
    timeout_s = timeout_ms / 1000 if isinstance(timeout_ms, int) else _LOGIN_TIMEOUT_S
    try:
        found = login(properties, options, context_of, now_s=now_s, timeout_s=timeout_s)
        if token_file(properties) is not None:
            found.token()
    except (AuthenticationFailedError, UsageError) as error:
        raise ConfigError(ENDPOINT, url or "null", error.what, cure=error.cure) from error
    return found


def _tls(url: str, options: Mapping[str, str]) -> ssl.SSLContext | None:
    """How to connect to a URL, by the `ssl.` options of the login module, as in Kafka."""
    if urlsplit(url).scheme != "https":
        return None
    try:
        return context_of(options)
    except UsageError as error:
        raise ConfigError(_URL, url, error.what, cure=error.cure) from error


def _checked(url: str) -> str:
    scheme = urlsplit(url).scheme
    if scheme not in ("http", "https", "file"):
        raise ConfigError(_URL, url, "it is no URL of http, https or file")
    try:
        require_library()
        if scheme == "file":
            read_keys(url)
    except (OSError, FormatError, UsageError) as error:
        raise ConfigError(_URL, url, str(error)) from error
    return url
