"""Reads entities from bytes. The reader of an entity class is built once and cached.

Rules: the protocol guide, KIP-482 (tagged fields; unknown ones are skipped), KIP-893 (nullable structs). The
result equals that of kio's own reader for all well-formed bytes. The memory that the reader uses is bounded
by the number of bytes that it gets.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import groupby
from typing import Final, TypeAlias, TypeVar, cast
from uuid import UUID

from klog.protocol.entity_fields import EntityField, Value, entity_fields, is_flexible
from klog.protocol.error_codes import error_code
from klog.protocol.errors import MalformedMessageError
from klog.protocol.primitives import (
    Buffer,
    end_of,
    read_bytes,
    read_count,
    read_string,
    read_tags,
)

Reader: TypeAlias = Callable[[Buffer, int], tuple[Value, int]]
_Step: TypeAlias = Callable[[Buffer, int, list[Value]], int]
_ItemsReader: TypeAlias = Callable[[Buffer, int, int], tuple[tuple[Value, ...], int]]
T = TypeVar("T")

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_NIL: Final = UUID(int=0)


def _milliseconds(value: int) -> timedelta:
    try:
        return timedelta(milliseconds=value)
    except OverflowError:
        # Millions of years: the longest duration that can be expressed means the same.
        return timedelta.max if value > 0 else timedelta.min


def _instant(value: int) -> datetime | None:
    try:
        return None if value == -1 else _EPOCH + timedelta(milliseconds=value)
    except OverflowError as error:
        raise MalformedMessageError(f"timestamp {value} is past the year 9999") from error


def _identity(value: UUID) -> UUID | None:
    return None if value == _NIL else value


def _uuid(raw: bytes) -> UUID | None:
    return _identity(UUID(bytes=raw))


# Types of fixed size: the format of `struct`, and a function that converts the value, if it is needed.
FIXED: Final[dict[str, tuple[str, Callable[[Value], Value] | None]]] = {
    "bool": ("?", None),
    "int8": ("b", None),
    "int16": ("h", None),
    "int32": ("i", None),
    "int64": ("q", None),
    "uint8": ("B", None),
    "uint16": ("H", None),
    "uint32": ("I", None),
    "uint64": ("Q", None),
    "float64": ("d", None),
    "error_code": ("h", error_code),
    "timedelta_i32": ("i", _milliseconds),
    "timedelta_i64": ("q", _milliseconds),
    "datetime_i64": ("q", _instant),
    "uuid": ("16s", _uuid),
}


# Arrays of these are read and written at once, because most of what brokers send each other are replica
# lists.
NUMBERS: Final = frozenset(name for name, (_, convert) in FIXED.items() if convert is None)


def has_fixed_size(field: EntityField) -> bool:
    """Whether all values of the field have the same size on the wire."""
    return field.kafka_type in FIXED and not field.array


def read_entity(entity_type: type[T], buffer: Buffer) -> T:
    """The entity at the start of the buffer. Bytes after it are ignored.

    Raises MalformedMessageError.
    """
    read: Reader = entity_reader(cast(type, entity_type))
    value: T = read(buffer, 0)[0]
    return value


@cache
def entity_reader(entity_type: type) -> Reader:
    """The reader of one entity class: (buffer, position) -> (entity, next position)."""
    flexible = is_flexible(entity_type)
    fields = entity_fields(entity_type)
    plain = [field for field in fields if field.tag is None]
    tagged = {
        field.tag: (field.name, field_reader(field, flexible, in_tag=True))
        for field in fields
        if field.tag is not None
    }
    steps = grouped_steps(plain, _fixed_step, lambda field: _single_step(field_reader(field, flexible)))
    names = [field.name for field in plain]
    defaults = {field.name: field.default for field in fields if field.tag is not None}

    def read_plain(buffer: Buffer, position: int) -> tuple[Value, int]:
        values: list[Value] = []
        for step in steps:
            position = step(buffer, position, values)
        return entity_type(**dict(zip(names, values, strict=True))), position

    def read_flexible(buffer: Buffer, position: int) -> tuple[Value, int]:
        values: list[Value] = []
        for step in steps:
            position = step(buffer, position, values)
        found = dict(zip(names, values, strict=True))
        found.update(defaults)
        tags, position = read_tags(buffer, position)
        for tag, start in tags.items():
            if tag in tagged:
                name, read = tagged[tag]
                found[name] = read(buffer, start)[0]
        return entity_type(**found), position

    return read_flexible if flexible else read_plain


def grouped_steps(
    fields: list[EntityField],
    fixed_step: Callable[[list[EntityField]], T],
    single_step: Callable[[EntityField], T],
) -> list[T]:
    """The steps for the fields of an entity: one for neighbouring fields of fixed size, else one for each."""
    steps: list[T] = []
    for fixed, group in groupby(fields, has_fixed_size):
        if fixed:
            steps.append(fixed_step(list(group)))
        else:
            steps += map(single_step, group)
    return steps


def _fixed_step(fields: list[EntityField]) -> _Step:
    layout = struct.Struct(">" + "".join(FIXED[str(field.kafka_type)][0] for field in fields))
    converters = [(index, FIXED[str(field.kafka_type)][1]) for index, field in enumerate(fields)]
    conversions = [(index, convert) for index, convert in converters if convert is not None]

    def step(buffer: Buffer, position: int, values: list[Value]) -> int:
        end = end_of(buffer, position, layout.size)
        base = len(values)
        values += layout.unpack_from(buffer, position)
        for index, convert in conversions:
            values[base + index] = convert(values[base + index])
        return end

    return step


def _single_step(read: Reader) -> _Step:
    def step(buffer: Buffer, position: int, values: list[Value]) -> int:
        value, position = read(buffer, position)
        values.append(value)
        return position

    return step


def field_reader(field: EntityField, flexible: bool, *, in_tag: bool = False) -> Reader:
    """The reader of one field. A tagged struct has no null marker, because its absence means null."""
    if field.array and field.struct is not None:
        return _array_reader(_one_by_one(entity_reader(field.struct)), flexible, field.nullable)
    if field.array:
        kafka_type = str(field.kafka_type)
        if kafka_type in NUMBERS:
            return _array_reader(_all_at_once(kafka_type), flexible, field.nullable)
        return _array_reader(
            _one_by_one(_value_reader(kafka_type, flexible, False)), flexible, field.nullable
        )
    if field.struct is not None:
        read = entity_reader(field.struct)
        return _nullable_struct_reader(read) if field.nullable and not in_tag else read
    return _value_reader(str(field.kafka_type), flexible, field.nullable)


def _value_reader(kafka_type: str, flexible: bool, nullable: bool) -> Reader:
    if kafka_type in FIXED:
        return _fixed_reader(kafka_type)
    if kafka_type == "string":
        return _text_reader(flexible, nullable)
    return _bytes_reader(flexible, nullable or kafka_type == "records")


def _fixed_reader(kafka_type: str) -> Reader:
    letter, convert = FIXED[kafka_type]
    layout = struct.Struct(">" + letter)

    def read(buffer: Buffer, position: int) -> tuple[Value, int]:
        end = end_of(buffer, position, layout.size)
        value = layout.unpack_from(buffer, position)[0]
        return (value if convert is None else convert(value)), end

    return read


def _text_reader(flexible: bool, nullable: bool) -> Reader:
    def read(buffer: Buffer, position: int) -> tuple[Value, int]:
        value, end = read_string(buffer, position, flexible)
        if value is None and not nullable:
            raise MalformedMessageError("null where a string must be", position_bytes=position)
        return value, end

    return read


def _bytes_reader(flexible: bool, nullable: bool) -> Reader:
    def read(buffer: Buffer, position: int) -> tuple[Value, int]:
        value, end = read_bytes(buffer, position, flexible)
        if value is None and not nullable:
            raise MalformedMessageError("null where bytes must be", position_bytes=position)
        return (None if value is None else bytes(value)), end

    return read


def _all_at_once(kafka_type: str) -> _ItemsReader:
    letter = FIXED[kafka_type][0]
    item_bytes = struct.calcsize(f">{letter}")

    def read(buffer: Buffer, position: int, count: int) -> tuple[tuple[Value, ...], int]:
        end = end_of(buffer, position, count * item_bytes)
        return struct.unpack_from(f">{count}{letter}", buffer, position), end

    return read


def _one_by_one(item: Reader) -> _ItemsReader:
    def read(buffer: Buffer, position: int, count: int) -> tuple[tuple[Value, ...], int]:
        items = []
        for _ in range(count):
            value, position = item(buffer, position)
            items.append(value)
        return tuple(items), position

    return read


def _array_reader(items: _ItemsReader, flexible: bool, nullable: bool) -> Reader:
    def read(buffer: Buffer, position: int) -> tuple[Value, int]:
        count, position = read_count(buffer, position, flexible)
        if count is None:
            if not nullable:
                raise MalformedMessageError("null where an array must be", position_bytes=position)
            return None, position
        return items(buffer, position, count)

    return read


def _nullable_struct_reader(read_struct: Reader) -> Reader:
    def read(buffer: Buffer, position: int) -> tuple[Value, int]:
        end = end_of(buffer, position, 1)
        return (None, end) if buffer[position] > 0x7F else read_struct(buffer, end)

    return read
