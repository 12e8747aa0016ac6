"""Authenticates by SASL OAUTHBEARER: a token proves who the client is.

Rules: RFC 7628, KIP-255, KIP-342 (extensions).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Final

from klog.protocol.errors import AuthenticationFailedError

OAUTHBEARER: Final = "OAUTHBEARER"
_SEPARATOR: Final = "\x01"
_TOKEN: Final = re.compile(r"[A-Za-z0-9\-._~+/]+=*")


@dataclass(frozen=True, slots=True)
class OAuthBearer:
    """Gives a token for each connection, and the extensions that are sent with it.

    `token` may ask a server; it raises AuthenticationFailedError if it has none to give.
    """

    token: Callable[[], str] = field(repr=False)
    extensions: Mapping[str, str] = field(default_factory=dict)

    @property
    def mechanism(self) -> str:
        """The name of the mechanism."""
        return OAUTHBEARER


def oauth_bearer(sasl: OAuthBearer) -> Generator[bytes, bytes, None]:
    """The token; after a refusal the byte with which the client takes note of it, as RFC 7628 wants."""
    token = sasl.token()
    if not _TOKEN.fullmatch(token):
        raise AuthenticationFailedError("the token has characters that no bearer token has")
    pairs = (f"auth=Bearer {token}", *(f"{key}={value}" for key, value in sasl.extensions.items()))
    message = "".join(f"{_SEPARATOR}{pair}" for pair in pairs)
    refusal = yield f"n,,{message}{_SEPARATOR}{_SEPARATOR}".encode()
    if refusal:
        yield _SEPARATOR.encode()
        raise AuthenticationFailedError(f"the server refused the token: {refusal.decode(errors='replace')}")
