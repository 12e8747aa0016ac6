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
from klog.client.requests import accepted, ask, refusal
from klog.protocol.apis import ApiKey
from klog.protocol.entity_fields import Entity, Value


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
    answer = accepted(ask(cluster.any_connection(), ApiKey.DESCRIBE_ACLS, **_filter(wanted)), "ACLs")
    return sorted(_acl(resource, each) for resource in answer.resources for each in resource.acls)


def _filter(wanted: AclFilter) -> dict[str, Value]:
    return {
        "resource_type_filter": wanted.resource_type,
        "resource_name_filter": wanted.name,
        "pattern_type_filter": wanted.pattern_type,
        "principal_filter": wanted.principal,
        "host_filter": wanted.host,
        "operation": wanted.operation,
        "permission_type": wanted.permission,
    }


def _acl(resource: Entity, found: Entity) -> Acl:
    pattern = ResourcePattern(
        AclResourceType(resource.resource_type),
        str(resource.resource_name),
        PatternType(resource.pattern_type),
    )
    operation, permission = AclOperation(found.operation), Permission(found.permission_type)
    return Acl(pattern, found.principal, found.host, operation, permission)


def create_acls(cluster: Cluster, acls: Sequence[Acl]) -> list[RefusedError | None]:
    """Add ACLs; None for each that is there now. Adding one that exists succeeds.

    Raises UnsupportedApiError, ChannelError.
    """
    creations = [
        {
            "resource_type": each.pattern.resource_type,
            "resource_name": each.pattern.name,
            "resource_pattern_type": each.pattern.pattern_type,
            "principal": each.principal,
            "host": each.host,
            "operation": each.operation,
            "permission_type": each.permission,
        }
        for each in acls
    ]
    answer = ask(cluster.any_connection(), ApiKey.CREATE_ACLS, creations=creations)
    return [refusal(result, f"{acl.pattern} {acl}") for acl, result in zip(acls, answer.results, strict=True)]


def delete_acls(cluster: Cluster, filters: Sequence[AclFilter]) -> list[Acl]:
    """Remove the ACLs that the filters match, and return them sorted.

    Raises RefusedError, UnsupportedApiError, ChannelError.
    """
    wanted = map(_filter, filters)
    removed: list[Acl] = []
    for result in ask(cluster.any_connection(), ApiKey.DELETE_ACLS, filters=wanted).filter_results:
        for each in (result, *result.matching_acls):
            accepted(each, "removal of ACLs")
        removed += [_acl(each, each) for each in result.matching_acls]
    return sorted(removed)
