"""Reads and writes entities, in the versions of their classes.

Entities and bytes equal those of kio, whose functions are several times slower.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar, cast

from klog.protocol.codec import REFUSALS, Field, Shape
from klog.protocol.entity_fields import Entity, entity_fields, is_flexible
from klog.protocol.errors import UnencodableMessageError
from klog.protocol.message_reader import reader
from klog.protocol.message_writer import writer
from klog.protocol.primitives import Buffer

T = TypeVar("T")


def read_entity(entity_type: type[T], buffer: Buffer) -> T:
    """The entity at the start of the buffer. Bytes after it are ignored.

    Raises MalformedMessageError.
    """
    read: Callable[[Buffer], T] = _reader(cast(type, entity_type))
    return read(buffer)


def write_entity(entity: Entity) -> bytes:
    """The bytes of an entity. Raises UnencodableMessageError."""
    try:
        return b"".join(_writer(cast(type, type(entity)))(entity))
    except REFUSALS as error:
        name = type(entity).__name__
        raise UnencodableMessageError(f"a {name} has a value that it cannot hold: {error}") from error


@cache
def _reader(entity_type: type) -> Callable[[Buffer], Any]:
    return reader(_shape(entity_type), copies=True)


@cache
def _writer(entity_type: type) -> Callable[[Entity], list[bytes]]:
    return writer(_shape(entity_type))


def _shape(entity_type: type) -> Shape:
    fields = entity_fields(entity_type)
    return Shape(
        entity_type,
        is_flexible(entity_type),
        tuple(
            Field(
                *field[:2],
                None if field.struct is None else _shape(field.struct),
                tuple if field.array else None,
                *field[4:],
            )
            for field in fields
        ),
    )
