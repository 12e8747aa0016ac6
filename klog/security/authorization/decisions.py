"""Decides whether a principal may do something, from the ACLs alone.

Rules: Kafka's `AclAuthorizer.authorizeAction` and `authorizeByResourceType`. A super user may do everything.
If no ACL is about a resource, a config decides. Otherwise an ACL must allow the operation, and none may deny
it. What an allowed operation implies counts for ACLs that allow, not for those that deny.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from klog.protocol.acls import (
    ANYBODY,
    WILDCARD,
    Acl,
    AclOperation,
    AclResourceType,
    PatternType,
    Permission,
)
from klog.security.authorization.acl_set import AclSet
from klog.security.principal import KafkaPrincipal

# The operations of which any one allows the operation, too.
_ALLOWED_BY: Final[Mapping[AclOperation, frozenset[AclOperation]]] = {
    AclOperation.DESCRIBE: frozenset(
        (
            AclOperation.DESCRIBE,
            AclOperation.READ,
            AclOperation.WRITE,
            AclOperation.DELETE,
            AclOperation.ALTER,
        )
    ),
    AclOperation.DESCRIBE_CONFIGS: frozenset((AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS)),
}


class Cause(Enum):
    """Why something is allowed or denied."""

    SUPER_USER = "super user"
    NO_ACLS = "no ACL is about the resource"
    ACL = "an ACL says so"
    NO_MATCH = "no ACL allows it"


class Decision(NamedTuple):
    """Whether something is allowed, why, and the ACL that decided if there is one."""

    allowed: bool
    cause: Cause
    acl: Acl | None = None


@dataclass(frozen=True, slots=True)
class Authorizer:
    """The ACLs of one moment and the two configs, by which everything is decided.

    `allows_without_acls` is `allow.everyone.if.no.acl.found`.
    """

    acls: AclSet
    super_users: frozenset[KafkaPrincipal] = frozenset()
    allows_without_acls: bool = False

    def decide(
        self, principal: KafkaPrincipal, host: str, operation: AclOperation, kind: AclResourceType, name: str
    ) -> Decision:
        """Whether a principal may do something from a host (an IP address as text)."""
        if principal in self.super_users:
            return Decision(True, Cause.SUPER_USER)
        acls = self.acls.applying(kind, name)
        if not acls:
            return Decision(self.allows_without_acls, Cause.NO_ACLS)
        who = str(principal)
        denying = _first(acls, Permission.DENY, who, host, (operation,))
        if denying is not None:
            return Decision(False, Cause.ACL, denying)
        allowed_by = _ALLOWED_BY.get(operation, frozenset((operation,)))
        allowing = _first(acls, Permission.ALLOW, who, host, allowed_by)
        if allowing is not None:
            return Decision(True, Cause.ACL, allowing)
        return Decision(False, Cause.NO_MATCH)

    def decide_any(
        self, principal: KafkaPrincipal, host: str, operation: AclOperation, kind: AclResourceType
    ) -> bool:
        """Whether there may be a resource of a type for which a principal may do something.

        Nothing is implied here. An ACL that allows counts unless one that denies covers its whole pattern.
        """
        if principal in self.super_users:
            return True
        who = str(principal)
        fitting = [
            acl
            for acl in self.acls
            if acl.pattern.resource_type is kind and _fits(acl, acl.permission, who, host, (operation,))
        ]
        denied = {
            (acl.pattern.name, acl.pattern.pattern_type)
            for acl in fitting
            if acl.permission is Permission.DENY
        }
        if (WILDCARD, PatternType.LITERAL) in denied:
            return False
        if self.allows_without_acls:
            return True
        return any(
            not _is_covered(acl.pattern.name, acl.pattern.pattern_type, denied)
            for acl in fitting
            if acl.permission is Permission.ALLOW
        )


def _first(
    acls: Iterable[Acl], permission: Permission, who: str, host: str, operations: Collection[AclOperation]
) -> Acl | None:
    return next((acl for acl in acls if _fits(acl, permission, who, host, operations)), None)


def _fits(
    acl: Acl, permission: Permission, who: str, host: str, operations: Collection[AclOperation]
) -> bool:
    return (
        acl.permission is permission
        and acl.principal in (who, ANYBODY)
        and (acl.operation in operations or acl.operation is AclOperation.ALL)
        and acl.host in (host, WILDCARD)
    )


def _is_covered(name: str, pattern_type: PatternType, denied: Collection[tuple[str, PatternType]]) -> bool:
    """Whether patterns that deny cover all that a pattern names."""
    if pattern_type is PatternType.LITERAL:
        if name == WILDCARD:
            return False
        if (name, PatternType.LITERAL) in denied:
            return True
    return any((name[:end], PatternType.PREFIXED) in denied for end in range(1, len(name) + 1))
