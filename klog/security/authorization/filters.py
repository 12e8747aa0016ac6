"""Which ACLs a filter means.

Rules: Kafka's `ResourcePatternFilter` and `AccessControlEntryFilter`; KIP-290. MATCH means all patterns that
include the name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from klog.protocol.acls import (
    WILDCARD,
    Acl,
    AclFilter,
    AclOperation,
    AclResourceType,
    PatternType,
    Permission,
    ResourcePattern,
)


def matches_pattern(wanted: AclFilter, pattern: ResourcePattern) -> bool:
    """Whether a filter means ACLs of a pattern."""
    if wanted.resource_type not in (AclResourceType.ANY, pattern.resource_type):
        return False
    if wanted.pattern_type not in (PatternType.ANY, PatternType.MATCH, pattern.pattern_type):
        return False
    if wanted.name is None or wanted.name == pattern.name:
        return True
    if wanted.pattern_type is not PatternType.MATCH:
        return False
    if pattern.pattern_type is PatternType.PREFIXED:
        return wanted.name.startswith(pattern.name)
    return pattern.name == WILDCARD


def matches_entry(wanted: AclFilter, acl: Acl) -> bool:
    """Whether a filter means who may do what, whatever the resource is."""
    return (
        wanted.principal in (None, acl.principal)
        and wanted.host in (None, acl.host)
        and wanted.operation in (AclOperation.ANY, acl.operation)
        and wanted.permission in (Permission.ANY, acl.permission)
    )


def matches(wanted: AclFilter, acl: Acl) -> bool:
    """Whether a filter means an ACL."""
    return matches_pattern(wanted, acl.pattern) and matches_entry(wanted, acl)


def named_patterns(filters: Iterable[AclFilter]) -> Iterator[ResourcePattern]:
    """The patterns that filters name exactly, which are looked at although no ACL of them is known."""
    for each in filters:
        if each.name is None or each.resource_type is AclResourceType.ANY:
            continue
        if each.pattern_type is PatternType.ANY:
            yield ResourcePattern(each.resource_type, each.name, PatternType.LITERAL)
            yield ResourcePattern(each.resource_type, each.name, PatternType.PREFIXED)
        elif each.pattern_type is not PatternType.MATCH:
            yield ResourcePattern(each.resource_type, each.name, each.pattern_type)
