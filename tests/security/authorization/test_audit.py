"""Lines of the audit log, and hosts, as Kafka writes them."""

from __future__ import annotations

import pytest

from klog.protocol.acls import Acl, AclOperation, AclResourceType, PatternType, Permission, ResourcePattern
from klog.security.authorization.audit import audit_line, reason_line, resource_text
from klog.security.authorization.decisions import Cause, Decision
from klog.security.authorization.hosts import host_of
from klog.security.principal import KafkaPrincipal

ALICE = KafkaPrincipal("User", "alice")
RESOURCE = resource_text(AclResourceType.TRANSACTIONAL_ID, "t1")


def test_a_line_is_kafkas() -> None:
    line = audit_line(
        ALICE, "127.0.0.1", AclOperation.DESCRIBE_CONFIGS, RESOURCE, "DescribeConfigs", 2, allowed=False
    )
    assert line == (
        "Principal = User:alice is Denied Operation = DescribeConfigs from host = 127.0.0.1 "
        "on resource = TransactionalId:LITERAL:t1 for request = DescribeConfigs with resourceRefCount = 2"
    )


def test_reasons_name_what_decided() -> None:
    def reason(decision: Decision) -> str | None:
        return reason_line(decision, ALICE, "::1", AclOperation.READ, RESOURCE)

    pattern = ResourcePattern(AclResourceType.TOPIC, "t", PatternType.PREFIXED)
    acl = Acl(pattern, "User:*", "*", AclOperation.ALL, Permission.DENY)
    assert "DENY based on acl = (principal=User:*" in str(reason(Decision(False, Cause.ACL, acl)))
    assert "super user" in str(reason(Decision(True, Cause.SUPER_USER)))
    assert str(reason(Decision(True, Cause.NO_ACLS))).endswith("authorized = true")
    assert reason(Decision(False, Cause.NO_MATCH)) is None


@pytest.mark.parametrize(
    ("address", "host"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::1", "0:0:0:0:0:0:0:1"),
        ("2001:db8::a0", "2001:db8:0:0:0:0:0:a0"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("fe80::1%eth0", "fe80:0:0:0:0:0:0:1%eth0"),
        ("no:address", "no:address"),
    ],
)
def test_hosts_are_written_as_java_writes_them(address: str, host: str) -> None:
    assert host_of(address) == host
