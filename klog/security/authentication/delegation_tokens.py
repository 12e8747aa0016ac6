"""Delegation tokens: credentials that a client gets for itself or for another user, and that end (KIP-48).

Rules: Kafka's `DelegationTokenManagerZk` and `DelegationTokenCache`; KIP-373 (owners). A token is known by
its id. Whoever has its HMAC can log in as its owner, by SCRAM with the id as name and the HMAC in base64 as
password. The HMAC follows from the id and the secret of the brokers, so it is stored nowhere.
"""

from __future__ import annotations

import hmac
from base64 import b64encode
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from klog.protocol.error_codes import ErrorCode
from klog.security.authentication.scram_credentials import ScramCredential, credential_of_password
from klog.security.principal import KafkaPrincipal

NO_TIME_MS: Final = -1
_HASH: Final = "sha512"


class TokenLimits(NamedTuple):
    """For how long a token lives with all renewals, and until it must be renewed, in ms."""

    max_lifetime_ms: int
    renewal_ms: int


@dataclass(frozen=True, slots=True)
class DelegationToken:
    """Times are those of the wall clock, in ms: the token was issued, ends whatever happens, and expires if
    nobody renews it.
    """

    token_id: str
    owner: KafkaPrincipal
    requester: KafkaPrincipal
    renewers: tuple[KafkaPrincipal, ...]
    issued_ms: int
    ends_ms: int
    expires_ms: int

    def concerns(self, principal: KafkaPrincipal) -> bool:
        """Whether the principal may know of the token without any right."""
        return principal == self.requester or self.belongs_to(principal)

    def belongs_to(self, principal: KafkaPrincipal) -> bool:
        """Whether the principal may renew the token and end it."""
        return principal == self.owner or principal in self.renewers

    def is_over(self, now_ms: int) -> bool:
        """Whether the token is to be removed."""
        return self.ends_ms < now_ms or self.expires_ms < now_ms


def issued(
    token_id: str,
    owner: KafkaPrincipal,
    requester: KafkaPrincipal,
    renewers: Collection[KafkaPrincipal],
    lifetime_ms: int,
    limits: TokenLimits,
    now_ms: int,
) -> DelegationToken:
    """A new token. A lifetime of 0 or less means the longest."""
    longest_ms = limits.max_lifetime_ms
    ends_ms = now_ms + (longest_ms if lifetime_ms <= 0 else min(lifetime_ms, longest_ms))
    expires_ms = min(ends_ms, now_ms + limits.renewal_ms)
    return DelegationToken(token_id, owner, requester, tuple(renewers), now_ms, ends_ms, expires_ms)


def renewed(
    token: DelegationToken | None, client: KafkaPrincipal, period_ms: int, limits: TokenLimits, now_ms: int
) -> DelegationToken | ErrorCode:
    """The token after a client has renewed it; a negative period means that of the limits."""
    error = _refusal(token, client)
    if token is None or error:
        return error
    if token.is_over(now_ms):
        return ErrorCode.DELEGATION_TOKEN_EXPIRED
    return _expiring(token, now_ms + (limits.renewal_ms if period_ms < 0 else period_ms))


def expired(
    token: DelegationToken | None, client: KafkaPrincipal, period_ms: int, now_ms: int
) -> DelegationToken | ErrorCode | None:
    """The token after a client has set when it expires; None if it is to be removed, which a negative period
    means.
    """
    error = _refusal(token, client)
    if token is None or error:
        return error
    if period_ms < 0:
        return None
    if token.is_over(now_ms):
        return ErrorCode.DELEGATION_TOKEN_EXPIRED
    return _expiring(token, now_ms + period_ms)


def _refusal(token: DelegationToken | None, client: KafkaPrincipal) -> ErrorCode:
    if token is None:
        return ErrorCode.DELEGATION_TOKEN_NOT_FOUND
    return ErrorCode.NONE if token.belongs_to(client) else ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH


def _expiring(token: DelegationToken, expires_ms: int) -> DelegationToken:
    return replace(token, expires_ms=min(token.ends_ms, expires_ms))


class TokenLogin(NamedTuple):
    """What SCRAM needs to know of a token."""

    credential: ScramCredential
    owner: str
    expires_ms: int


class KnownTokens:
    """The tokens that a broker knows. Safe for threads: each token is replaced at once.

    `secret` is `delegation.token.secret.key`.
    """

    def __init__(self, secret: str) -> None:
        self._secret = secret.encode()
        self._tokens: dict[str, DelegationToken] = {}
        self._ids: dict[bytes, str] = {}
        # Made at the first login by the token: it takes some milliseconds.
        self._credentials: dict[tuple[str, str], ScramCredential] = {}

    def hmac_of(self, token_id: str) -> bytes:
        """The secret of a token."""
        return hmac.digest(self._secret, token_id.encode(), _HASH)

    def all(self) -> list[DelegationToken]:
        """All of them, in no order."""
        return list(self._tokens.values())

    def by_hmac(self, token_hmac: bytes) -> DelegationToken | None:
        """The token with this secret."""
        token_id = self._ids.get(token_hmac)
        return None if token_id is None else self._tokens.get(token_id)

    def put(self, token: DelegationToken) -> None:
        """Adds a token or replaces the one with its id."""
        self._tokens[token.token_id] = token
        self._ids[self.hmac_of(token.token_id)] = token.token_id

    def remove(self, token_id: str) -> None:
        """Forgets a token, which need not exist."""
        self._tokens.pop(token_id, None)
        self._ids.pop(self.hmac_of(token_id), None)
        for mechanism, each in list(self._credentials):
            if each == token_id:
                self._credentials.pop((mechanism, each), None)

    def login(self, mechanism: str, token_id: str) -> TokenLogin | None:
        """What a login by a token needs; None if there is no such token."""
        token = self._tokens.get(token_id)
        if token is None:
            return None
        credential = self._credentials.get((mechanism, token_id))
        if credential is None:
            password = b64encode(self.hmac_of(token_id)).decode()
            # A salt must be another one for each credential, and is public.
            credential = credential_of_password(mechanism, password, token_id.encode())
            self._credentials[mechanism, token_id] = credential
        return TokenLogin(credential, token.owner.name, token.expires_ms)
