"""Checks unsecured tokens (JWT without a signature), with which everybody can be anybody: for tests only.

Rules: Kafka's `OAuthBearerUnsecuredJws` and `OAuthBearerUnsecuredValidatorCallbackHandler`. Kafka decodes the
parts with the standard alphabet of base64, not that for URLs.
"""

from __future__ import annotations

import binascii
import json
from base64 import b64decode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from klog.security.authentication.oauth_bearer import InvalidTokenError
from klog.security.authentication.steps import Login

OPTIONS: Final = (
    "unsecuredValidatorAllowableClockSkewMs",
    "unsecuredValidatorPrincipalClaimName",
    "unsecuredValidatorRequiredScope",
    "unsecuredValidatorScopeClaimName",
)
"""The options of the login module."""


@dataclass(frozen=True, slots=True)
class UnsecuredTokens:
    """A token must be valid at `clock_ms` (the wall clock), give or take `clock_skew_ms`."""

    clock_ms: Callable[[], int]
    clock_skew_ms: int = 0
    principal_claim: str = "sub"
    scope_claim: str = "scope"
    required_scope: Sequence[str] = ()

    def validate(self, token: str) -> Login:
        """Whose token it is. Raises InvalidTokenError."""
        parts = token.split(".")
        if len(parts) != 3 or parts[2]:
            raise InvalidTokenError("it does not consist of a header, claims and an empty signature")
        header, claims = _decoded(parts[0]), _decoded(parts[1])
        if header.get("alg") != "none":
            raise InvalidTokenError("its algorithm is not none")
        user = claims.get(self.principal_claim)
        if not isinstance(user, str) or not user.strip():
            raise InvalidTokenError(f"its claim {self.principal_claim} names nobody")
        expires_ms = self._check_times(claims)
        scope = _scope(claims.get(self.scope_claim))
        if not set(self.required_scope) <= set(scope):
            raise InvalidTokenError(
                "it lacks a scope that is required", "insufficient_scope", " ".join(self.required_scope)
            )
        return Login(user, expires_ms)

    def _check_times(self, claims: Mapping[str, object]) -> int:
        now_ms = self.clock_ms()
        expires_ms, issued_ms = _milliseconds(claims, "exp"), _milliseconds(claims, "iat")
        if expires_ms is None:
            raise InvalidTokenError("it has no expiry")
        if expires_ms <= now_ms - self.clock_skew_ms:
            raise InvalidTokenError("it has expired")
        if issued_ms is not None and not issued_ms <= now_ms + self.clock_skew_ms:
            raise InvalidTokenError("it is issued in the future")
        if issued_ms is not None and issued_ms >= expires_ms:
            raise InvalidTokenError("it expires before it is issued")
        return expires_ms


def _decoded(part: str) -> Mapping[str, object]:
    try:
        found = json.loads(b64decode(part + "=" * (-len(part) % 4), validate=True))
    except (ValueError, RecursionError, binascii.Error) as error:
        raise InvalidTokenError("a part of it is no JSON in base64") from error
    if not isinstance(found, dict):
        raise InvalidTokenError("a part of it is no JSON object")
    return found


def _milliseconds(claims: Mapping[str, object], name: str) -> int | None:
    """A time, which is in seconds and may have a fraction."""
    seconds = claims.get(name)
    if seconds is None:
        return None
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise InvalidTokenError(f"its claim {name} is no number")
    try:
        return round(seconds * 1000)
    except (OverflowError, ValueError) as error:  # infinity, not a number
        raise InvalidTokenError(f"its claim {name} is no time") from error


def _scope(claim: object) -> list[str]:
    if isinstance(claim, str):
        return claim.split()
    if isinstance(claim, list):
        return [each for each in claim if isinstance(each, str)]
    return []
