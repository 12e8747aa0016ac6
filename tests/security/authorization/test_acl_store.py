"""ACLs in the metadata tree: Kafka's nodes, and changes that all brokers see."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.metadata.errors import InvalidZnodeError
from klog.metadata.local import SharedTree
from klog.protocol.acls import (
    Acl,
    AclFilter,
    AclOperation,
    AclResourceType,
    PatternType,
    Permission,
    ResourcePattern,
)
from klog.security.authorization import acl_znodes
from klog.security.authorization.acl_store import AclConflictError, AclStore
from klog.security.authorization.filters import matches
from tests import acl_strategies as some
from tests.metadata.conftest import call_at_once
from tests.metadata.memory_tree import MemorySession, NoJournal

T1 = ResourcePattern(AclResourceType.TOPIC, "t1", PatternType.LITERAL)
PRE = ResourcePattern(AclResourceType.TRANSACTIONAL_ID, "pre", PatternType.PREFIXED)
READ_T1 = Acl(T1, "User:alice", "*", AclOperation.READ, Permission.ALLOW)
ALTER_PRE = Acl(PRE, "User:*", "10.0.0.1", AclOperation.ALTER_CONFIGS, Permission.DENY)

OpenSession = Callable[[], MemorySession]


def sessions() -> OpenSession:
    shared = SharedTree(NoJournal(), itertools.count(1_000).__next__)
    return lambda: MemorySession(shared, call_at_once)


@pytest.fixture
def session() -> OpenSession:
    return sessions()


def opened(session: MemorySession) -> AclStore:
    store = AclStore(session, lambda: 0)
    store.follow()
    return store


# -- Kafka's bytes -------------------------------------------------------------------------------------------


def test_nodes_of_acls_are_kafkas(session: OpenSession) -> None:
    tree = session()
    opened(tree).add([READ_T1, ALTER_PRE])
    assert tree.get("/kafka-acl/Topic/t1").data == (
        b'{"version":1,"acls":[{"principal":"User:alice","permissionType":"Allow","host":"*",'
        b'"operation":"Read"}]}'
    )
    assert tree.get("/kafka-acl-extended/prefixed/TransactionalId/pre").data == (
        b'{"version":1,"acls":[{"principal":"User:*","permissionType":"Deny","host":"10.0.0.1",'
        b'"operation":"AlterConfigs"}]}'
    )
    assert tree.get("/kafka-acl-changes/acl_changes_0000000000").data == b"TOPIC:t1"
    assert tree.get("/kafka-acl-extended-changes/acl_changes_0000000000").data == (
        b'{"version":1,"resourceType":"TRANSACTIONAL_ID","name":"pre","patternType":"PREFIXED"}'
    )
    assert tree.children("/kafka-acl") == [
        "Cluster",
        "DelegationToken",
        "Group",
        "Topic",
        "TransactionalId",
        "User",
    ]


@given(st.sets(some.acls, max_size=5), some.patterns)
def test_acls_are_read_as_they_were_written(acls: set[Acl], pattern: ResourcePattern) -> None:
    wanted = frozenset(acl._replace(pattern=pattern) for acl in acls)
    assert acl_znodes.decode_acls(pattern, acl_znodes.encode_acls(wanted)) == wanted


@given(some.patterns)
def test_notifications_name_their_pattern(pattern: ResourcePattern) -> None:
    path = acl_znodes.change_prefix(pattern.pattern_type) + "0000000001"
    assert acl_znodes.decode_change(path, acl_znodes.encode_change(pattern)) == pattern


@pytest.mark.parametrize(
    "data",
    [
        b"{",
        b'{"version":2,"acls":[]}',
        b'{"version":1,"acls":[1]}',
        b'{"version":1,"acls":[{"principal":"alice","permissionType":"Allow","host":"*","operation":"Read"}]}',
        b'{"version":1,"acls":[{"principal":"User:a","permissionType":"Allow","host":"*","operation":"Fly"}]}',
    ],
)
def test_a_node_that_kafka_would_not_write_is_named(data: bytes) -> None:
    with pytest.raises(InvalidZnodeError, match="/kafka-acl/Topic/t1"):
        acl_znodes.decode_acls(T1, data)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["version", "acls", "principal", "host", "operation", "permissionType", "name"]),
            inner,
            max_size=5,
        )
    ),
    max_leaves=12,
)
_NODES = st.binary(max_size=60) | _JSON.map(lambda value: json.dumps(value).encode())


@given(_NODES)
def test_whatever_a_node_holds_is_read_or_named(data: bytes) -> None:
    for read in (
        lambda: acl_znodes.decode_acls(T1, data),
        lambda: acl_znodes.decode_change("/kafka-acl-changes/acl_changes_1", data),
        lambda: acl_znodes.decode_change("/kafka-acl-extended-changes/acl_changes_1", data),
    ):
        with suppress(InvalidZnodeError):
            read()


def test_a_broker_does_not_start_with_acls_that_it_cannot_read(session: OpenSession) -> None:
    tree = session()
    tree.create("/kafka-acl/Topic/t1", b"{", make_parents=True)
    with pytest.raises(InvalidZnodeError):
        opened(tree)


# -- changes -------------------------------------------------------------------------------------------------


def test_every_broker_sees_a_change(session: OpenSession) -> None:
    one, other = opened(session()), opened(session())
    assert one.add([READ_T1, ALTER_PRE]) == {T1: None, PRE: None}
    assert set(one.acls) == set(other.acls) == {READ_T1, ALTER_PRE}
    before = one.acls
    assert other.remove([AclFilter(name="t1")]) == [{READ_T1: None}]
    assert set(one.acls) == {ALTER_PRE}
    assert one.acls is not before
    # Also a broker that starts later.
    assert set(opened(session()).acls) == {ALTER_PRE}


def test_the_node_goes_with_the_last_acl(session: OpenSession) -> None:
    tree = session()
    store = opened(tree)
    store.add([READ_T1])
    store.remove([AclFilter()])
    assert tree.exists("/kafka-acl/Topic/t1") is None


def test_adding_what_exists_changes_nothing(session: OpenSession) -> None:
    tree = session()
    store = opened(tree)
    store.add([READ_T1])
    assert store.add([READ_T1]) == {T1: None}
    assert len(tree.children("/kafka-acl-changes")) == 1


def test_an_acl_belongs_to_the_first_filter_that_means_it(session: OpenSession) -> None:
    store = opened(session())
    store.add([READ_T1])
    assert store.remove([AclFilter(name="x"), AclFilter(name="t1"), AclFilter()]) == [{}, {READ_T1: None}, {}]


def test_an_exact_filter_finds_what_this_broker_has_not_heard_of_yet(session: OpenSession) -> None:
    deaf = AclStore(session(), lambda: 0)
    opened(session()).add([READ_T1])
    assert deaf.remove([AclFilter(AclResourceType.TOPIC, "t1", PatternType.MATCH)]) == [{}]
    assert deaf.remove([AclFilter(AclResourceType.TOPIC, "t1", PatternType.LITERAL)]) == [{READ_T1: None}]


def test_a_write_that_meets_another_one_is_done_again(session: OpenSession) -> None:
    other = opened(session())
    extra = READ_T1._replace(principal="User:bob")
    tree = session()

    store = opened(tree)
    original = tree.get_many
    interruptions = [other]

    def get_many(paths):
        nodes = original(paths)
        if interruptions:
            interruptions.pop().add([extra])
        return nodes

    tree.get_many = get_many  # type: ignore[method-assign]
    assert store.add([READ_T1]) == {T1: None}
    assert set(store.acls) == {READ_T1, extra}


def test_a_write_that_always_meets_another_one_fails(session: OpenSession) -> None:
    tree = session()
    pauses: list[None] = []
    store = AclStore(tree, lambda: 0, lambda: pauses.append(None))
    store.follow()
    tree.create("/kafka-acl/Topic/t1", b"")
    original = tree.get_many

    def get_many(paths):
        nodes = original(paths)
        tree.set("/kafka-acl/Topic/t1", b"")
        return nodes

    tree.get_many = get_many  # type: ignore[method-assign]
    assert isinstance(store.add([READ_T1])[T1], AclConflictError)
    assert len(pauses) == 10


def test_an_invalid_notification_does_not_stop_the_next(session: OpenSession) -> None:
    tree = session()
    store, other = opened(tree), opened(session())
    for note in (b"", b"SHOE:x", b"TOPIC:a/b"):
        tree.create("/kafka-acl-changes/acl_changes_", note, sequential=True)
    other.add([READ_T1])
    assert set(store.acls) == {READ_T1}


def test_a_node_that_has_become_unreadable_leaves_the_acls_as_they_were(session: OpenSession) -> None:
    tree = session()
    store = opened(tree)
    store.add([READ_T1])
    tree.set("/kafka-acl/Topic/t1", b"{")
    tree.create("/kafka-acl-changes/acl_changes_", b"TOPIC:t1", sequential=True)
    assert set(store.acls) == {READ_T1}


def test_a_new_session_reads_what_was_changed_meanwhile(session: OpenSession) -> None:
    tree = session()
    store, other = opened(tree), opened(session())
    tree.expire()
    other.add([READ_T1])
    assert not set(store.acls)
    store.follow()
    assert set(store.acls) == {READ_T1}
    other.add([ALTER_PRE])
    assert set(store.acls) == {READ_T1, ALTER_PRE}


@given(st.lists(st.sets(some.acls, max_size=4) | some.filters, max_size=8))
def test_a_history_of_changes_leaves_what_a_plain_set_has(changes: list) -> None:
    open_session = sessions()
    stores = [opened(open_session()) for _ in range(2)]
    expected: set[Acl] = set()
    for number, change in enumerate(changes):
        store = stores[number % 2]
        if isinstance(change, AclFilter):
            gone = {acl for acl in expected if matches(change, acl)}
            assert store.remove([change])[0].keys() == gone
            expected -= gone
        else:
            assert not any(store.add(change).values())
            expected |= change
        assert all(set(each.acls) == expected for each in stores)
