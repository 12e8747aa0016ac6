"""All ACLs of a cluster as one immutable value, by the pattern of their resources.

Rules: Kafka's `AclAuthorizer.matchingAcls`; KIP-290. A name has the ACLs of three kinds of patterns: the
literal `*`, the name itself, and the prefixes of the name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from klog.protocol.acls import WILDCARD, Acl, AclResourceType, PatternType, ResourcePattern


class AclSet:
    """ACLs by pattern. A pattern without ACLs is left out."""

    __slots__ = ("_prefix_lengths", "by_pattern")

    def __init__(self, by_pattern: Mapping[ResourcePattern, frozenset[Acl]]) -> None:
        self.by_pattern = {pattern: acls for pattern, acls in by_pattern.items() if acls}
        lengths: dict[AclResourceType, set[int]] = {}
        for pattern in self.by_pattern:
            if pattern.pattern_type is PatternType.PREFIXED:
                lengths.setdefault(pattern.resource_type, set()).add(len(pattern.name))
        self._prefix_lengths = {kind: sorted(each) for kind, each in lengths.items()}

    def __iter__(self) -> Iterator[Acl]:
        for acls in self.by_pattern.values():
            yield from acls

    def of(self, pattern: ResourcePattern) -> frozenset[Acl]:
        """The ACLs of exactly one pattern."""
        return self.by_pattern.get(pattern, frozenset())

    def replaced(self, pattern: ResourcePattern, acls: Iterable[Acl]) -> AclSet:
        """The same with other ACLs for one pattern."""
        return AclSet({**self.by_pattern, pattern: frozenset(acls)})

    def applying(self, kind: AclResourceType, name: str) -> list[Acl]:
        """The ACLs of all patterns that include a resource, those of prefixes first."""
        patterns = [
            ResourcePattern(kind, name[:length], PatternType.PREFIXED)
            for length in self._prefix_lengths.get(kind, ())
            if 0 < length <= len(name)
        ]
        patterns += [ResourcePattern(kind, each, PatternType.LITERAL) for each in {WILDCARD, name}]
        return [acl for pattern in patterns for acl in self.by_pattern.get(pattern, ())]


NO_ACLS = AclSet({})


def by_pattern(acls: Iterable[Acl]) -> dict[ResourcePattern, frozenset[Acl]]:
    """ACLs grouped by their patterns."""
    found: dict[ResourcePattern, set[Acl]] = {}
    for acl in acls:
        found.setdefault(acl.pattern, set()).add(acl)
    return {pattern: frozenset(each) for pattern, each in found.items()}
