"""Defines Kafka's versioned messages: a table of fields with their versions becomes a Construct definition.

The records of the internal topics and of the metadata log are messages of Kafka's protocol generator. A field
exists from a version on, and is nullable from a version on. From some version on the whole message is
*flexible* (KIP-482): its lengths are compact and every struct ends with tagged fields. A table of `Field`s
states that for all versions; `message` makes one Construct definition from it, which starts with the version.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import construct as c

from klog.formats import primitives as p
from klog.formats import structures as s

LATEST: Final = 2**15 - 1
NEVER: Final = 2**15

# A wire type: the form of a field in a version, from (version, flexible, nullable).
WireType = Callable[[int, bool, bool], c.Construct]


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a message, in versions `since` to `until`, nullable from `null_since`, optionally
    tagged.
    """

    name: str
    type: WireType
    meaning: str
    since: int = 0
    until: int = LATEST
    null_since: int = NEVER
    tag: int | None = None

    def at(self, version: int, flexible: bool) -> c.Construct:
        """The field's definition in a version that has it."""
        shape = self.type(version, flexible, version >= self.null_since)
        if self.tag is not None and isinstance(shape, s.NullableStruct):
            # There the generator has another mark for null.
            shape = s.NullableStruct(shape.subcon, null_mark=0)
        return self.name / shape * self.meaning


def _fixed(subcon: c.Construct) -> WireType:
    return lambda _version, _flexible, _null: subcon


INT8: Final = _fixed(c.Int8sb)
INT16: Final = _fixed(c.Int16sb)
UINT16: Final = _fixed(c.Int16ub)
INT32: Final = _fixed(c.Int32sb)
INT64: Final = _fixed(c.Int64sb)
FLOAT64: Final = _fixed(c.Float64b)
BOOL: Final = _fixed(p.BoolField())
UUID: Final = _fixed(p.UuidField())


def STRING(_version: int, flexible: bool, null: bool) -> c.Construct:  # noqa: N802
    """Text after an int16 length, or a compact one."""
    return p.SizedString(p.CompactLength if flexible else c.Int16sb, null=null)


def BYTES(_version: int, flexible: bool, null: bool) -> c.Construct:  # noqa: N802
    """Bytes after an int32 length, or a compact one."""
    return p.SizedBytes(p.CompactLength if flexible else c.Int32sb, null=null)


def array(item: WireType) -> WireType:
    """Items after an int32 count, or a compact one."""

    def at(version: int, flexible: bool, null: bool) -> c.Construct:
        return p.SizedArray(
            p.CompactLength if flexible else c.Int32sb, item(version, flexible, False), null=null
        )

    return at


def struct(*fields: Field) -> WireType:
    """Adjacent fields; in flexible versions tagged fields follow."""

    def at(version: int, flexible: bool, null: bool) -> c.Construct:
        present = [field for field in fields if field.since <= version <= field.until]
        parts = [field.at(version, flexible) for field in present if field.tag is None]
        if flexible:
            known = {field.tag: field.at(version, flexible) for field in present if field.tag is not None}
            parts.append("taggedFields" / s.TaggedFields(known))
        fields_of_version = c.Struct(*parts)
        return s.NullableStruct(fields_of_version) if null else fields_of_version

    return at


def fields_of(version: int, flexible_since: int, *fields: Field) -> c.Construct:
    """The fields of one version of a message, without the version itself."""
    return struct(*fields)(version, version >= flexible_since, False)


def message(title: str, versions: range, flexible_since: int, *fields: Field) -> s.Versioned:
    """A message in all its versions, after its version (int16)."""
    return s.Versioned(title, {version: fields_of(version, flexible_since, *fields) for version in versions})


def tagged(value: c.Container, name: str) -> object | None:
    """The value of an optional (tagged) field of a parsed message, None if it is absent."""
    for field in value.get("taggedFields", ()):
        if field["name"] == name:
            found: object = field["value"]
            return found
    return None
