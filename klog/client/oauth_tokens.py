"""Gets tokens for SASL OAUTHBEARER: from a token endpoint, from a file, or unsecured ones for tests.

Rules: KIP-768 (`sasl.oauthbearer.token.endpoint.url`, `clientId`, `clientSecret` and `scope` of the login
module), KIP-255 (`unsecuredLogin...` options), RFC 6749 section 4.4 (client credentials).
"""

from __future__ import annotations

import base64
import json
import ssl
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import quote, unquote, urlencode, urlsplit

from klog.client.http_reading import read_answer
from klog.client.sasl_oauth import OAuthBearer
from klog.formats.errors import UsageError
from klog.protocol.errors import AuthenticationFailedError

ENDPOINT: Final = "sasl.oauthbearer.token.endpoint.url"
_EXTENSION: Final = "extension_"
_CLAIMS: Final[Mapping[str, Callable[[str], object]]] = {
    "unsecuredLoginStringClaim_": str,
    "unsecuredLoginNumberClaim_": float,
    "unsecuredLoginListClaim_": lambda text: text[1:].split(text[:1]) if text else [],
}
_LIFETIME: Final = "unsecuredLoginLifetimeSeconds"
_DEFAULT_LIFETIME_S: Final = 3600
_USED_PART_OF_LIFETIME: Final = 0.8  # Kafka's sasl.login.refresh.window.factor


class Token(NamedTuple):
    """A bearer token; `expires_s` is the wall time at which it ends, None if that is not known."""

    text: str
    expires_s: float | None = None


OpenUrl = Callable[[urllib.request.Request, float, ssl.SSLContext | None], bytes]
"""Sends a request, waits so many seconds, and gives the body of the answer. Raises OSError."""


@dataclass(slots=True)
class TokenSource:
    """Gives a token as long as most of its lifetime is left, then fetches another. If that fails, it gives
    the one that it has, as long as that is valid. Safe for threads.
    """

    fetch: Callable[[], Token]
    now_s: Callable[[], float]
    _held: Token | None = field(default=None, repr=False)
    _good_until_s: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def __call__(self) -> str:
        """The token. Raises AuthenticationFailedError."""
        with self._lock:
            now_s = self.now_s()
            if self._held is None or now_s >= self._good_until_s:
                self._held = self._fetched(now_s)
            return self._held.text

    def _fetched(self, now_s: float) -> Token:
        try:
            token = self.fetch()
        except AuthenticationFailedError:
            if self._held is None or (self._held.expires_s or 0.0) <= now_s:
                raise
            return self._held
        lifetime_s = 0.0 if token.expires_s is None else max(0.0, token.expires_s - now_s)
        self._good_until_s = now_s + lifetime_s * _USED_PART_OF_LIFETIME
        return token


def login(
    properties: Mapping[str, str],
    options: Mapping[str, str],
    context_of: Callable[[Mapping[str, str]], ssl.SSLContext],
    *,
    now_s: Callable[[], float],
    timeout_s: float,
    send: OpenUrl = read_answer,
) -> OAuthBearer:
    """The login of OAUTHBEARER; `options` are those of its login module. `context_of` makes the TLS context
    for a token endpoint of https from its `ssl.` options. Raises UsageError.
    """
    extensions = {
        name.removeprefix(_EXTENSION): value for name, value in options.items() if name.startswith(_EXTENSION)
    }
    fetch = _fetcher(properties, options, context_of, now_s, timeout_s, send)
    return OAuthBearer(TokenSource(fetch, now_s), extensions)


def token_file(properties: Mapping[str, str]) -> Path | None:
    """The file that holds the token, None if the token comes from elsewhere."""
    parts = urlsplit(properties.get(ENDPOINT, ""))
    return Path(unquote(parts.path)) if parts.scheme == "file" else None


def _fetcher(
    properties: Mapping[str, str],
    options: Mapping[str, str],
    context_of: Callable[[Mapping[str, str]], ssl.SSLContext],
    now_s: Callable[[], float],
    timeout_s: float,
    send: OpenUrl,
) -> Callable[[], Token]:
    url = properties.get(ENDPOINT)
    if url is None:
        if "unsecuredLoginStringClaim_sub" in options:
            return lambda: unsecured_token(options, now_s())
        raise UsageError(
            f"sasl.mechanism=OAUTHBEARER needs {ENDPOINT}",
            cure="an address of http or https, or file:PATH",
        )
    parts = urlsplit(url)
    if (file := token_file(properties)) is not None:
        return lambda: _from_file(file)
    if parts.scheme not in ("http", "https"):
        raise UsageError(f"{ENDPOINT}={url} is no address of http, https or file")
    request = _token_request(properties, options, url)
    context = context_of(options) if parts.scheme == "https" else None
    return lambda: _from_endpoint(send, request, timeout_s, context, now_s)


def _token_request(
    properties: Mapping[str, str], options: Mapping[str, str], url: str
) -> urllib.request.Request:
    if "clientId" not in options or "clientSecret" not in options:
        raise UsageError("sasl.jaas.config has no clientId and clientSecret")
    names = (options["clientId"], options["clientSecret"])
    if properties.get("sasl.oauthbearer.header.urlencode", "false").lower() == "true":
        names = (quote(names[0], safe=""), quote(names[1], safe=""))
    form = {"grant_type": "client_credentials"} | (
        {"scope": options["scope"]} if options.get("scope") else {}
    )
    secret = base64.b64encode(":".join(names).encode()).decode()
    return urllib.request.Request(  # noqa: S310 (the scheme was checked)
        url,
        data=urlencode(form).encode(),
        headers={"Authorization": f"Basic {secret}", "Accept": "application/json"},
        method="POST",
    )


def _from_endpoint(
    send: OpenUrl,
    request: urllib.request.Request,
    timeout_s: float,
    context: ssl.SSLContext | None,
    now_s: Callable[[], float],
) -> Token:
    place = f"the token endpoint {request.full_url}"
    try:
        answer = json.loads(send(request, timeout_s, context))
        text = answer["access_token"]
        lifetime_s = float(answer.get("expires_in", 0))
    except urllib.error.HTTPError as error:
        raise AuthenticationFailedError(
            f"{place} answered {error.code} {error.reason}", cure="check clientId, clientSecret and scope"
        ) from error
    except OSError as error:
        raise AuthenticationFailedError(f"{place} gave no answer: {error}") from error
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise AuthenticationFailedError(f"{place} answered without an access_token") from error
    if not isinstance(text, str):
        raise AuthenticationFailedError(f"{place} answered without an access_token")
    return Token(text, now_s() + lifetime_s)


def _from_file(path: Path) -> Token:
    try:
        return Token(path.read_text(encoding="utf-8").strip())
    except (OSError, UnicodeDecodeError) as error:
        raise AuthenticationFailedError(f"the token file {path} cannot be read: {error}") from error


def unsecured_token(options: Mapping[str, str], now_s: float) -> Token:
    """An unsigned token with the claims of the options, for brokers that do not check signatures.

    Raises AuthenticationFailedError for a number that is none.
    """
    claims: dict[str, object] = {}
    try:
        lifetime_s = float(options.get(_LIFETIME, _DEFAULT_LIFETIME_S))
        for option, value in options.items():
            for prefix, convert in _CLAIMS.items():
                if option.startswith(prefix):
                    claims[option.removeprefix(prefix)] = convert(value)
    except ValueError as error:
        raise AuthenticationFailedError(f"an option of the login module is no number: {error}") from error
    # Brokers count whole milliseconds, and refuse a token that was issued later in the present one.
    issued_s = int(now_s * 1000) / 1000
    claims |= {"iat": issued_s, "exp": issued_s + lifetime_s}
    # Kafka's validator of such tokens reads the standard alphabet of base64 only.
    header, body = (_base64(part) for part in ({"alg": "none"}, claims))
    return Token(f"{header}.{body}.", now_s + lifetime_s)


def _base64(part: Mapping[str, object]) -> str:
    return base64.b64encode(json.dumps(part).encode()).decode().rstrip("=")
