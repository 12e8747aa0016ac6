"""What the client of a request may do: decisions that are remembered, and the audit log.

Rules: Kafka's `AuthHelper` and `AclAuthorizer`. Decisions are forgotten when an ACL changes.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, Protocol

from klog.protocol.acls import CLUSTER_NAME, AclOperation, AclResourceType
from klog.protocol.apis import api_name
from klog.security.authorization.acl_set import AclSet
from klog.security.authorization.audit import LOGGER, TRACE, audit_line, reason_line, resource_text
from klog.security.authorization.decisions import Authorizer
from klog.security.authorization.hosts import host_of
from klog.security.authorization.operations import SUPPORTED
from klog.security.principal import KafkaPrincipal
from klog.server.network.request import Client, Request

# Clients choose the names, so both are limits against them.
_REMEMBERED_MAX: Final = 4096
_REMEMBERED_NAME_MAX_CHARACTERS: Final = 256


class Acls(Protocol):
    """Where the present ACLs are: another value after each change."""

    acls: AclSet


class _State:
    """The ACLs of one moment, and decisions by them: by principal, host and name."""

    __slots__ = ("acls", "authorizer", "known")

    def __init__(self, authorizer: Authorizer) -> None:
        self.acls = authorizer.acls
        self.authorizer = authorizer
        self.known: dict[tuple[KafkaPrincipal, str, str], bool] = {}


@dataclass(slots=True, eq=False)
class Right:
    """One operation on one type of resources: who may do it with which of them. Safe for threads.

    Every request asks, so a decision that is known takes one lookup.
    """

    operation: AclOperation
    kind: AclResourceType
    _source: Acls
    _authorizer_of: Callable[[AclSet], Authorizer]
    _log: logging.Logger
    _state: _State = field(init=False)

    def __post_init__(self) -> None:
        self._state = _State(self._authorizer_of(self._source.acls))

    def allows(self, client: Client, name: str) -> bool:
        """Whether the client may."""
        acls, state = self._source.acls, self._state
        if state.acls is not acls:
            state = self._state = _State(self._authorizer_of(acls))
        key = client.principal, client.peer[0], name
        allowed = state.known.get(key)
        if allowed is None:
            host = host_of(client.peer[0])
            allowed = state.authorizer.decide(client.principal, host, self.operation, self.kind, name).allowed
            if len(name) <= _REMEMBERED_NAME_MAX_CHARACTERS:
                if len(state.known) >= _REMEMBERED_MAX:
                    state.known.clear()
                state.known[key] = allowed
        return allowed

    def allows_silently(self, client: Client, name: str) -> bool:
        """Whether the client may, if there is nothing to log about it; else False."""
        return not self._log.isEnabledFor(logging.DEBUG) and self.allows(client, name)


class Access:
    """Decides about the clients of requests. Safe for threads.

    `super_users` and `allows_without_acls` are the configs of the authoriser.
    """

    def __init__(
        self,
        source: Acls,
        super_users: frozenset[KafkaPrincipal] = frozenset(),
        allows_without_acls: bool = False,
    ) -> None:
        self._source = source
        self._super_users = super_users
        self._allows_without_acls = allows_without_acls
        self._log = logging.getLogger(LOGGER)
        self._rights = {
            (operation, kind): Right(operation, kind, source, self._authorizer_of, self._log)
            for operation in AclOperation
            for kind in SUPPORTED
        }

    def right(self, operation: AclOperation, kind: AclResourceType) -> Right:
        """The decisions about one operation, for those who ask often."""
        return self._rights[operation, kind]

    def _authorizer_of(self, acls: AclSet) -> Authorizer:
        return Authorizer(acls, self._super_users, self._allows_without_acls)

    def allows(
        self,
        request: Request,
        operation: AclOperation,
        kind: AclResourceType,
        name: str,
        *,
        logs_denial: bool = True,
        references: int = 1,
    ) -> bool:
        """Whether the client may do something with a resource that its request names."""
        allowed = self._rights[operation, kind].allows(request.connection, name)
        level = logging.DEBUG if allowed else logging.INFO if logs_denial else TRACE
        if self._log.isEnabledFor(level):
            self._write(request, operation, kind, name, references, level, allowed=allowed)
        return allowed

    def allows_on_cluster(
        self, request: Request, operation: AclOperation, *, logs_denial: bool = True
    ) -> bool:
        """Whether the client may do something with the cluster."""
        return self.allows(request, operation, AclResourceType.CLUSTER, CLUSTER_NAME, logs_denial=logs_denial)

    def allowed(
        self,
        request: Request,
        operation: AclOperation,
        kind: AclResourceType,
        names: Iterable[str],
        *,
        logs_denial: bool = True,
    ) -> set[str]:
        """The names of resources with which the client may do something. The log counts repeated names."""
        return {
            name
            for name, references in Counter(names).items()
            if self.allows(request, operation, kind, name, logs_denial=logs_denial, references=references)
        }

    def allows_any(self, request: Request, operation: AclOperation, kind: AclResourceType) -> bool:
        """Whether there may be a resource of a type with which the client may do something."""
        client = request.connection
        host = host_of(client.peer[0])
        authorizer = self._authorizer_of(self._source.acls)
        allowed = authorizer.decide_any(client.principal, host, operation, kind)
        level = logging.DEBUG if allowed else logging.INFO
        if self._log.isEnabledFor(level) and client.principal not in self._super_users:
            resource = resource_text(kind, "NONE", "UNKNOWN")
            api = api_name(request.api_key)
            self._log.log(
                level, "%s", audit_line(client.principal, host, operation, resource, api, 0, allowed=allowed)
            )
        return allowed

    def operations(self, request: Request, kind: AclResourceType, name: str) -> int:
        """All that the client may do with a resource, as a bit field of operations (KIP-430)."""
        bits = 0
        for operation in SUPPORTED[kind]:
            if self._rights[operation, kind].allows(request.connection, name):
                bits |= 1 << operation
        return bits

    def cluster_operations(self, request: Request) -> int:
        """What the client may do with the cluster; nothing if it may not describe it."""
        if not self.allows_on_cluster(request, AclOperation.DESCRIBE):
            return 0
        return self.operations(request, AclResourceType.CLUSTER, CLUSTER_NAME)

    def _write(
        self,
        request: Request,
        operation: AclOperation,
        kind: AclResourceType,
        name: str,
        references: int,
        level: int,
        *,
        allowed: bool,
    ) -> None:
        principal, host = request.principal, host_of(request.peer_address)
        resource = resource_text(kind, name)
        if self._log.isEnabledFor(logging.DEBUG):
            authorizer = self._authorizer_of(self._source.acls)
            decision = authorizer.decide(principal, host, operation, kind, name)
            reason = reason_line(decision, principal, host, operation, resource)
            if reason is not None:
                self._log.debug("%s", reason)
        line = audit_line(
            principal, host, operation, resource, api_name(request.api_key), references, allowed=allowed
        )
        self._log.log(level, "%s", line)
