"""Hypothesis strategies of ACLs. Names, principals and hosts are few, so that they meet."""

from __future__ import annotations

from hypothesis import strategies as st

from klog.protocol.acls import (
    Acl,
    AclFilter,
    AclOperation,
    AclResourceType,
    PatternType,
    Permission,
    ResourcePattern,
)
from klog.security.principal import KafkaPrincipal

hosts = st.sampled_from(["127.0.0.1", "10.0.0.1"])
principals = st.sampled_from([KafkaPrincipal("User", "alice"), KafkaPrincipal("User", "bob")])
resource_names = st.sampled_from(["a", "ab", "abc", "b", "*"])
resource_types = st.sampled_from([AclResourceType.TOPIC, AclResourceType.GROUP])
operations = st.sampled_from([each for each in AclOperation if each is not AclOperation.ANY])
permissions = st.sampled_from([Permission.ALLOW, Permission.DENY])
patterns = st.builds(
    ResourcePattern,
    resource_types,
    resource_names,
    st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED]),
)
acls = st.builds(
    Acl,
    patterns,
    principals.map(str) | st.just("User:*"),
    hosts | st.just("*"),
    st.sampled_from([AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE]) | operations,
    permissions,
)
filters = st.builds(
    AclFilter,
    resource_types | st.just(AclResourceType.ANY),
    resource_names | st.none(),
    st.sampled_from(PatternType),
    principals.map(str) | st.none(),
    hosts | st.none(),
    operations | st.just(AclOperation.ANY),
    permissions | st.just(Permission.ANY),
)
