"""OAUTHBEARER: the client sends a token that somebody else has given it.

Rules: RFC 7628; Kafka's `OAuthBearerSaslServer` and `OAuthBearerClientInitialResponse`. A token that is
refused is answered without an error first; the client takes note of it with one byte, and only then it is
told that it has failed.
"""

from __future__ import annotations

import json
import re
from typing import Final, Protocol

from klog.formats.errors import KlogError
from klog.security.authentication.errors import FailedLoginError, RefusedLoginError
from klog.security.authentication.steps import Login, Reply

OAUTHBEARER: Final = "OAUTHBEARER"
_SEPARATOR: Final = "\x01"
_NAME: Final = r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
_PAIR: Final = rf"[A-Za-z]+=[\x21-\x7e \t\r\n]+{_SEPARATOR}"
_FIRST: Final = re.compile(
    rf"n,(?:a=(?P<acting_as>{_NAME}))?,{_SEPARATOR}(?P<pairs>(?:{_PAIR})*){_SEPARATOR}"
)
_BEARER: Final = re.compile(r"bearer[ ]+(?P<token>[-_~+/.a-zA-Z0-9]+=*)", re.IGNORECASE)


class InvalidTokenError(KlogError):
    """A token is not accepted. The client learns `status` and `scope` only."""

    def __init__(self, what: str, status: str = "invalid_token", scope: str | None = None) -> None:
        super().__init__(what)
        self.status = status
        self.scope = scope


class TokenValidator(Protocol):
    """Says whose token it is."""

    def validate(self, token: str) -> Login:
        """Raises InvalidTokenError. Must not wait for anything."""


class OAuthBearerServer:
    """The server's side of one login."""

    def __init__(self, validator: TokenValidator) -> None:
        self._validator = validator
        self._refusal: str | None = None

    def respond(self, message: bytes) -> Reply:
        """Takes the message with the token, or the byte after a refusal."""
        if self._refusal is not None and message == _SEPARATOR.encode():
            raise RefusedLoginError(self._refusal)
        if self._refusal is not None:
            raise FailedLoginError("another message comes after a token was refused")
        first = _FIRST.fullmatch(message.decode("utf-8", "replace"))
        if first is None:
            raise FailedLoginError("the first message of OAUTHBEARER is malformed")
        pairs = dict(pair.split("=", 1) for pair in first["pairs"].split(_SEPARATOR)[:-1])
        bearer = _BEARER.fullmatch(pairs.get("auth", ""))
        if bearer is None:
            raise FailedLoginError("the first message of OAUTHBEARER has no bearer token")
        try:
            login = self._validator.validate(bearer["token"])
        except InvalidTokenError as error:
            self._refusal = _refusal(error)
            return Reply(self._refusal.encode())
        acting_as = first["acting_as"] or login.user
        if acting_as != login.user:
            raise RefusedLoginError(
                f"Authentication failed: Client requested an authorization id ({acting_as}) that is different"
                f" from the token's principal name ({login.user})"
            )
        return Reply(b"", login)


def _refusal(error: InvalidTokenError) -> str:
    """What the client is told, written as Kafka does."""
    scope = "" if error.scope is None else f', "scope":{json.dumps(error.scope)}'
    return f'{{"status":"{error.status}"{scope}}}'
