"""Makes, renews, ends and describes delegation tokens (KIP-48, KIP-373)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

from klog.client.cluster import Cluster
from klog.client.requests import accepted, ask
from klog.protocol.apis import ApiKey
from klog.protocol.entity_fields import Entity, Value
from klog.protocol.errors import UnsupportedApiError

DEFAULT_MS: Final = -1
"""As the brokers' configs say; to expire, at once."""
_WITH_OWNERS: Final = 3
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class Token:
    """A delegation token. Principals are `Type:name`, times in ms. `hmac` is its secret."""

    token_id: str
    hmac: bytes = field(repr=False)
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issued_ms: int
    expires_ms: int
    ends_ms: int


def create_token(
    cluster: Cluster, renewers: Sequence[str], owner: str | None = None, lifetime_ms: int = DEFAULT_MS
) -> Token:
    """A new token, of the user itself if there is no `owner`. Raises RefusedError, UnsupportedApiError,
    ChannelError.
    """
    connection = cluster.any_connection()
    if owner is not None and connection.version_of(ApiKey.CREATE_DELEGATION_TOKEN) < _WITH_OWNERS:
        raise UnsupportedApiError(f"{connection} makes no tokens for other users (Kafka does from 3.3 on)")
    kind, name = (None, None) if owner is None else owner.split(":", 1)
    answer = ask(
        connection,
        ApiKey.CREATE_DELEGATION_TOKEN,
        owner_principal_type=kind,
        owner_principal_name=name,
        renewers=[_principal(each) for each in renewers],
        max_lifetime=lifetime_ms,
    )
    accepted(answer, "the token")
    times_ms = map(_ms, (answer.issue_timestamp, answer.expiry_timestamp, answer.max_timestamp))
    return _token(answer, renewers, *times_ms)


def renew_token(cluster: Cluster, hmac: bytes, period_ms: int = DEFAULT_MS) -> int:
    """Lets a token be valid for a period from now on. Returns when it expires, in ms. Raises RefusedError,
    UnsupportedApiError, ChannelError.
    """
    return _expiry_ms(cluster, ApiKey.RENEW_DELEGATION_TOKEN, hmac=hmac, renew_period=period_ms)


def expire_token(cluster: Cluster, hmac: bytes, period_ms: int = DEFAULT_MS) -> int:
    """Lets a token expire after a period, or removes it. Returns when it expires, in ms. Raises RefusedError,
    UnsupportedApiError, ChannelError.
    """
    return _expiry_ms(cluster, ApiKey.EXPIRE_DELEGATION_TOKEN, hmac=hmac, expiry_time_period=period_ms)


def _expiry_ms(cluster: Cluster, api_key: ApiKey, **values: Value) -> int:
    return _ms(accepted(ask(cluster.any_connection(), api_key, **values), "the token").expiry_timestamp)


def describe_tokens(cluster: Cluster, owners: Iterable[str] | None = None) -> list[Token]:
    """The tokens that the user may see, oldest first: those of these owners or renewers, or all.

    Raises RefusedError, UnsupportedApiError, ChannelError.
    """
    wanted = None if owners is None else [_principal(each) for each in owners]
    answer = accepted(
        ask(cluster.any_connection(), ApiKey.DESCRIBE_DELEGATION_TOKEN, owners=wanted), "delegation tokens"
    )
    found = [
        _token(
            each,
            [f"{one.principal_type}:{one.principal_name}" for one in each.renewers],
            each.issue_timestamp,
            each.expiry_timestamp,
            each.max_timestamp,
        )
        for each in answer.tokens
    ]
    return sorted(found, key=lambda each: (each.issued_ms, each.token_id))


def _token(said: Entity, renewers: Sequence[str], issued_ms: int, expires_ms: int, ends_ms: int) -> Token:
    owner = f"{said.principal_type}:{said.principal_name}"
    requester = owner
    if hasattr(said, "token_requester_principal_name"):  # since version 3
        requester = f"{said.token_requester_principal_type}:{said.token_requester_principal_name}"
    hmac = bytes(said.hmac)
    return Token(said.token_id, hmac, owner, requester, tuple(renewers), issued_ms, expires_ms, ends_ms)


def _principal(text: str) -> dict[str, Value]:
    kind, _, name = text.partition(":")
    return {"principal_type": kind, "principal_name": name}


def _ms(moment: datetime | None) -> int:
    return -1 if moment is None else (moment - _EPOCH) // _MILLISECOND
