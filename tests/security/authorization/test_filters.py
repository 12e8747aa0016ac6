"""Filters of ACLs."""

from __future__ import annotations

import pytest
from hypothesis import given

from klog.protocol.acls import (
    Acl,
    AclFilter,
    AclOperation,
    AclResourceType,
    PatternType,
    Permission,
    ResourcePattern,
)
from klog.security.authorization.filters import matches, matches_pattern, named_patterns
from tests import acl_strategies as some

TOPIC = AclResourceType.TOPIC
LITERAL, PREFIXED, ANY, MATCH = (
    PatternType.LITERAL,
    PatternType.PREFIXED,
    PatternType.ANY,
    PatternType.MATCH,
)


@pytest.mark.parametrize(
    ("pattern_type", "meant"),
    [
        (LITERAL, {("abc", LITERAL)}),
        (PREFIXED, {("abc", PREFIXED)}),
        (ANY, {("abc", LITERAL), ("abc", PREFIXED)}),
        (MATCH, {("abc", LITERAL), ("abc", PREFIXED), ("*", LITERAL), ("ab", PREFIXED)}),
    ],
)
def test_pattern_types_of_a_filter_with_a_name(pattern_type: PatternType, meant: set) -> None:
    known = [(name, kind) for name in ("ab", "abc", "abcd", "*") for kind in (LITERAL, PREFIXED)]
    wanted = AclFilter(TOPIC, "abc", pattern_type)
    assert {each for each in known if matches_pattern(wanted, ResourcePattern(TOPIC, *each))} == meant


@given(some.acls)
def test_the_empty_filter_means_everything(acl: Acl) -> None:
    assert matches(AclFilter(), acl)


@given(some.acls, some.acls)
def test_a_filter_of_one_acl_means_that_one_only(one: Acl, other: Acl) -> None:
    wanted = AclFilter(*one.pattern, *one[1:])
    assert matches(wanted, one)
    assert matches(wanted, other) is (one == other)


def test_all_does_not_stand_for_other_operations() -> None:
    acl = Acl(ResourcePattern(TOPIC, "t", LITERAL), "User:a", "*", AclOperation.ALL, Permission.ALLOW)
    assert not matches(AclFilter(operation=AclOperation.READ), acl)


@given(some.filters, some.patterns)
def test_a_pattern_that_a_filter_names_exactly_is_one_that_it_means(
    wanted: AclFilter, pattern: ResourcePattern
) -> None:
    if pattern in set(named_patterns([wanted])):
        assert matches_pattern(wanted, pattern)
