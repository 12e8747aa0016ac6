"""What clients may do: decisions that follow every change of the ACLs, and the audit log."""

from __future__ import annotations

import logging

import pytest

from klog.protocol.acls import (
    CLUSTER_NAME,
    Acl,
    AclOperation,
    AclResourceType,
    PatternType,
    Permission,
    ResourcePattern,
)
from klog.protocol.apis import ApiKey
from klog.security.authorization.acl_set import AclSet, by_pattern
from klog.security.authorization.audit import LOGGER, TRACE
from klog.security.principal import KafkaPrincipal
from klog.server.handlers.access import _REMEMBERED_MAX, Access
from klog.server.handlers.configs.loggers import Loggers
from tests.server.handlers.parts import FakeRequest

TOPIC, CLUSTER = AclResourceType.TOPIC, AclResourceType.CLUSTER
READ, WRITE, DESCRIBE = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE
ANONYMOUS = "User:ANONYMOUS"


def allow(operation: AclOperation, kind=TOPIC, name="t", host="*", permission=Permission.ALLOW) -> Acl:
    return Acl(ResourcePattern(kind, name, PatternType.LITERAL), ANONYMOUS, host, operation, permission)


class Acls:
    """ACLs that a test changes."""

    def __init__(self, *acls: Acl) -> None:
        self.set(*acls)

    def set(self, *acls: Acl) -> None:
        self.acls = AclSet(by_pattern(acls))


def request(**fields) -> FakeRequest:
    return FakeRequest(int(ApiKey.METADATA), 9, memoryview(b""), **fields)


def test_a_change_of_acls_is_seen_at_once() -> None:
    acls = Acls(allow(READ))
    access, client = Access(acls), request()
    right = access.right(READ, TOPIC)
    assert right.allows_silently(client, "t")
    acls.set()
    assert not right.allows_silently(client, "t")
    assert not access.allows(client, READ, TOPIC, "t")
    acls.set(allow(READ))
    assert right.allows_silently(client, "t")


def test_clients_are_apart_by_principal_and_host() -> None:
    right = Access(Acls(allow(READ, host="10.0.0.1"))).right(READ, TOPIC)
    assert right.allows(request(peer_address="10.0.0.1"), "t")
    assert not right.allows(request(peer_address="10.0.0.2"), "t")
    other = request(peer_address="10.0.0.1", principal=KafkaPrincipal("User", "bob"))
    assert not right.allows(other, "t")


def test_decisions_about_names_that_clients_invent_do_not_fill_the_memory() -> None:
    right, client = Access(Acls()).right(READ, TOPIC), request()
    for number in range(_REMEMBERED_MAX + 10):
        right.allows(client, f"t{number}")
    assert len(right._state.known) <= _REMEMBERED_MAX
    right.allows(client, "x" * 10_000)
    assert all(len(key[-1]) < 10_000 for key in right._state.known)


def test_operations_are_told_as_bits() -> None:
    access = Access(Acls(allow(READ), allow(AclOperation.ALTER, CLUSTER, CLUSTER_NAME)))
    assert access.operations(request(), TOPIC, "t") == 1 << READ | 1 << DESCRIBE
    assert access.cluster_operations(request()) == 1 << AclOperation.ALTER | 1 << DESCRIBE
    assert Access(Acls()).cluster_operations(request()) == 0


# -- the audit log -------------------------------------------------------------------------------------------


def logged(caplog: pytest.LogCaptureFixture) -> list[tuple[int, str]]:
    return [(each.levelno, each.getMessage()) for each in caplog.records if each.name == LOGGER]


def test_what_is_denied_is_a_line_at_info(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, LOGGER)
    access = Access(Acls(allow(READ)))
    assert access.allowed(request(), WRITE, TOPIC, ["t", "t"]) == set()
    assert access.allowed(request(), READ, TOPIC, ["t"]) == {"t"}
    line = (
        "Principal = User:ANONYMOUS is Denied Operation = Write from host = 127.0.0.1 "
        "on resource = Topic:LITERAL:t for request = Metadata with resourceRefCount = 2"
    )
    assert logged(caplog) == [(logging.INFO, line)]


def test_what_only_finds_out_what_may_be_seen_is_no_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, LOGGER)
    access = Access(Acls(allow(READ)))
    access.allowed(request(), WRITE, TOPIC, ["t"], logs_denial=False)
    access.operations(request(), TOPIC, "t")
    access.right(WRITE, TOPIC).allows_silently(request(), "t")
    assert logged(caplog) == []
    caplog.set_level(TRACE, LOGGER)
    access.allowed(request(), WRITE, TOPIC, ["t"], logs_denial=False)
    assert [level for level, _ in logged(caplog)] == [TRACE]


def test_what_is_allowed_is_a_line_at_debug_with_its_reason(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, LOGGER)
    access = Access(Acls(allow(READ)))
    # Nothing is answered without its line: the fast paths must not decide.
    assert not access.right(READ, TOPIC).allows_silently(request(), "t")
    assert access.allows(request(), READ, TOPIC, "t")
    reason, line = logged(caplog)
    assert reason[0] == line[0] == logging.DEBUG
    assert "ALLOW based on acl" in reason[1]
    assert "is Allowed Operation = Read" in line[1]


def test_any_resource_is_logged_without_a_name(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, LOGGER)
    assert Access(Acls(allow(WRITE))).allows_any(request(), WRITE, TOPIC)
    assert not Access(Acls()).allows_any(request(), WRITE, TOPIC)
    ((_, line),) = logged(caplog)
    assert line.endswith("on resource = Topic:UNKNOWN:NONE for request = Metadata with resourceRefCount = 0")


def test_the_level_of_the_audit_log_can_be_set_as_in_kafka() -> None:
    loggers = Loggers()
    loggers.check(LOGGER, "DEBUG")
    loggers.set_level(LOGGER, "DEBUG")
    assert loggers.levels()[LOGGER] == "DEBUG"
    assert logging.getLogger(LOGGER).isEnabledFor(logging.DEBUG)
