"""Reads and writes entities: compiles a reader and a writer from the fields of each class on first use.

A compiled function handles a whole message with all its structs: neighbouring fields of fixed size at once,
arrays in loops, without a call for each field.

Rules: the protocol guide, KIP-482 (unknown tagged fields are skipped; a tagged field is written if it differs
from its default, in the order of tags), KIP-893 (nullable structs). Entities and bytes equal those of kio,
whose functions are several times slower. The memory that a reader uses is bounded by the number of bytes that
it gets.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import groupby
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar, cast
from uuid import UUID

from klog.protocol.entity_fields import Entity, EntityField, Value, entity_fields, is_flexible
from klog.protocol.error_codes import error_code
from klog.protocol.errors import MalformedMessageError, UnencodableMessageError
from klog.protocol.primitives import (
    Buffer,
    read_bytes,
    read_count,
    read_items,
    read_name,
    read_string,
    read_tags,
    write_bytes_size,
    write_string,
    write_tags,
)

T = TypeVar("T")
_Convert: TypeAlias = Callable[[Value], Value] | None

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
_NIL: Final = bytes(16)


def _duration(value: int) -> timedelta:
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


def _milliseconds(value: datetime | int | None) -> int:
    if isinstance(value, int):
        return value
    return -1 if value is None else round((value - _EPOCH) / _MILLISECOND)


class _Fixed(NamedTuple):
    """A type of fixed size: the format of `struct`, and functions that convert values, if that is needed."""

    letter: str
    decode: _Convert = None
    encode: _Convert = None


_DURATION: Final = _duration, lambda value: round(value / _MILLISECOND)
_FIXED: Final[dict[str | None, _Fixed]] = {
    "bool": _Fixed("?"),
    "int8": _Fixed("b"),
    "int16": _Fixed("h"),
    "int32": _Fixed("i"),
    "int64": _Fixed("q"),
    "uint8": _Fixed("B"),
    "uint16": _Fixed("H"),
    "uint32": _Fixed("I"),
    "uint64": _Fixed("Q"),
    "float64": _Fixed("d"),
    "error_code": _Fixed("h", error_code),
    "timedelta_i32": _Fixed("i", *_DURATION),
    "timedelta_i64": _Fixed("q", *_DURATION),
    "datetime_i64": _Fixed("q", _instant, _milliseconds),
    "uuid": _Fixed(
        "16s",
        lambda raw: None if raw == _NIL else UUID(bytes=raw),
        lambda value: _NIL if value is None else value.bytes,
    ),
}

# The errors that a value of a wrong type or size raises.
_REFUSALS: Final = (struct.error, TypeError, AttributeError, ValueError, OverflowError)


def read_entity(entity_type: type[T], buffer: Buffer) -> T:
    """The entity at the start of the buffer. Bytes after it are ignored.

    Raises MalformedMessageError.
    """
    read: Callable[[Buffer], T] = _reader(cast(type, entity_type))
    return read(buffer)


def write_entity(entity: Entity) -> bytes:
    """The bytes of an entity. Raises UnencodableMessageError."""
    try:
        return _writer(cast(type, type(entity)))(entity)
    except _REFUSALS as error:
        name = type(entity).__name__
        raise UnencodableMessageError(f"a {name} has a value that it cannot hold: {error}") from error


class _Source:
    """The source of a function that is being written, with the objects that it names."""

    def __init__(self, **names: object) -> None:
        self._names = names
        self._lines: list[str] = []
        self._indent = ""
        self._variables = 0

    def add(self, line: str) -> None:
        self._lines.append(self._indent + line)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        self.add(f"{head}:")
        outer, self._indent = self._indent, f"{self._indent}    "
        yield
        self._indent = outer

    def new(self, value: str | None = None) -> str:
        """A new variable; with a value it is set."""
        self._variables += 1
        name = f"v{self._variables}"
        if value is not None:
            self.add(f"{name} = {value}")
        return name

    def named(self, value: object) -> str:
        """The name of an object."""
        name = f"{getattr(value, '__name__', 'value').strip('<>')}_{len(self._names)}"
        self._names[name] = value
        return name

    def function(self, name: str) -> Any:  # noqa: ANN401 (as its source says)
        exec("\n".join(self._lines), self._names)  # noqa: S102 (made of the fields of a class)
        return self._names[name]


# -- reading: `b` is the buffer, `p` the position in it ------------------------------------------------------


def _blob(buffer: Buffer, position: int, compact: bool, nullable: bool) -> tuple[bytes | None, int]:
    value, end = read_bytes(buffer, position, compact)
    if value is None and not nullable:
        raise MalformedMessageError("null where bytes must be", position_bytes=position)
    return (None if value is None else bytes(value)), end


def _ended(position: int) -> MalformedMessageError:
    return MalformedMessageError("the message ends inside a value", position_bytes=position)


@cache
def _reader(entity_type: type) -> Callable[[Buffer], Any]:
    source = _Source(
        blob=_blob,
        ended=_ended,
        error=struct.error,
        read_count=read_count,
        read_items=read_items,
        read_name=read_name,
        read_string=read_string,
        read_tags=read_tags,
        unpack_from=struct.unpack_from,
    )
    with source.block("def read(b)"):
        # Single bytes are slow to read through a view.
        source.add("b, p = bytes(b), 0")
        with source.block("try"):
            source.add(f"return {_read_struct(source, entity_type, 'p')}")
        with source.block("except (error, IndexError) as cause"):
            source.add("raise ended(p) from cause")
    found: Callable[[Buffer], Any] = source.function("read")
    return found


def _read_struct(source: _Source, entity_type: type, at: str) -> str:
    """Reads the fields of a struct from the position in the variable `at` on; the struct as an expression."""
    flexible, fields = is_flexible(entity_type), entity_fields(entity_type)
    values: dict[str, str] = {}
    for fixed, group in groupby((field for field in fields if field.tag is None), _has_fixed_size):
        if fixed:
            several = list(group)
            read = _read_fixed(source, [field.kafka_type for field in several], at)
            values.update(zip([field.name for field in several], read, strict=True))
        else:
            values.update((field.name, _read_value(source, field, flexible, at)) for field in group)
    if flexible:
        values |= _read_tagged(source, [field for field in fields if field.tag is not None], at)
    return f"{source.named(entity_type)}({', '.join(f'{name}={value}' for name, value in values.items())})"


def _has_fixed_size(field: EntityField) -> bool:
    return field.kafka_type in _FIXED and not field.array


def _read_fixed(source: _Source, kafka_types: Sequence[str | None], at: str) -> list[str]:
    types = [_FIXED[each] for each in kafka_types]
    layout = struct.Struct(">" + "".join(each.letter for each in types))
    values = [source.new() for _ in types]
    source.add(f"{', '.join(values)}, = {source.named(layout.unpack_from)}(b, {at})")
    source.add(f"{at} += {layout.size}")
    return [_converted(source, each.decode, value) for each, value in zip(types, values, strict=True)]


def _converted(source: _Source, convert: _Convert, value: str) -> str:
    return value if convert is None else f"{source.named(convert)}({value})"


def _read_tagged(source: _Source, fields: Sequence[EntityField], at: str) -> dict[str, str]:
    values = {field.name: source.new(source.named(field.default)) for field in fields}
    with source.block(f"if b[{at}]"):
        tags = source.new()
        source.add(f"{tags}, {at} = read_tags(b, {at})")
        for field in fields:
            with source.block(f"if {field.tag} in {tags}"):
                start = source.new(f"{tags}[{field.tag}]")
                # A tagged struct has no null marker, because its absence means null.
                bare = field if field.array or field.struct is None else field._replace(nullable=False)
                source.add(f"{values[field.name]} = {_read_value(source, bare, True, start)}")
    with source.block("else"):
        source.add(f"{at} += 1")
    return values


def _read_value(source: _Source, field: EntityField, flexible: bool, at: str) -> str:
    """Reads the value of a field; the value as an expression."""
    if field.array:
        return _read_array(source, field, flexible, at)
    if field.struct is not None:
        if not field.nullable:
            return _read_struct(source, field.struct, at)
        value = source.new("None")
        source.add(f"{at} += 1")
        with source.block(f"if b[{at} - 1] <= 0x7F"):
            source.add(f"{value} = {_read_struct(source, field.struct, at)}")
        return value
    if field.kafka_type in _FIXED:
        return _read_fixed(source, [field.kafka_type], at)[0]
    value = source.new()
    if field.kafka_type == "string":
        read = "read_string" if field.nullable else "read_name"
        source.add(f"{value}, {at} = {read}(b, {at}, {flexible})")
    else:
        nullable = field.nullable or field.kafka_type == "records"
        source.add(f"{value}, {at} = blob(b, {at}, {flexible}, {nullable})")
    return value


def _read_array(source: _Source, field: EntityField, flexible: bool, at: str) -> str:
    count, items = source.new(), source.new("None")
    source.add(f"{count}, {at} = {'read_count' if field.nullable else 'read_items'}(b, {at}, {flexible})")
    with source.block(f"if {count} is not None"):
        fixed = _FIXED.get(field.kafka_type)
        if fixed is not None and fixed.decode is None:
            # Most of what brokers send each other are replica lists.
            source.add(f'{items} = unpack_from(f">{{{count}}}{fixed.letter}", b, {at})')
            source.add(f"{at} += {count} * {struct.calcsize(fixed.letter)}")
        else:
            each = source.new("[]")
            with source.block(f"for _ in range({count})"):
                item = field._replace(array=False, nullable=False)
                source.add(f"{each}.append({_read_value(source, item, flexible, at)})")
            source.add(f"{items} = tuple({each})")
    return items


# -- writing: `parts` are the bytes so far -------------------------------------------------------------------


def _string(value: str | None, compact: bool, nullable: bool) -> bytes:
    if value is None and not nullable:
        raise TypeError("None where null is not allowed")
    return write_string(value, compact)


def _append_blob(parts: list[bytes], value: bytes | None, compact: bool, nullable: bool) -> None:
    if value is None and not nullable:
        raise TypeError("None where null is not allowed")
    parts.append(write_bytes_size(None if value is None else len(value), compact))
    if value is not None:
        parts.append(value)


@cache
def _writer(entity_type: type) -> Callable[[Entity], bytes]:
    source = _Source(
        append_blob=_append_blob, pack=struct.pack, string=_string, size=write_bytes_size, tags=write_tags
    )
    with source.block("def write(entity)"):
        source.add("parts = []")
        _write_struct(source, entity_type, "entity", "parts")
        source.add('return b"".join(parts)')
    found: Callable[[Entity], bytes] = source.function("write")
    return found


def _write_struct(source: _Source, entity_type: type, entity: str, parts: str) -> None:
    """Writes the struct in the variable `entity` behind the `parts`."""
    flexible, fields = is_flexible(entity_type), entity_fields(entity_type)
    tagged = sorted((field for field in fields if field.tag is not None), key=lambda field: field.tag or 0)
    for fixed, group in groupby((field for field in fields if field.tag is None), _has_fixed_size):
        if fixed:
            several = list(group)
            values = [f"{entity}.{field.name}" for field in several]
            _write_fixed(source, [field.kafka_type for field in several], values, parts)
        else:
            for field in group:
                _write_value(source, field, flexible, source.new(f"{entity}.{field.name}"), parts)
    if tagged:
        _write_tagged(source, tagged, entity, parts)
    elif flexible:
        source.add(f'{parts}.append(b"\\0")')


def _write_fixed(
    source: _Source, kafka_types: Sequence[str | None], values: Sequence[str], parts: str
) -> None:
    types = [_FIXED[each] for each in kafka_types]
    pack = source.named(struct.Struct(">" + "".join(each.letter for each in types)).pack)
    packed = [_converted(source, each.encode, value) for each, value in zip(types, values, strict=True)]
    source.add(f"{parts}.append({pack}({', '.join(packed)}))")


def _write_tagged(source: _Source, fields: Sequence[EntityField], entity: str, parts: str) -> None:
    tags = source.new("[]")
    for field in fields:
        value = source.new(f"{entity}.{field.name}")
        with source.block(f"if {value} != {source.named(field.default)}"):
            own = source.new("[]")
            bare = field if field.array or field.struct is None else field._replace(nullable=False)
            _write_value(source, bare, True, value, own)
            source.add(f'{tags}.append(({field.tag}, b"".join({own})))')
    source.add(f"{parts}.append(tags({tags}))")


def _write_value(source: _Source, field: EntityField, flexible: bool, value: str, parts: str) -> None:
    if field.array:
        _write_array(source, field, flexible, value, parts)
    elif field.struct is not None and field.nullable:
        source.add(f'{parts}.append(b"\\xff" if {value} is None else b"\\1")')
        with source.block(f"if {value} is not None"):
            _write_struct(source, field.struct, value, parts)
    elif field.struct is not None:
        _write_struct(source, field.struct, value, parts)
    elif field.kafka_type in _FIXED:
        _write_fixed(source, [field.kafka_type], [value], parts)
    elif field.kafka_type == "string":
        source.add(f"{parts}.append(string({value}, {flexible}, {field.nullable}))")
    else:
        nullable = field.nullable or field.kafka_type == "records"
        source.add(f"append_blob({parts}, {value}, {flexible}, {nullable})")


def _write_array(source: _Source, field: EntityField, flexible: bool, value: str, parts: str) -> None:
    count = f"None if {value} is None else len({value})" if field.nullable else f"len({value})"
    source.add(f"{parts}.append(size({count}, {flexible}))")
    fixed = _FIXED.get(field.kafka_type)
    with source.block(f"if {value}"):
        if fixed is not None and fixed.decode is None:
            source.add(f'{parts}.append(pack(f">{{len({value})}}{fixed.letter}", *{value}))')
        else:
            item = source.new()
            with source.block(f"for {item} in {value}"):
                bare = field._replace(array=False, nullable=False)
                _write_value(source, bare, flexible, item, parts)
