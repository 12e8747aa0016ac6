"""The nodes of ACLs in the metadata tree: their paths and what they hold, byte for byte as Kafka 3.9.

Rules: Kafka's `ZkData` (ZkAclStore, ZkAclChangeStore) and `AclEntry`. Literal patterns are below
`/kafka-acl`, prefixed ones below `/kafka-acl-extended/prefixed`, and each kind has its own notifications.
Names are written as `AlterConfigs` in the nodes of ACLs, and as `ALTER_CONFIGS` in notifications.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import IntEnum
from typing import Final, TypeVar

from klog.metadata.errors import InvalidZnodeError
from klog.metadata.json_fields import Fields, encode_json
from klog.protocol.acls import (
    Acl,
    AclOperation,
    AclResourceType,
    PatternType,
    Permission,
    ResourcePattern,
)

_VERSION: Final = 1
_ROOTS: Final = {PatternType.LITERAL: "/kafka-acl", PatternType.PREFIXED: "/kafka-acl-extended/prefixed"}
CHANGES: Final = {
    PatternType.LITERAL: "/kafka-acl-changes",
    PatternType.PREFIXED: "/kafka-acl-extended-changes",
}
PATTERN_TYPES: Final = tuple(_ROOTS)
RESOURCE_TYPES: Final = tuple(kind for kind in AclResourceType if kind is not AclResourceType.ANY)

# ZooKeeper's `PathUtils.validatePath`. Java writes characters above U+FFFF as two of those from U+D800 on.
_REFUSED_BY_ZOOKEEPER: Final = re.compile(
    "[/\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff\U00010000-\U0010ffff]"
)

_Name = TypeVar("_Name", bound=IntEnum)


def name_of(value: IntEnum) -> str:
    """`ALTER_CONFIGS` as Kafka writes it in texts: `AlterConfigs`."""
    return "".join(word.capitalize() for word in value.name.split("_"))


def type_path(pattern_type: PatternType, kind: AclResourceType) -> str:
    """The node above the patterns of a type."""
    return f"{_ROOTS[pattern_type]}/{name_of(kind)}"


def pattern_path(pattern: ResourcePattern) -> str:
    """The node with the ACLs of a pattern, whose name has no slash."""
    return f"{type_path(pattern.pattern_type, pattern.resource_type)}/{pattern.name}"


def change_prefix(pattern_type: PatternType) -> str:
    """The path of a notification, without its number."""
    return f"{CHANGES[pattern_type]}/acl_changes_"


PERSISTENT: Final = (
    *(type_path(pattern_type, kind) for pattern_type in PATTERN_TYPES for kind in RESOURCE_TYPES),
    *CHANGES.values(),
)
"""The nodes that an authoriser makes at its start if they are missing."""


def _named(kind: type[_Name], text: str, fields: Fields) -> _Name:
    """The value of a name in either form."""
    plain = text.replace("_", "").upper()
    for value in kind:
        if value.name.replace("_", "") == plain:
            return value
    raise fields.invalid(f"names an unknown {kind.__name__}: {text[:100]!r}")


def encode_acls(acls: Iterable[Acl]) -> bytes:
    """The ACLs of one pattern."""
    entries = [
        {
            "principal": acl.principal,
            "permissionType": name_of(acl.permission),
            "host": acl.host,
            "operation": name_of(acl.operation),
        }
        for acl in sorted(acls)
    ]
    return encode_json({"version": _VERSION, "acls": entries})


def decode_acls(pattern: ResourcePattern, data: bytes | None) -> frozenset[Acl]:
    """The ACLs of one pattern. Raises `InvalidZnodeError`."""
    path = pattern_path(pattern)
    if not data:
        return frozenset()
    fields = Fields(data, path)
    if fields.integer("version") != _VERSION:
        raise fields.invalid(f"has another version than {_VERSION}")
    return frozenset(_acl(pattern, Fields(encode_json(entry), path)) for entry in fields.items("acls"))


def _acl(pattern: ResourcePattern, fields: Fields) -> Acl:
    principal = fields.text("principal")
    if not is_principal(principal):
        raise fields.invalid(f"has a principal without a type: {principal[:100]!r}")
    return Acl(
        pattern,
        principal,
        fields.text("host"),
        _named(AclOperation, fields.text("operation"), fields),
        _named(Permission, fields.text("permissionType"), fields),
    )


def is_principal(text: str) -> bool:
    """Whether a text is `Type:name`."""
    return ":" in text


def is_node_name(name: str) -> bool:
    """Whether a pattern of this name can have a node: names are not escaped, and ZooKeeper refuses some."""
    return name not in ("", ".", "..") and _REFUSED_BY_ZOOKEEPER.search(name) is None


def encode_change(pattern: ResourcePattern) -> bytes:
    """The notification of a change."""
    kind, name, pattern_type = pattern
    if pattern_type is PatternType.LITERAL:
        return f"{kind.name}:{name}".encode()
    return encode_json(
        {
            "version": _VERSION,
            "resourceType": kind.name,
            "name": name,
            "patternType": pattern_type.name,
        }
    )


def decode_change(path: str, data: bytes | None) -> ResourcePattern:
    """What a notification is about; `path` is its node. Raises `InvalidZnodeError`."""
    if path.startswith(f"{CHANGES[PatternType.LITERAL]}/"):
        pattern = _literal_change(path, data)
    else:
        pattern = _prefixed_change(Fields(data, path))
    if not is_node_name(pattern.name):
        raise InvalidZnodeError(f"znode {path} names no resource: {pattern.name[:100]!r}")
    return pattern


def _literal_change(path: str, data: bytes | None) -> ResourcePattern:
    kind, _, name = (data or b"").decode("utf-8", "replace").partition(":")
    if kind not in AclResourceType.__members__:
        raise InvalidZnodeError(f"znode {path} names no type of resources: {kind[:100]!r}")
    return ResourcePattern(AclResourceType[kind], name, PatternType.LITERAL)


def _prefixed_change(fields: Fields) -> ResourcePattern:
    if fields.integer("version") > _VERSION:
        raise fields.invalid(f"has a version above {_VERSION}")
    pattern_type = _named(PatternType, fields.text("patternType"), fields)
    if pattern_type not in PATTERN_TYPES:
        raise fields.invalid(f"has the pattern type {pattern_type.name}")
    kind = _named(AclResourceType, fields.text("resourceType"), fields)
    return ResourcePattern(kind, fields.text("name"), pattern_type)
