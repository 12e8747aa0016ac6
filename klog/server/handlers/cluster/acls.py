"""Answers DescribeAcls, CreateAcls and DeleteAcls. Any broker writes the tree itself.

Rules: Kafka's `AclApis` and `AclAuthorizer`, and what the requests check when they are read (KIP-140,
KIP-290, KIP-373). The code 0, which stands for unknown, closes the connection. Other codes that Kafka does
not know cannot be created, and find nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Container, Mapping
from dataclasses import dataclass
from enum import IntEnum
from itertools import groupby
from operator import attrgetter
from typing import Final

from klog.formats.errors import KlogError
from klog.protocol.acls import (
    CLUSTER_NAME,
    Acl,
    AclFilter,
    AclOperation,
    AclResourceType,
    PatternType,
    Permission,
    ResourcePattern,
)
from klog.protocol.entity_fields import Entity
from klog.protocol.error_codes import ErrorCode
from klog.protocol.errors import MalformedMessageError
from klog.security.authorization.acl_store import AclStore
from klog.security.authorization.acl_znodes import is_node_name, is_principal
from klog.server.handlers.answers import Struct, entity_of, send_answer
from klog.server.handlers.refusals import RefusedError, error_fields
from klog.server.network.request import Request

_log = logging.getLogger(__name__)

_NO_AUTHORIZER: Final = "No Authorizer is configured."
_NO_AUTHORIZER_TO_ASK: Final = "No Authorizer is configured on the broker"
# Kafka 3.9 does not know those of later versions.
_LAST_OPERATION: Final = AclOperation.DESCRIBE_TOKENS

# In the order of the fields.
_KINDS: Final[tuple[type[IntEnum], ...]] = (AclResourceType, PatternType, AclOperation, Permission)


@dataclass(frozen=True, slots=True)
class AclsHandler:
    """Answers the three. Without a store there is no authoriser."""

    store: AclStore | None

    def describe(self, request: Request) -> None:
        """DescribeAcls: what this broker knows."""
        wanted = _filter(request, entity_of(request))
        if self.store is None:
            refused = RefusedError(ErrorCode.SECURITY_DISABLED, _NO_AUTHORIZER_TO_ASK)
            send_answer(request, **error_fields(refused), resources=())
            return
        found = [] if wanted is None else sorted(self.store.matching(wanted))
        resources = [
            {**_pattern(pattern), "acls": [_entry(acl) for acl in acls]}
            for pattern, acls in groupby(found, attrgetter("pattern"))
        ]
        send_answer(request, error_code=ErrorCode.NONE, error_message=None, resources=resources)

    def create(self, request: Request) -> None:
        """CreateAcls: answered when this broker obeys the new ACLs."""
        creations = entity_of(request).creations
        for each in creations:
            _require_no_zero(request, _codes(each))
        if self.store is None:
            refused = RefusedError(ErrorCode.SECURITY_DISABLED, _NO_AUTHORIZER)
            send_answer(request, results=[error_fields(refused) for _ in creations])
            return
        if not all(_can_be_asked_for(each) for each in creations):
            refused = RefusedError(ErrorCode.UNKNOWN_SERVER_ERROR)
            send_answer(request, results=[error_fields(refused) for _ in creations])
            return
        without_type = {_target(each) for each in creations if not is_principal(each.principal)}
        refusals = [_refusal(each) or _failure_beside(each, without_type) for each in creations]
        acls = [None if refused else _acl(each) for each, refused in zip(creations, refusals, strict=True)]
        errors = self.store.add(acl for acl in acls if acl is not None)
        results = [
            _created(refused if acl is None else _failure(errors[acl.pattern]))
            for acl, refused in zip(acls, refusals, strict=True)
        ]
        send_answer(request, results=results)

    def delete(self, request: Request) -> None:
        """DeleteAcls: answered when this broker has forgotten the ACLs."""
        filters = [_filter(request, each) for each in entity_of(request).filters]
        if self.store is None:
            refused = RefusedError(ErrorCode.SECURITY_DISABLED, _NO_AUTHORIZER)
            nothing = {**error_fields(refused), "matching_acls": ()}
            send_answer(request, filter_results=[nothing for _ in filters])
            return
        removed = iter(self.store.remove([each for each in filters if each is not None]))
        found = [{} if each is None else next(removed) for each in filters]
        results = [{**error_fields(None), "matching_acls": _removed(each)} for each in found]
        send_answer(request, filter_results=results)


def _created(refused: RefusedError | None) -> Struct:
    # Kafka has an empty message here if all is well, and none elsewhere.
    return {"error_code": ErrorCode.NONE, "error_message": ""} if refused is None else error_fields(refused)


def _failure(error: KlogError | None) -> RefusedError | None:
    if error is None:
        return None
    _log.error("ACLs were not changed: %s", error)
    return RefusedError(ErrorCode.UNKNOWN_SERVER_ERROR)


# -- what is asked for ---------------------------------------------------------------------------------------


def _filter(request: Request, asked: Entity) -> AclFilter | None:
    """What is asked for; None if nothing can be found. Raises `MalformedMessageError`."""
    # Version 0 knows literal patterns only.
    pattern_code = getattr(asked, "pattern_type_filter", PatternType.LITERAL)
    codes = (asked.resource_type_filter, pattern_code, asked.operation, asked.permission_type)
    _require_no_zero(request, codes)
    if not all(code in set(kind) for kind, code in zip(_KINDS, codes, strict=True)):
        return None
    return AclFilter(
        AclResourceType(asked.resource_type_filter),
        asked.resource_name_filter,
        PatternType(pattern_code),
        asked.principal_filter,
        asked.host_filter,
        AclOperation(asked.operation),
        Permission(asked.permission_type),
    )


def _require_no_zero(request: Request, codes: tuple[int, ...]) -> None:
    """Raises `MalformedMessageError`."""
    if 0 in codes:
        raise MalformedMessageError(f"{request!r} has an unknown code of an ACL: {codes}")


def _codes(creation: Entity) -> tuple[int, ...]:
    pattern_code = _pattern_code(creation)
    return creation.resource_type, pattern_code, creation.operation, creation.permission_type


def _pattern_code(creation: Entity) -> int:
    return int(getattr(creation, "resource_pattern_type", PatternType.LITERAL))


def _can_be_asked_for(creation: Entity) -> bool:
    """Whether Kafka can make an ACL of it at all. Codes for filters fail the whole request."""
    return (
        creation.resource_type != AclResourceType.ANY
        and _pattern_code(creation) not in (PatternType.ANY, PatternType.MATCH)
        and creation.operation != AclOperation.ANY
        and creation.permission_type != Permission.ANY
    )


def _refusal(creation: Entity) -> RefusedError | None:
    """What is wrong with one ACL."""
    name = creation.resource_name
    if creation.resource_type == AclResourceType.CLUSTER and name != CLUSTER_NAME:
        what = f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}"
        return RefusedError(ErrorCode.INVALID_REQUEST, what)
    if not name:
        return RefusedError(ErrorCode.INVALID_REQUEST, "Invalid empty resource name")
    known = (code in set(kind) for kind, code in zip(_KINDS, _codes(creation), strict=True))
    if not all(known) or creation.operation > _LAST_OPERATION or "/" in name:
        return RefusedError(ErrorCode.INVALID_REQUEST, "Failed to create ACL")
    return None if is_node_name(name) else RefusedError(ErrorCode.UNKNOWN_SERVER_ERROR)


def _target(creation: Entity) -> tuple[int, str, int]:
    return creation.resource_type, creation.resource_name, _pattern_code(creation)


def _failure_beside(creation: Entity, failed: Container[tuple[int, str, int]]) -> RefusedError | None:
    """A principal without a type fails all ACLs of the same pattern, as in Kafka."""
    return RefusedError(ErrorCode.UNKNOWN_SERVER_ERROR) if _target(creation) in failed else None


def _acl(creation: Entity) -> Acl:
    return Acl(
        ResourcePattern(
            AclResourceType(creation.resource_type),
            creation.resource_name,
            PatternType(_pattern_code(creation)),
        ),
        creation.principal,
        creation.host,
        AclOperation(creation.operation),
        Permission(creation.permission_type),
    )


# -- what is answered ----------------------------------------------------------------------------------------


def _pattern(pattern: ResourcePattern) -> Struct:
    return {
        "resource_type": pattern.resource_type,
        "resource_name": pattern.name,
        "pattern_type": pattern.pattern_type,
    }


def _entry(acl: Acl) -> Struct:
    return {
        "principal": acl.principal,
        "host": acl.host,
        "operation": acl.operation,
        "permission_type": acl.permission,
    }


def _removed(found: Mapping[Acl, KlogError | None]) -> list[Struct]:
    return [
        {**error_fields(_failure(error)), **_pattern(acl.pattern), **_entry(acl)}
        for acl, error in sorted(found.items(), key=lambda each: each[0])
    ]
