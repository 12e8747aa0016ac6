"""The lines of the audit log: who was allowed or denied what.

Rules: Kafka's `AclAuthorizer.logAuditMessage`. What is denied is INFO, what is allowed DEBUG. Checks that
only find out what a client may see or do are TRACE. The logger has Kafka's name.
"""

from __future__ import annotations

import logging
from typing import Final

from klog.protocol.acls import AclOperation, AclResourceType
from klog.security.authorization.acl_znodes import name_of
from klog.security.authorization.decisions import Cause, Decision
from klog.security.principal import KafkaPrincipal

LOGGER: Final = "kafka.authorizer.logger"
TRACE: Final = logging.DEBUG - 5


def audit_line(
    principal: KafkaPrincipal,
    host: str,
    operation: AclOperation,
    resource: str,
    request: str,
    references: int,
    *,
    allowed: bool,
) -> str:
    """One line. `resource` is `Topic:LITERAL:t1`; `references` is how often the request names it."""
    return (
        f"Principal = {principal} is {'Allowed' if allowed else 'Denied'} Operation = {name_of(operation)} "
        f"from host = {host} on resource = {resource} for request = {request} "
        f"with resourceRefCount = {references}"
    )


def resource_text(kind: AclResourceType, name: str, pattern_type: str = "LITERAL") -> str:
    """A resource as the audit log names it."""
    return f"{name_of(kind)}:{pattern_type}:{name}"


def reason_line(
    decision: Decision, principal: KafkaPrincipal, host: str, operation: AclOperation, resource: str
) -> str | None:
    """Why it was decided so; None if no ACL matched."""
    match decision.cause:
        case Cause.SUPER_USER:
            return f"principal = {principal} is a super user, allowing operation without checking acls."
        case Cause.NO_ACLS:
            return f"No acl found for resource {resource}, authorized = {str(decision.allowed).lower()}"
        case Cause.ACL if decision.acl is not None:
            acl = decision.acl
            return (
                f"operation = {operation.name} on resource = {resource} from host = {host} "
                f"is {acl.permission.name} based on acl = {acl}"
            )
    return None
