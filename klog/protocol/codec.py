"""Compiles readers and writers of messages from their fields, a function of Python for each version.

A function handles a whole message with all its structs: neighbouring fields of fixed size at once, arrays in
loops, without a call for each field. Fields come from the classes of entities (`entity_codec`) or from tables
of all versions (`message_tables`).

Rules: the protocol guide, KIP-482 (unknown tagged fields are skipped; a tagged field is written if it differs
from its default, in the order of tags), KIP-893 (nullable structs). The memory that a reader uses is bounded
by the number of bytes that it gets.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import groupby
from typing import Any, Final, NamedTuple, TypeAlias
from uuid import UUID

from klog.formats.function_source import FunctionSource
from klog.formats.varints import ONE_BYTE
from klog.protocol.error_codes import error_code
from klog.protocol.errors import MalformedMessageError
from klog.protocol.file_slice import BodyParts, parts_of
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

Value: TypeAlias = Any
_Convert: TypeAlias = Callable[[Value], Value] | None

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
_NIL: Final = bytes(16)
# A cluster has few topics, and its ids come again in each message.
_KNOWN_IDS_MAX: Final = 4096


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


@lru_cache(maxsize=_KNOWN_IDS_MAX)
def uuid_of(raw: bytes) -> UUID:
    """The id that has these 16 bytes; the same object each time, if it is not one of too many."""
    return UUID(bytes=raw)


class _Fixed(NamedTuple):
    """A type of fixed size: the format of `struct`, and functions that convert values, if that is needed."""

    letter: str
    decode: _Convert = None
    encode: _Convert = None


_DURATION: Final = _duration, lambda value: round(value / _MILLISECOND)
_FIXED: Final[dict[object, _Fixed]] = {
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
    "topic_id": _Fixed("16s", uuid_of, lambda value: _NIL if value is None else value.bytes),
    "uuid": _Fixed(
        "16s",
        lambda raw: None if raw == _NIL else uuid_of(raw),
        lambda value: _NIL if value is None else value.bytes,
    ),
}

# The errors that a value of a wrong type or size raises.
REFUSALS: Final = (struct.error, TypeError, AttributeError, ValueError, OverflowError)


class Field(NamedTuple):
    """One field. A struct, or an array of structs, has no `kafka_type`. `array` is the class of arrays."""

    name: str
    kafka_type: str | None
    struct: Shape | None
    array: type[tuple[Any, ...]] | type[list[Any]] | None
    nullable: bool
    tag: int | None
    default: Value


class Shape(NamedTuple):
    """A struct in one version: what is made of its fields, in their order, and the values of absent ones.

    What is made are tuples, or calls with the fields' names.
    """

    make: Callable[..., Any]
    flexible: bool
    fields: tuple[Field, ...]
    absent: tuple[tuple[str, Value], ...] = ()

    def order(self) -> Sequence[str] | None:
        """The names of the fields of a tuple; None if it is none."""
        if not (isinstance(self.make, type) and issubclass(self.make, tuple)):
            return None
        named: Sequence[str] | None = getattr(self.make, "_fields", None)
        return [field.name for field in self.fields] if named is None else named


# -- reading: `b` is the buffer, `p` the position in it ------------------------------------------------------


def _blob(buffer: Buffer, position: int, compact: bool, nullable: bool) -> tuple[bytes | None, int]:
    value, end = read_bytes(buffer, position, compact)
    if value is None and not nullable:
        raise MalformedMessageError("null where bytes must be", position_bytes=position)
    return (None if value is None else bytes(value)), end


def _ended(position: int) -> MalformedMessageError:
    return MalformedMessageError("the message ends inside a value", position_bytes=position)


def reader(shape: Shape, *, copies: bool) -> Callable[[Buffer], Any]:
    """Reads a message at the start of a buffer; bytes after it are ignored. Raises MalformedMessageError.

    A reader that `copies` is faster for small messages: single bytes are slow to read through a view.
    """
    source = FunctionSource(
        blob=_blob,
        ended=_ended,
        error=struct.error,
        new=tuple.__new__,
        read_bytes=read_bytes,
        read_count=read_count,
        read_items=read_items,
        read_name=read_name,
        read_string=read_string,
        read_tags=read_tags,
        unpack_from=struct.unpack_from,
    )
    with source.block("def read(b)"):
        source.add("b, p = bytes(b), 0" if copies else "p = 0")
        source.add("length = len(b)")
        with source.block("try"):
            source.add(f"return {_read_struct(source, shape, 'p')}")
        with source.block("except (error, IndexError) as cause"):
            source.add("raise ended(p) from cause")
    found: Callable[[Buffer], Any] = source.function("read")
    return found


def _read_struct(source: FunctionSource, shape: Shape, at: str) -> str:
    """Reads the fields of a struct from the position in the variable `at` on; the struct as an expression."""
    values = {name: source.named(value) for name, value in shape.absent}
    for fixed, group in groupby((field for field in shape.fields if field.tag is None), _has_fixed_size):
        if fixed:
            several = list(group)
            read = _read_fixed(source, [field.kafka_type for field in several], at)
            values.update(zip([field.name for field in several], read, strict=True))
        else:
            values.update((field.name, _read_value(source, field, shape.flexible, at)) for field in group)
    if shape.flexible:
        values |= _read_tagged(source, [field for field in shape.fields if field.tag is not None], at)
    order = shape.order()
    if order is None:
        named = ", ".join(f"{name}={value}" for name, value in values.items())
        return f"{source.named(shape.make)}({named})"
    made = f"({''.join(f'{values[name]}, ' for name in order)})"
    return made if shape.make is tuple else f"new({source.named(shape.make)}, {made})"


def _has_fixed_size(field: Field) -> bool:
    return field.kafka_type in _FIXED and not field.array


def _read_fixed(source: FunctionSource, kafka_types: Sequence[object], at: str) -> list[str]:
    types = [_FIXED[each] for each in kafka_types]
    layout = struct.Struct(">" + "".join(each.letter for each in types))
    values = [source.new() for _ in types]
    source.add(f"{', '.join(values)}, = {source.named(layout.unpack_from)}(b, {at})")
    source.add(f"{at} += {layout.size}")
    return [_converted(source, each.decode, value) for each, value in zip(types, values, strict=True)]


def _converted(source: FunctionSource, convert: _Convert, value: str) -> str:
    return value if convert is None else f"{source.named(convert)}({value})"


def _read_tagged(source: FunctionSource, fields: Sequence[Field], at: str) -> dict[str, str]:
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


def _read_value(source: FunctionSource, field: Field, flexible: bool, at: str) -> str:
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
        _read_sized(source, value, at, flexible, "h", 'str({}, "utf-8", "replace")', read)
    elif field.kafka_type in ("view", "parts"):
        _read_sized(source, value, at, flexible, "i", "{}", "read_bytes")
    else:
        nullable = field.nullable or field.kafka_type == "records"
        source.add(f"{value}, {at} = blob(b, {at}, {flexible}, {nullable})")
    return value


def _read_sized(
    source: FunctionSource, value: str, at: str, flexible: bool, letter: str, form: str, read: str
) -> None:
    """Reads bytes after their size: without a call if they are usual ones, else by the function `read`."""
    size, head = source.new(), 1 if flexible else struct.calcsize(letter)
    if flexible:
        # The size and one more, in one byte.
        source.add(f"{size} = b[{at}] - 1")
        usual = f"-1 < {size} < 0x7F"
    else:
        source.add(f"{size}, = {source.named(struct.Struct(f'>{letter}').unpack_from)}(b, {at})")
        usual = f"{size} >= 0"
    end = source.new(f"{at} + {head} + {size}")
    with source.block(f"if {usual} and {end} <= length"):
        source.add(f"{value} = {form.format(f'b[{at} + {head}:{end}]')}")
        source.add(f"{at} = {end}")
    with source.block("else"):
        source.add(f"{value}, {at} = {read}(b, {at}, {flexible})")


def _read_array(source: FunctionSource, field: Field, flexible: bool, at: str) -> str:
    count, items = source.new(), source.new("None")
    read = f"{count}, {at} = {'read_count' if field.nullable else 'read_items'}(b, {at}, {flexible})"
    if flexible:
        # The count and one more, in one byte. Each item takes a byte at least.
        source.add(f"{count} = b[{at}] - 1")
        with source.block(f"if -1 < {count} < 0x7F and {count} < length - {at}"):
            source.add(f"{at} += 1")
        with source.block("else"):
            source.add(read)
    else:
        source.add(read)
    with source.block(f"if {count} is not None"):
        fixed = _FIXED.get(field.kafka_type)
        if fixed is not None and fixed.decode is None:
            # Most of what brokers send each other are replica lists.
            source.add(f'{items} = unpack_from(f">{{{count}}}{fixed.letter}", b, {at})')
            source.add(f"{at} += {count} * {struct.calcsize(fixed.letter)}")
            if field.array is list:
                source.add(f"{items} = list({items})")
        else:
            each = source.new("[]")
            with source.block(f"for _ in range({count})"):
                item = field._replace(array=None, nullable=False)
                source.add(f"{each}.append({_read_value(source, item, flexible, at)})")
            source.add(f"{items} = {each}" if field.array is list else f"{items} = tuple({each})")
    return items


# -- writing: `parts` are the bytes so far -------------------------------------------------------------------


def _string(value: str | None, compact: bool) -> bytes:
    if value is None:
        raise TypeError("None where null is not allowed")
    return write_string(value, compact)


def _append_blob(parts: list[bytes], value: bytes | None, compact: bool, nullable: bool) -> None:
    if value is None and not nullable:
        raise TypeError("None where null is not allowed")
    parts.append(write_bytes_size(None if value is None else len(value), compact))
    if value is not None:
        parts.append(value)


def _append_parts(parts: list[Any], value: BodyParts, compact: bool) -> None:
    several, size = parts_of(value)
    parts.append(write_bytes_size(size, compact))
    parts.extend(several)


def writer(shape: Shape) -> Callable[[Any], list[Any]]:
    """Makes the parts of a message; views are parts as they are. Raises REFUSALS."""
    source = FunctionSource(
        append_blob=_append_blob,
        append_parts=_append_parts,
        nullable_string=write_string,
        one_byte=ONE_BYTE,
        pack=struct.pack,
        size=write_bytes_size,
        string=_string,
        tags=write_tags,
    )
    with source.block("def write(message)"):
        source.add("parts = []")
        _write_struct(source, shape, "message", "parts")
        source.add("return parts")
    found: Callable[[Any], list[Any]] = source.function("write")
    return found


def _write_struct(source: FunctionSource, shape: Shape, value: str, parts: str) -> None:
    """Writes the struct in the variable `value` behind the `parts`."""
    order = shape.order()
    values = {field.name: f"{value}.{field.name}" for field in shape.fields}
    if order is not None:
        values = {name: source.new() for name in order}
        source.add(f"{', '.join(values.values())}, = {value}")
    tagged = sorted(
        (field for field in shape.fields if field.tag is not None), key=lambda field: field.tag or 0
    )
    end = "x" if shape.flexible and not tagged else ""
    fixed = False
    groups = groupby((field for field in shape.fields if field.tag is None), _has_fixed_size)
    *before, last = [(fixed, list(group)) for fixed, group in groups] or [(False, [])]
    for fixed, several in (*before, last):
        if fixed:
            names = [values[field.name] for field in several]
            closing = end if several is last[1] else ""
            _write_fixed(source, [field.kafka_type for field in several], names, parts, closing)
        else:
            for field in several:
                _write_value(source, field, shape.flexible, source.new(values[field.name]), parts)
    if tagged:
        _write_tagged(source, tagged, values, parts)
    elif shape.flexible and not fixed:
        source.add(f'{parts}.append(b"\\0")')


def _write_fixed(
    source: FunctionSource,
    kafka_types: Sequence[object],
    values: Sequence[str],
    parts: str,
    closing: str = "",
) -> None:
    """`closing` is the format of what follows the values: `x` for the empty tagged fields of a struct."""
    types = [_FIXED[each] for each in kafka_types]
    pack = source.named(struct.Struct(f">{''.join(each.letter for each in types)}{closing}").pack)
    packed = [_converted(source, each.encode, value) for each, value in zip(types, values, strict=True)]
    source.add(f"{parts}.append({pack}({', '.join(packed)}))")


def _write_tagged(
    source: FunctionSource, fields: Sequence[Field], values: Mapping[str, str], parts: str
) -> None:
    tags = source.new("[]")
    for field in fields:
        value = source.new(values[field.name])
        with source.block(f"if {value} != {source.named(field.default)}"):
            own = source.new("[]")
            bare = field if field.array or field.struct is None else field._replace(nullable=False)
            _write_value(source, bare, True, value, own)
            source.add(f'{tags}.append(({field.tag}, b"".join({own})))')
    source.add(f"{parts}.append(tags({tags}))")


def _write_value(source: FunctionSource, field: Field, flexible: bool, value: str, parts: str) -> None:
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
        write = "nullable_string" if field.nullable else "string"
        source.add(f"{parts}.append({write}({value}, {flexible}))")
    elif field.kafka_type == "parts":
        source.add(f"append_parts({parts}, {value}, {flexible})")
    else:
        nullable = field.nullable or field.kafka_type in ("records", "view")
        source.add(f"append_blob({parts}, {value}, {flexible}, {nullable})")


def _write_array(source: FunctionSource, field: Field, flexible: bool, value: str, parts: str) -> None:
    if flexible and not field.nullable:
        # The count and one more, which nearly always take one byte.
        more = source.new(f"len({value}) + 1")
        source.add(f"{parts}.append(one_byte[{more}] if {more} < 0x80 else size({more} - 1, True))")
    else:
        count = f"None if {value} is None else len({value})" if field.nullable else f"len({value})"
        source.add(f"{parts}.append(size({count}, {flexible}))")
    fixed = _FIXED.get(field.kafka_type)
    with source.block(f"if {value}"):
        if fixed is not None and fixed.decode is None:
            source.add(f'{parts}.append(pack(f">{{len({value})}}{fixed.letter}", *{value}))')
        else:
            item = source.new()
            with source.block(f"for {item} in {value}"):
                bare = field._replace(array=None, nullable=False)
                _write_value(source, bare, flexible, item, parts)
