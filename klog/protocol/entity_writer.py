"""Writes entities to bytes. The writer of an entity class is built once and cached.

Rules: the protocol guide, KIP-482 (a tagged field is written if it differs from its default, in the order of
tags), KIP-893 (nullable structs). The bytes equal those of kio's own writer, which is several times slower.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import cache
from operator import attrgetter
from typing import Final, TypeAlias
from uuid import UUID

from klog.protocol.entity_fields import Entity, EntityField, Value, entity_fields, is_flexible
from klog.protocol.entity_reader import FIXED, NUMBERS, grouped_steps
from klog.protocol.errors import UnencodableMessageError
from klog.protocol.primitives import write_bytes_size, write_string, write_tags

Parts: TypeAlias = list[bytes]
Writer: TypeAlias = Callable[[Parts, Value], None]

_MILLISECOND: Final = timedelta(milliseconds=1)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_NIL: Final = bytes(16)


def _instant(value: datetime | int | None) -> int:
    if isinstance(value, int):
        return value
    return -1 if value is None else round((value - _EPOCH) / _MILLISECOND)


def _uuid(value: UUID | None) -> bytes:
    return _NIL if value is None else value.bytes


def _milliseconds(value: timedelta) -> int:
    return round(value / _MILLISECOND)


_CONVERTERS: Final[dict[str, Callable[[Value], Value]]] = {
    "timedelta_i32": _milliseconds,
    "timedelta_i64": _milliseconds,
    "datetime_i64": _instant,
    "uuid": _uuid,
}

# The errors that a value of a wrong type or size raises.
_REFUSALS: Final = (struct.error, TypeError, AttributeError, ValueError, OverflowError)


def write_entity(entity: Entity) -> bytes:
    """The bytes of an entity. Raises UnencodableMessageError."""
    parts: Parts = []
    try:
        entity_writer(_class(entity))(parts, entity)
    except _REFUSALS as error:
        name = type(entity).__name__
        raise UnencodableMessageError(f"a {name} has a value that it cannot hold: {error}") from error
    return b"".join(parts)


def _class(entity: Entity) -> type:
    found: type = type(entity)
    return found


@cache
def entity_writer(entity_type: type) -> Writer:
    """The writer of one entity class, which appends the entity's bytes to a list of parts."""
    flexible = is_flexible(entity_type)
    fields = entity_fields(entity_type)
    steps = grouped_steps(
        [field for field in fields if field.tag is None],
        _fixed_step,
        lambda field: _single_step(field.name, field_writer(field, flexible)),
    )
    tagged = sorted((field for field in fields if field.tag is not None), key=lambda field: field.tag or 0)
    tag_writers = [(field, field_writer(field, flexible, in_tag=True)) for field in tagged]

    def write_plain(parts: Parts, entity: Entity) -> None:
        for step in steps:
            step(parts, entity)

    def write_flexible(parts: Parts, entity: Entity) -> None:
        for step in steps:
            step(parts, entity)
        parts.append(write_tags(_tags(tag_writers, entity)) if tag_writers else b"\0")

    return write_flexible if flexible else write_plain


def _tags(writers: list[tuple[EntityField, Writer]], entity: Entity) -> list[tuple[int, bytes]]:
    tags = []
    for field, write in writers:
        value = getattr(entity, field.name)
        if value != field.default:
            parts: Parts = []
            write(parts, value)
            tags.append((field.tag or 0, b"".join(parts)))
    return tags


def _fixed_step(fields: list[EntityField]) -> Writer:
    layout = struct.Struct(">" + "".join(FIXED[str(field.kafka_type)][0] for field in fields))
    converters = [_CONVERTERS.get(str(field.kafka_type)) for field in fields]
    names = [field.name for field in fields]
    pack = layout.pack
    if len(names) == 1 or any(converters):
        getters = [(attrgetter(name), convert) for name, convert in zip(names, converters, strict=True)]

        def step_converting(parts: Parts, entity: Entity) -> None:
            values = [get(entity) if convert is None else convert(get(entity)) for get, convert in getters]
            parts.append(pack(*values))

        return step_converting
    get_all = attrgetter(*names)

    def step(parts: Parts, entity: Entity) -> None:
        parts.append(pack(*get_all(entity)))

    return step


def _single_step(name: str, write: Writer) -> Writer:
    get = attrgetter(name)

    def step(parts: Parts, entity: Entity) -> None:
        write(parts, get(entity))

    return step


def field_writer(field: EntityField, flexible: bool, *, in_tag: bool = False) -> Writer:
    """The writer of one field. A tagged struct has no null marker, because its absence means null."""
    if field.array:
        if field.kafka_type in NUMBERS:
            return _numbers_writer(str(field.kafka_type), flexible, field.nullable)
        item = (
            entity_writer(field.struct)
            if field.struct
            else _value_writer(str(field.kafka_type), flexible, False)
        )
        return _array_writer(item, flexible, field.nullable)
    if field.struct is not None:
        write = entity_writer(field.struct)
        return _nullable_struct_writer(write) if field.nullable and not in_tag else write
    return _value_writer(str(field.kafka_type), flexible, field.nullable)


def _require(value: Value, nullable: bool) -> None:
    if value is None and not nullable:
        raise TypeError("None where null is not allowed")


def _value_writer(kafka_type: str, flexible: bool, nullable: bool) -> Writer:
    if kafka_type in FIXED:
        pack = struct.Struct(">" + FIXED[kafka_type][0]).pack
        convert = _CONVERTERS.get(kafka_type)

        def write_fixed(parts: Parts, value: Value) -> None:
            parts.append(pack(value if convert is None else convert(value)))

        return write_fixed
    if kafka_type == "string":

        def write_text(parts: Parts, value: Value) -> None:
            _require(value, nullable)
            parts.append(write_string(value, flexible))

        return write_text
    bytes_nullable = nullable or kafka_type == "records"

    def write_raw(parts: Parts, value: Value) -> None:
        _require(value, bytes_nullable)
        parts.append(write_bytes_size(None if value is None else len(value), flexible))
        if value is not None:
            parts.append(value)

    return write_raw


def _numbers_writer(kafka_type: str, flexible: bool, nullable: bool) -> Writer:
    letter = FIXED[kafka_type][0]

    def write(parts: Parts, values: Value) -> None:
        _require(values, nullable)
        parts.append(write_bytes_size(None if values is None else len(values), flexible))
        if values:
            parts.append(struct.pack(f">{len(values)}{letter}", *values))

    return write


def _array_writer(item: Writer, flexible: bool, nullable: bool) -> Writer:
    def write(parts: Parts, values: Value) -> None:
        _require(values, nullable)
        parts.append(write_bytes_size(None if values is None else len(values), flexible))
        for value in values or ():
            item(parts, value)

    return write


def _nullable_struct_writer(write_struct: Writer) -> Writer:
    def write(parts: Parts, value: Value) -> None:
        if value is None:
            parts.append(b"\xff")
            return
        parts.append(b"\x01")
        write_struct(parts, value)

    return write
