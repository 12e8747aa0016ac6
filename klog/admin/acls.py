"""Makes ACLs and filters of what the options of `kafka-acls` say.

`--producer` and `--consumer` stand for the operations that such clients need.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from klog.formats.errors import UsageError
from klog.protocol.acls import (
    CLUSTER_NAME,
    WILDCARD,
    Acl,
    AclFilter,
    AclOperation,
    AclResourceType,
    PatternType,
    Permission,
    ResourcePattern,
)

_SPECIFIC: Final = (PatternType.LITERAL, PatternType.PREFIXED)
_PRODUCER_ON_TOPIC: Final = (AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.CREATE)
_PRODUCER_ON_ID: Final = (AclOperation.WRITE, AclOperation.DESCRIBE)
_CONSUMER_ON_TOPIC: Final = (AclOperation.READ, AclOperation.DESCRIBE)
_CONSUMER_ON_GROUP: Final = (AclOperation.READ,)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the options name. `resources` are types with names, of one pattern type."""

    resources: tuple[tuple[AclResourceType, str], ...]
    pattern_type: PatternType = PatternType.LITERAL
    allowed: tuple[str, ...] = ()
    denied: tuple[str, ...] = ()
    allow_hosts: tuple[str, ...] = ()
    deny_hosts: tuple[str, ...] = ()
    operations: tuple[AclOperation, ...] = (AclOperation.ALL,)
    producer: bool = False
    consumer: bool = False
    idempotent: bool = False

    def names(self, kind: AclResourceType) -> list[str]:
        """The names of a type."""
        return [name for each, name in self.resources if each is kind]

    def check(self) -> None:
        """Raises UsageError if `--producer` or `--consumer` has not the resources that it needs."""
        topics, groups = self.names(AclResourceType.TOPIC), self.names(AclResourceType.GROUP)
        others = {kind for kind, _ in self.resources} & {
            AclResourceType.CLUSTER,
            AclResourceType.TRANSACTIONAL_ID,
        }
        if self.producer and not topics:
            raise UsageError("With --producer you must specify a --topic")
        if self.idempotent and not self.producer:
            raise UsageError("The --idempotent option is only available if --producer is set")
        if self.consumer and not (topics and groups and (self.producer or not others)):
            raise UsageError(
                "With --consumer you must specify a --topic and a --group and no --cluster or "
                "--transactional-id option should be specified"
            )


def acls_of(wanted: Wanted) -> dict[ResourcePattern, list[Acl]]:
    """The ACLs to add, by the resources that they are about. Raises UsageError."""
    wanted.check()
    if not wanted.resources:
        raise UsageError("nothing says for which resources", cure="--topic, --group, --cluster, ...")
    if wanted.pattern_type not in _SPECIFIC:
        raise UsageError(
            f"ACLs cannot be added for --resource-pattern-type {wanted.pattern_type.name.lower()}"
        )
    if not wanted.allowed and not wanted.denied:
        raise UsageError("nothing says for whom", cure="--allow-principal User:NAME or --deny-principal")
    for principal in (*wanted.allowed, *wanted.denied):
        if principal.find(":") < 1:
            raise UsageError(f"{principal!r} is no principal", cure=f"User:{principal.strip(':')}")
    found: dict[ResourcePattern, list[Acl]] = {}
    for kind, name, operations in _operations(wanted):
        pattern = ResourcePattern(kind, name, wanted.pattern_type)
        known = found.setdefault(pattern, [])
        known += [acl for acl in _entries(wanted, pattern, operations) if acl not in known]
    return found


def _operations(wanted: Wanted) -> Iterator[tuple[AclResourceType, str, Sequence[AclOperation]]]:
    """The operations on each resource."""
    if not wanted.producer and not wanted.consumer:
        for kind, name in wanted.resources:
            yield kind, name, wanted.operations
    if wanted.producer:
        for name in wanted.names(AclResourceType.TOPIC):
            yield AclResourceType.TOPIC, name, _PRODUCER_ON_TOPIC
        for name in wanted.names(AclResourceType.TRANSACTIONAL_ID):
            yield AclResourceType.TRANSACTIONAL_ID, name, _PRODUCER_ON_ID
        if wanted.idempotent:
            yield AclResourceType.CLUSTER, CLUSTER_NAME, (AclOperation.IDEMPOTENT_WRITE,)
    if wanted.consumer:
        for name in wanted.names(AclResourceType.TOPIC):
            yield AclResourceType.TOPIC, name, _CONSUMER_ON_TOPIC
        for name in wanted.names(AclResourceType.GROUP):
            yield AclResourceType.GROUP, name, _CONSUMER_ON_GROUP


def _entries(wanted: Wanted, pattern: ResourcePattern, operations: Iterable[AclOperation]) -> Iterator[Acl]:
    sides = (
        (wanted.allowed, wanted.allow_hosts, Permission.ALLOW),
        (wanted.denied, wanted.deny_hosts, Permission.DENY),
    )
    for operation in operations:
        for principals, hosts, permission in sides:
            for principal in principals:
                for host in hosts or (WILDCARD,):
                    yield Acl(pattern, principal, host, operation, permission)


def filters_to_remove(wanted: Wanted) -> list[AclFilter]:
    """The filters of what is removed: all ACLs of resources if no principal is named. Raises UsageError."""
    wanted.check()
    if not wanted.resources:
        raise UsageError("nothing says from which resources", cure="--topic, --group, --cluster, ...")
    found = []
    for kind, name, operations in _operations(wanted):
        pattern = ResourcePattern(kind, name, wanted.pattern_type)
        if not wanted.allowed and not wanted.denied:
            found.append(AclFilter(kind, name, wanted.pattern_type))
        found += [
            AclFilter(kind, name, wanted.pattern_type, acl.principal, acl.host, acl.operation, acl.permission)
            for acl in _entries(wanted, pattern, operations)
        ]
    return list(dict.fromkeys(found))


def filters_to_list(wanted: Wanted, principals: Iterable[str]) -> list[AclFilter]:
    """The filters of what is listed: all ACLs if nothing is named."""
    resources: list[tuple[AclResourceType, str | None, PatternType]] = [
        (kind, name, wanted.pattern_type) for kind, name in wanted.resources
    ]
    named: tuple[str | None, ...] = tuple(principals)
    return [
        AclFilter(kind, name, pattern_type, principal)
        for kind, name, pattern_type in resources or [(AclResourceType.ANY, None, PatternType.ANY)]
        for principal in named or (None,)
    ]


def by_pattern(acls: Iterable[Acl]) -> Mapping[ResourcePattern, list[Acl]]:
    """The ACLs of each pattern, each once."""
    found: dict[ResourcePattern, list[Acl]] = {}
    for acl in dict.fromkeys(acls):
        found.setdefault(acl.pattern, []).append(acl)
    return found
