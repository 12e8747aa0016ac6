"""Answers DescribeAcls, CreateAcls and DeleteAcls. Any broker writes the tree itself.

Rules: Kafka's `AclApis` and `AclAuthorizer`, and what the requests check when they are read (KIP-140,
KIP-290, KIP-373). A code that Kafka does not know closes the connection.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from itertools import groupby
from operator import attrgetter
from typing import Final, TypeVar

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
_LITERAL_ONLY: Final = 0

_Code = TypeVar("_Code", bound=IntEnum)


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
        found = sorted(self.store.matching(wanted))
        resources = [
            {**_pattern(pattern), "acls": [_entry(acl) for acl in acls]}
            for pattern, acls in groupby(found, attrgetter("pattern"))
        ]
        send_answer(request, error_code=ErrorCode.NONE, error_message=None, resources=resources)

    def create(self, request: Request) -> None:
        """CreateAcls: answered when this broker obeys the new ACLs."""
        creations = entity_of(request).creations
        _check_creations(request, creations)
        if self.store is None:
            refused = RefusedError(ErrorCode.SECURITY_DISABLED, _NO_AUTHORIZER)
            send_answer(request, results=[error_fields(refused) for _ in creations])
            return
        if not all(_can_be_asked_for(each) for each in creations):
            refused = RefusedError(ErrorCode.UNKNOWN_SERVER_ERROR)
            send_answer(request, results=[error_fields(refused) for _ in creations])
            return
        refusals = [_refusal(each) for each in creations]
        acls = [None if refused else _acl(each) for each, refused in zip(creations, refusals, strict=True)]
        errors = self.store.add(acl for acl in acls if acl is not None)
        results = [
            error_fields(refused if acl is None else _failure(errors[acl.pattern]))
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
        results = [
            {**error_fields(None), "matching_acls": _removed(found)} for found in self.store.remove(filters)
        ]
        send_answer(request, filter_results=results)


def _failure(error: KlogError | None) -> RefusedError | None:
    if error is None:
        return None
    _log.error("ACLs were not changed: %s", error)
    return RefusedError(ErrorCode.UNKNOWN_SERVER_ERROR)


# -- what is asked for ---------------------------------------------------------------------------------------


def _filter(request: Request, asked: Entity) -> AclFilter:
    """Raises `MalformedMessageError`."""
    # Version 0 knows literal patterns only.
    pattern_type = _known(PatternType, getattr(asked, "pattern_type_filter", PatternType.LITERAL))
    if request.api_version == _LITERAL_ONLY and pattern_type is PatternType.ANY:
        pattern_type = PatternType.LITERAL
    return AclFilter(
        _known(AclResourceType, asked.resource_type_filter),
        asked.resource_name_filter,
        pattern_type,
        asked.principal_filter,
        asked.host_filter,
        _known(AclOperation, asked.operation),
        _known(Permission, asked.permission_type),
    )


def _known(kind: type[_Code], code: int) -> _Code:
    """Raises `MalformedMessageError`."""
    try:
        found = kind(code)
    except ValueError as error:
        raise MalformedMessageError(f"there is no {kind.__name__} {code}") from error
    if found is AclOperation.TWO_PHASE_COMMIT:
        raise MalformedMessageError(f"Kafka 3.9 has no operation {code}")
    return found


def _check_creations(request: Request, creations: Iterable[Entity]) -> None:
    """Raises `MalformedMessageError` for the codes that Kafka refuses when it reads the request."""
    for each in creations:
        codes = (each.resource_type, _pattern_code(each), each.operation, each.permission_type)
        if 0 in codes:
            raise MalformedMessageError(f"{request!r} has an unknown code of an ACL: {codes}")


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
    codes: tuple[tuple[type[IntEnum], int], ...] = (
        (AclResourceType, creation.resource_type),
        (PatternType, _pattern_code(creation)),
        (AclOperation, creation.operation),
        (Permission, creation.permission_type),
    )
    is_known = all(code in set(kind) for kind, code in codes) and creation.operation <= _LAST_OPERATION
    if not is_known or not is_node_name(name):
        return RefusedError(ErrorCode.INVALID_REQUEST, "Failed to create ACL")
    if not is_principal(creation.principal):
        return RefusedError(ErrorCode.UNKNOWN_SERVER_ERROR)
    return None


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
