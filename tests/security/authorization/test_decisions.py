"""Decisions by ACLs: Kafka's rules, and a plain reading of them for all ACLs together."""

from __future__ import annotations

from collections.abc import Collection

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.protocol.acls import (
    Acl,
    AclOperation,
    AclResourceType,
    PatternType,
    Permission,
    ResourcePattern,
)
from klog.security.authorization.acl_set import AclSet, by_pattern
from klog.security.authorization.decisions import Authorizer, Cause
from klog.security.principal import KafkaPrincipal
from tests import acl_strategies as some

TOPIC, GROUP = AclResourceType.TOPIC, AclResourceType.GROUP
READ, WRITE, DESCRIBE, ALL = (
    AclOperation.READ,
    AclOperation.WRITE,
    AclOperation.DESCRIBE,
    AclOperation.ALL,
)
ALICE, BOB = KafkaPrincipal("User", "alice"), KafkaPrincipal("User", "bob")
HOST = "127.0.0.1"


def acl(
    operation: AclOperation,
    name: str = "t",
    *,
    who: str = "User:alice",
    host: str = "*",
    deny: bool = False,
    prefixed: bool = False,
    kind: AclResourceType = TOPIC,
) -> Acl:
    pattern = ResourcePattern(kind, name, PatternType.PREFIXED if prefixed else PatternType.LITERAL)
    return Acl(pattern, who, host, operation, Permission.DENY if deny else Permission.ALLOW)


def authorizer(*acls: Acl, **options: object) -> Authorizer:
    return Authorizer(AclSet(by_pattern(acls)), **options)  # type: ignore[arg-type]


def allows(decider: Authorizer, operation: AclOperation, name: str = "t", host: str = HOST) -> bool:
    return decider.decide(ALICE, host, operation, TOPIC, name).allowed


def test_what_no_acl_allows_is_denied() -> None:
    assert not allows(authorizer(acl(WRITE)), READ)
    assert authorizer(acl(WRITE)).decide(ALICE, HOST, READ, TOPIC, "t").cause is Cause.NO_MATCH


@pytest.mark.parametrize("allowed", [True, False])
def test_a_config_decides_about_resources_without_acls(allowed: bool) -> None:
    decider = authorizer(acl(READ, who="User:bob"), allows_without_acls=allowed)
    assert allows(decider, READ, "other") is allowed
    # One ACL for anybody closes the resource to all others.
    assert not allows(decider, READ, "t")


def test_a_super_user_may_do_what_is_denied() -> None:
    decider = authorizer(acl(ALL, who="User:*", deny=True), super_users=frozenset((ALICE,)))
    assert decider.decide(ALICE, HOST, READ, TOPIC, "t").cause is Cause.SUPER_USER
    assert not decider.decide(BOB, HOST, READ, TOPIC, "t").allowed


def test_a_denial_wins_however_specific_the_permission_is() -> None:
    assert not allows(authorizer(acl(READ), acl(READ, "*", who="User:*", deny=True)), READ)
    assert not allows(authorizer(acl(READ), acl(ALL, "", prefixed=False), acl(READ, "t", deny=True)), READ)


@pytest.mark.parametrize(
    ("name", "prefixed", "covered"),
    [("tx", True, False), ("t", True, True), ("*", False, True), ("*", True, False), ("to", True, True)],
)
def test_patterns_cover_names(name: str, prefixed: bool, covered: bool) -> None:
    assert allows(authorizer(acl(READ, name, prefixed=prefixed)), READ, "topic") is covered


def test_a_prefixed_star_is_the_character() -> None:
    assert allows(authorizer(acl(READ, "*", prefixed=True)), READ, "*x")


@pytest.mark.parametrize("operation", [READ, WRITE, AclOperation.DELETE, AclOperation.ALTER])
def test_describe_is_implied_by_permissions_and_not_by_denials(operation: AclOperation) -> None:
    assert allows(authorizer(acl(operation)), DESCRIBE)
    assert allows(authorizer(acl(DESCRIBE), acl(operation, deny=True)), DESCRIBE)
    assert not allows(authorizer(acl(operation), acl(DESCRIBE, deny=True)), DESCRIBE)


def test_describe_configs_is_implied_by_alter_configs() -> None:
    assert allows(authorizer(acl(AclOperation.ALTER_CONFIGS)), AclOperation.DESCRIBE_CONFIGS)
    assert not allows(authorizer(acl(AclOperation.ALTER)), AclOperation.DESCRIBE_CONFIGS)


def test_hosts_are_compared_as_texts() -> None:
    decider = authorizer(acl(READ, host="10.0.0.1"))
    assert allows(decider, READ, host="10.0.0.1")
    assert not allows(decider, READ)


def test_types_of_resources_are_apart() -> None:
    assert not allows(authorizer(acl(READ, kind=GROUP), acl(WRITE)), READ)


def plain_decision(
    acls: Collection[Acl], operation: AclOperation, kind: AclResourceType, name: str, empty: bool
) -> bool:
    """Alice's right, by the rules read one after the other."""
    about = [
        each
        for each in acls
        if each.pattern.resource_type == kind
        and (
            name.startswith(each.pattern.name)
            if each.pattern.pattern_type == PatternType.PREFIXED
            else each.pattern.name in ("*", name)
        )
    ]
    if not about:
        return empty
    hers = [each for each in about if each.principal in ("User:alice", "User:*") and each.host in ("*", HOST)]
    implied = {
        DESCRIBE: {READ, WRITE, AclOperation.DELETE, AclOperation.ALTER},
        AclOperation.DESCRIBE_CONFIGS: {AclOperation.ALTER_CONFIGS},
    }.get(operation, set())
    denied = {each.operation for each in hers if each.permission == Permission.DENY}
    allowed = {each.operation for each in hers if each.permission == Permission.ALLOW}
    return not denied & {operation, ALL} and bool(allowed & {operation, ALL, *implied})


@given(
    st.lists(some.acls, max_size=8), some.operations, some.resource_types, some.resource_names, st.booleans()
)
def test_decisions_follow_the_rules(
    acls: list[Acl], operation: AclOperation, kind: AclResourceType, name: str, empty: bool
) -> None:
    decision = authorizer(*acls, allows_without_acls=empty).decide(ALICE, HOST, operation, kind, name)
    assert decision.allowed is plain_decision(acls, operation, kind, name, empty)
    if decision.acl is not None:
        assert (decision.acl.permission is Permission.ALLOW) is decision.allowed


# -- any resource of a type ----------------------------------------------------------------------------------


def allows_any(*acls: Acl, **options: object) -> bool:
    return authorizer(*acls, **options).decide_any(ALICE, HOST, WRITE, TOPIC)


def test_one_writable_pattern_is_enough() -> None:
    assert allows_any(acl(WRITE))
    assert allows_any(acl(ALL, "p", prefixed=True))
    assert not allows_any(acl(READ))
    assert not allows_any(acl(WRITE, kind=GROUP))
    assert not allows_any()


def test_denials_that_cover_the_whole_pattern_count() -> None:
    assert not allows_any(acl(WRITE), acl(WRITE, deny=True))
    assert not allows_any(acl(WRITE, "topic"), acl(WRITE, "to", deny=True, prefixed=True))
    assert allows_any(acl(WRITE, "to", prefixed=True), acl(WRITE, "topic", deny=True, prefixed=True))
    assert allows_any(acl(WRITE, "*"), acl(WRITE, "t", deny=True, prefixed=True))
    assert not allows_any(acl(WRITE, "*"), acl(WRITE, "*", deny=True))


def test_the_config_for_resources_without_acls_counts_unless_all_are_denied() -> None:
    assert allows_any(allows_without_acls=True)
    assert allows_any(acl(WRITE, deny=True), allows_without_acls=True)
    assert not allows_any(acl(WRITE, "*", deny=True), allows_without_acls=True)


@given(st.lists(some.acls, max_size=6), some.resource_names, some.operations)
def test_who_may_use_a_named_resource_may_use_any(
    acls: list[Acl], name: str, operation: AclOperation
) -> None:
    decider = authorizer(*acls)
    # What is implied does not count here.
    if operation not in (DESCRIBE, AclOperation.DESCRIBE_CONFIGS) and allows(decider, operation, name):
        assert decider.decide_any(ALICE, HOST, operation, TOPIC)
