"""Reads the configs of OAUTHBEARER: how tokens are checked.

Rules: `sasl.oauthbearer.*` of Kafka's documentation, KIP-768. Kafka accepts unsecured tokens unless a
callback handler is named; klog only if the handler for them is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from klog.config.broker import BrokerConfig
from klog.config.keys import ConfigError
from klog.formats.errors import FormatError, UsageError
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
_URL: Final = "sasl.oauthbearer.jwks.endpoint.url"


@dataclass(frozen=True, slots=True)
class TokenConfig:
    """How tokens are checked: with the keys at `jwks_url`, or, if it is None, unsecured ones. `options` are
    those of the login module that begin with `unsecuredValidator`.
    """

    jwks_url: str | None
    options: Mapping[str, str] = field(default_factory=dict)
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
        audiences=audiences if isinstance(audiences, tuple) else (),
        issuer=issuer if isinstance(issuer, str) and issuer else None,
        clock_skew_s=number("clock.skew.seconds"),
        subject_claim=str(value("sub.claim.name")),
        scope_claim=str(value("scope.claim.name")),
        refresh_ms=number("jwks.endpoint.refresh.ms"),
        retry_ms=number("jwks.endpoint.retry.backoff.ms"),
        most_retry_ms=number("jwks.endpoint.retry.backoff.max.ms"),
    )


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
