"""Asks for access control lists (ACLs), adds and removes them (KIP-140, KIP-290 patterns, KIP-373 users).

Any broker answers. A broker without an authoriser refuses with SECURITY_DISABLED.
"""

from __future__ import annotations

from collections.abc import Sequence

from klog.client.cluster import Cluster
from klog.client.errors import RefusedError
from klog.client.requests import accepted, ask, refusal
from klog.protocol.acls import (
    Acl,
    AclFilter,
    AclOperation,
    AclResourceType,
    PatternType,
    Permission,
    ResourcePattern,
)
from klog.protocol.apis import ApiKey
from klog.protocol.entity_fields import Entity, Value


def describe_acls(cluster: Cluster, wanted: AclFilter) -> list[Acl]:
    """The ACLs that the filter matches, sorted. Raises RefusedError, UnsupportedApiError, ChannelError."""
    answer = ask(cluster.any_connection(), ApiKey.DESCRIBE_ACLS, **_filter(wanted))
    accepted(answer, "ACLs", "Describe")
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
