"""Checks signed tokens (JWT) against a set of public keys (JWKS).

Rules: RFC 7515, RFC 7517, RFC 7519; Kafka's `ValidatorAccessTokenValidator`: a signature by a key of the set,
`exp` and `iat` present, `nbf` respected, the audience and the issuer as expected. Signatures are checked by
the package PyJWT.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from klog.formats.errors import FormatError, UsageError
from klog.security.authentication.oauth_bearer import InvalidTokenError
from klog.security.authentication.steps import Login

_KINDS: Final = {"RS": "RSA", "PS": "RSA", "ES": "EC", "Ed": "OKP"}
"""The kind of key (`kty`) by the first letters of an algorithm. Keys that both sides know are not taken."""
_MOST_TRIED: Final = 16
_LONGEST_TOKEN: Final = 64 * 1024

JsonObject = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class KeySet:
    """The keys of a JWKS, as they stand there."""

    keys: Sequence[JsonObject] = field(repr=False)

    def candidates(self, key_id: object, algorithm: str) -> Sequence[JsonObject]:
        """The keys that may have signed a token with this header."""
        kind = _KINDS.get(algorithm[:2])
        found = [
            each
            for each in self.keys
            if each.get("kty") == kind
            and each.get("alg", algorithm) == algorithm
            and each.get("use", "sig") == "sig"
            and (key_id is None or each.get("kid") == key_id)
        ]
        return found[:_MOST_TRIED]


def parse_key_set(data: bytes) -> KeySet:
    """The keys of a JWKS document. Raises FormatError."""
    try:
        found = json.loads(data)["keys"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise FormatError("it is no JSON Web Key Set") from error
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise FormatError("its keys are no list of objects")
    return KeySet(tuple(found))


def require_library() -> None:
    """Raises UsageError if PyJWT is missing."""
    try:
        import jwt  # noqa: F401
    except ImportError as error:
        raise UsageError("signed tokens need the package PyJWT", cure="pip install 'klog[oauth]'") from error


@dataclass(frozen=True, slots=True)
class SignedTokens:
    """`keys` gives the present key set, and `clock_ms` the wall clock. `on_unknown_key` is called if the set
    has no key for a token.
    """

    keys: Callable[[], KeySet]
    clock_ms: Callable[[], int]
    on_unknown_key: Callable[[], None] = lambda: None
    audiences: Sequence[str] = ()
    issuer: str | None = None
    clock_skew_s: int = 30
    subject_claim: str = "sub"
    scope_claim: str = "scope"

    def validate(self, token: str) -> Login:
        """Whose token it is. Raises InvalidTokenError."""
        claims = self._signed_claims(token)
        expires_s = self._check_times(claims)
        self._check_audience(claims.get("aud"))
        if self.issuer is not None and claims.get("iss") != self.issuer:
            raise InvalidTokenError("it has another issuer than expected")
        _check_scope(claims.get(self.scope_claim))
        user = claims.get(self.subject_claim)
        if not isinstance(user, str) or not user.strip():
            raise InvalidTokenError(f"its claim {self.subject_claim} names nobody")
        return Login(user.strip(), round(expires_s * 1000))

    def _signed_claims(self, token: str) -> JsonObject:
        import jwt

        if len(token) > _LONGEST_TOKEN:
            raise InvalidTokenError("it is too long")
        try:
            header = jwt.get_unverified_header(token)
            algorithm = header.get("alg")
            if not isinstance(algorithm, str) or algorithm[:2] not in _KINDS:
                raise InvalidTokenError("its algorithm is not one of those with a public key")
            candidates = self.keys().candidates(header.get("kid"), algorithm)
            if not candidates:
                self.on_unknown_key()
            for key in candidates:
                try:
                    public = jwt.PyJWK(dict(key), algorithm)
                    decoded = jwt.api_jws.decode(token, public, algorithms=[algorithm])
                except jwt.exceptions.InvalidSignatureError:
                    continue
                claims = json.loads(decoded)
                if isinstance(claims, dict):
                    return claims
        except (jwt.exceptions.PyJWTError, ValueError, TypeError, RecursionError) as error:
            raise InvalidTokenError("its parts or its key cannot be read") from error
        raise InvalidTokenError("no key of the set has signed it")

    def _check_times(self, claims: JsonObject) -> float:
        now_s = self.clock_ms() / 1000
        expires_s, issued_s, begins_s = (_seconds(claims, name) for name in ("exp", "iat", "nbf"))
        if expires_s is None or issued_s is None:
            raise InvalidTokenError("it has no exp or no iat")
        if now_s - self.clock_skew_s >= expires_s:
            raise InvalidTokenError("it has expired")
        if issued_s > now_s + self.clock_skew_s:
            raise InvalidTokenError("it is issued in the future")
        if begins_s is not None and begins_s > now_s + self.clock_skew_s:
            raise InvalidTokenError("it is not valid yet")
        return expires_s

    def _check_audience(self, claim: object) -> None:
        """As in Kafka a token with an audience is refused if none is expected."""
        named = [claim] if isinstance(claim, str) else claim if isinstance(claim, list) else []
        if (self.audiences or named) and not any(each in self.audiences for each in named):
            raise InvalidTokenError("its audience is not expected here (sasl.oauthbearer.expected.audience)")


def _check_scope(claim: object) -> None:
    scopes = claim if isinstance(claim, list) else [claim] if isinstance(claim, str) else []
    stripped = [each.strip() if isinstance(each, str) else "" for each in scopes]
    if "" in stripped or len(set(stripped)) < len(stripped):
        raise InvalidTokenError("its scope is blank, or names something twice")


def _seconds(claims: JsonObject, name: str) -> float | None:
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e12:
        raise InvalidTokenError(f"its claim {name} is no time")
    return float(value)
