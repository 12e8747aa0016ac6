"""Asks for access control lists (ACLs), adds and removes them (KIP-140, KIP-290 patterns, KIP-373 users).

Any broker answers. A broker without an authoriser refuses with SECURITY_DISABLED.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from klog.client.cluster import Cluster
from klog.client.errors import RefusedError
from klog.protocol.apis import ApiKey
from klog.protocol.entity_fields import Entity
from klog.protocol.error_codes import ErrorCode
from klog.protocol.messages import build, request_class, request_struct


class AclResourceType(IntEnum):
    """What an ACL is about, with its number on the wire. ANY is for filters only."""

    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """How a resource is named. ANY and MATCH (all that apply to a name) are for filters only."""

    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class AclOperation(IntEnum):
    """What an ACL allows or denies. ANY is for filters only."""

    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class Permission(IntEnum):
    """Whether an ACL allows or denies. ANY is for filters only."""

    ANY = 1
    DENY = 2
    ALLOW = 3


class ResourcePattern(NamedTuple):
    """The resources that ACLs are about."""

    resource_type: AclResourceType
    name: str
    pattern_type: PatternType

    def __str__(self) -> str:
        return (
            f"ResourcePattern(resourceType={self.resource_type.name}, name={self.name}, "
            f"patternType={self.pattern_type.name})"
        )


class Acl(NamedTuple):
    """Who may, or may not, do something from a host, on the resources of a pattern."""

    pattern: ResourcePattern
    principal: str
    host: str
    operation: AclOperation
    permission: Permission

    def __str__(self) -> str:
        return (
            f"(principal={self.principal}, host={self.host}, operation={self.operation.name}, "
            f"permissionType={self.permission.name})"
        )


@dataclass(frozen=True, slots=True)
class AclFilter:
    """Which ACLs are meant; None stands for all values."""

    resource_type: AclResourceType = AclResourceType.ANY
    name: str | None = None
    pattern_type: PatternType = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission: Permission = Permission.ANY


def describe_acls(cluster: Cluster, wanted: AclFilter) -> list[Acl]:
    """The ACLs that the filter matches, sorted. Raises RefusedError, UnsupportedApiError, ChannelError."""
    connection = cluster.any_connection()
    version = connection.version_of(ApiKey.DESCRIBE_ACLS)
    answer = connection.send(_filtering(request_class(ApiKey.DESCRIBE_ACLS, version), wanted))
    if answer.error_code != ErrorCode.NONE:
        raise RefusedError("ACLs", answer.error_code, message=answer.error_message)
    return sorted(
        _acl(ResourcePattern(*_kind(resource), _pattern_type(resource)), each)
        for resource in answer.resources
        for each in resource.acls
    )


def _filtering(kind: type, wanted: AclFilter) -> Entity:
    return build(
        kind,
        resource_type_filter=int(wanted.resource_type),
        resource_name_filter=wanted.name,
        pattern_type_filter=int(wanted.pattern_type),
        principal_filter=wanted.principal,
        host_filter=wanted.host,
        operation=int(wanted.operation),
        permission_type=int(wanted.permission),
    )


def _kind(found: Entity) -> tuple[AclResourceType, str]:
    return AclResourceType(found.resource_type), str(found.resource_name)


def _pattern_type(found: Entity) -> PatternType:
    return PatternType(found.pattern_type)


def _acl(pattern: ResourcePattern, found: Entity) -> Acl:
    return Acl(
        pattern, found.principal, found.host, AclOperation(found.operation), Permission(found.permission_type)
    )


def create_acls(cluster: Cluster, acls: Sequence[Acl]) -> list[RefusedError | None]:
    """Add ACLs; None for each that is there now. Adding one that exists succeeds.

    Raises UnsupportedApiError, ChannelError.
    """
    connection = cluster.any_connection()
    version = connection.version_of(ApiKey.CREATE_ACLS)
    creation = request_struct(ApiKey.CREATE_ACLS, version, "AclCreation")
    request = build(
        request_class(ApiKey.CREATE_ACLS, version),
        creations=tuple(
            build(
                creation,
                resource_type=int(each.pattern.resource_type),
                resource_name=each.pattern.name,
                resource_pattern_type=int(each.pattern.pattern_type),
                principal=each.principal,
                host=each.host,
                operation=int(each.operation),
                permission_type=int(each.permission),
            )
            for each in acls
        ),
    )
    return [
        None
        if result.error_code == ErrorCode.NONE
        else RefusedError(f"{acl.pattern} {acl}", result.error_code, message=result.error_message)
        for acl, result in zip(acls, connection.send(request).results, strict=True)
    ]


def delete_acls(cluster: Cluster, filters: Sequence[AclFilter]) -> list[Acl]:
    """Remove the ACLs that the filters match, and return them sorted.

    Raises RefusedError, UnsupportedApiError, ChannelError.
    """
    connection = cluster.any_connection()
    version = connection.version_of(ApiKey.DELETE_ACLS)
    kind = request_struct(ApiKey.DELETE_ACLS, version, "DeleteAclsFilter")
    request = build(
        request_class(ApiKey.DELETE_ACLS, version),
        filters=tuple(_filtering(kind, each) for each in filters),
    )
    removed: list[Acl] = []
    for result in connection.send(request).filter_results:
        for each in (result, *result.matching_acls):
            if each.error_code != ErrorCode.NONE:
                raise RefusedError("removal of ACLs", each.error_code, message=each.error_message)
        removed += [
            _acl(ResourcePattern(*_kind(each), _pattern_type(each)), each) for each in result.matching_acls
        ]
    return sorted(removed)
