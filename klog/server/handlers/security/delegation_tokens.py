"""Create-, Renew-, Expire- and DescribeDelegationToken (KIP-48, KIP-373).

Rules: Kafka's `KafkaApis`. Any broker answers. Nobody may ask for tokens over PLAINTEXT, over TLS without a
certificate, or after a login by a token.
"""

from __future__ import annotations

from dataclasses import dataclass

from klog.protocol.acls import AclOperation, AclResourceType
from klog.protocol.entity_fields import Entity
from klog.protocol.error_codes import ErrorCode
from klog.security.authentication.delegation_tokens import NO_TIME_MS, DelegationToken
from klog.security.authentication.token_store import TokenStore
from klog.security.principal import ANONYMOUS, USER, KafkaPrincipal, TokenPrincipal
from klog.server.handlers.access import Access
from klog.server.handlers.answers import Struct, entity_of, milliseconds, send_answer
from klog.server.network.request import Request


@dataclass(frozen=True, slots=True)
class DelegationTokensHandler:
    """Answers all four. `tokens` is None if the broker has no secret for them."""

    tokens: TokenStore | None
    access: Access | None

    def create(self, request: Request) -> None:
        """A new token for the client, or for another owner."""
        asked, requester = entity_of(request), request.principal
        owner = _owner(asked, requester)
        renewers = [KafkaPrincipal(each.principal_type, each.principal_name) for each in asked.renewers]
        if not _may_ask(request):
            error = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        elif owner != requester and not self._allows(
            request, AclOperation.CREATE_TOKENS, AclResourceType.USER, str(owner)
        ):
            error = ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
        elif any(each.type != USER for each in renewers):
            error = ErrorCode.INVALID_PRINCIPAL_TYPE
        elif self.tokens is None:
            error = ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
        else:
            token = self.tokens.create(owner, requester, renewers, milliseconds(asked.max_lifetime))
            send_answer(request, error_code=ErrorCode.NONE, **self._described(self.tokens, token))
            return
        send_answer(request, error_code=error, **_no_token(owner, requester))

    def renew(self, request: Request) -> None:
        """Lets a token be valid for longer."""
        asked = entity_of(request)
        expires_ms: int | ErrorCode = _refusal(request, self.tokens)
        if self.tokens is not None and not expires_ms:
            renewed = self.tokens.renew(request.principal, asked.hmac, milliseconds(asked.renew_period))
            expires_ms = renewed.expires_ms if isinstance(renewed, DelegationToken) else renewed
        _send_time(request, expires_ms)

    def expire(self, request: Request) -> None:
        """Sets when a token expires, or removes it."""
        asked = entity_of(request)
        expires_ms: int | ErrorCode = _refusal(request, self.tokens)
        if self.tokens is not None and not expires_ms:
            period_ms = milliseconds(asked.expiry_time_period)
            expires_ms = self.tokens.expire(request.principal, asked.hmac, period_ms)
        _send_time(request, expires_ms)

    def describe(self, request: Request) -> None:
        """The tokens of some owners, or all, as far as the client may see them."""
        error, tokens, asked = _refusal(request, self.tokens), self.tokens, entity_of(request)
        found: list[Struct] = []
        if tokens is not None and not error:
            owners = asked.owners
            wanted = {KafkaPrincipal(each.principal_type, each.principal_name) for each in owners or ()}
            found = [
                self._described(tokens, token)
                for token in tokens.known.all()
                if (owners is None or any(token.concerns(each) for each in wanted))
                and self._may_see(request, token)
            ]
        send_answer(request, error_code=error, tokens=found)

    def _may_see(self, request: Request, token: DelegationToken) -> bool:
        return (
            token.concerns(request.principal)
            or self._allows(request, AclOperation.DESCRIBE, AclResourceType.DELEGATION_TOKEN, token.token_id)
            or self._allows(request, AclOperation.DESCRIBE_TOKENS, AclResourceType.USER, str(token.owner))
        )

    def _allows(self, request: Request, operation: AclOperation, kind: AclResourceType, name: str) -> bool:
        return self.access is None or self.access.allows(request, operation, kind, name)

    def _described(self, tokens: TokenStore, token: DelegationToken) -> Struct:
        """The fields of a token in both answers."""
        renewers = [{"principal_type": each.type, "principal_name": each.name} for each in token.renewers]
        return {
            **_no_token(token.owner, token.requester),
            "issue_timestamp": token.issued_ms,
            "expiry_timestamp": token.expires_ms,
            "max_timestamp": token.ends_ms,
            "token_id": token.token_id,
            "hmac": tokens.known.hmac_of(token.token_id),
            "renewers": renewers,
        }


def _owner(asked: Entity, requester: KafkaPrincipal) -> KafkaPrincipal:
    """Whose token it will be. Versions before 3 name nobody."""
    name = getattr(asked, "owner_principal_name", None)
    return KafkaPrincipal(asked.owner_principal_type or "", name) if name else requester


def _may_ask(request: Request) -> bool:
    """Whether tokens may go over the client's connection, and it has logged in by more than a token."""
    listener, principal = request.connection.listener, request.principal
    if isinstance(principal, TokenPrincipal):
        return False
    return listener.authentication is not None or (listener.tls is not None and principal != ANONYMOUS)


def _refusal(request: Request, tokens: TokenStore | None) -> ErrorCode:
    if not _may_ask(request):
        return ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    return ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED if tokens is None else ErrorCode.NONE


def _send_time(request: Request, found: int | ErrorCode) -> None:
    error, expires_ms = (found, NO_TIME_MS) if isinstance(found, ErrorCode) else (ErrorCode.NONE, found)
    send_answer(request, error_code=error, expiry_timestamp=expires_ms)


def _no_token(owner: KafkaPrincipal, requester: KafkaPrincipal) -> Struct:
    return {
        "principal_type": owner.type,
        "principal_name": owner.name,
        "token_requester_principal_type": requester.type,
        "token_requester_principal_name": requester.name,
        "issue_timestamp": NO_TIME_MS,
        "expiry_timestamp": NO_TIME_MS,
        "max_timestamp": NO_TIME_MS,
        "token_id": "",
        "hmac": b"",
    }
