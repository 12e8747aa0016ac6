"""Makes readers of messages from their fields. Their sources name the buffer `b`, and the position in it `p`.

Rules: the protocol guide, KIP-482 (unknown tagged fields are skipped), KIP-893 (nullable structs). The memory
that a reader uses is bounded by the number of bytes that it gets.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any, NoReturn

from klog.formats.function_source import FunctionSource
from klog.protocol.codec import FIXED, Field, Shape, has_fixed_size
from klog.protocol.errors import MalformedMessageError
from klog.protocol.primitives import (
    Buffer,
    end_of,
    read_count,
    read_items,
    read_name,
    read_string,
    read_tags,
    read_uvarint,
)


def _refuse_bytes(buffer: Buffer, position: int, size: int, nullable: bool) -> NoReturn:
    if size < 0 and not nullable:
        raise MalformedMessageError("null where bytes must be", position_bytes=position)
    end_of(buffer, position, size)
    raise AssertionError(f"{size} bytes at {position} were refused")


def _ended(position: int) -> MalformedMessageError:
    return MalformedMessageError("the message ends inside a value", position_bytes=position)


def reader(shape: Shape, *, copies: bool) -> Callable[[Buffer], Any]:
    """Reads a message at the start of a buffer; bytes after it are ignored. Raises MalformedMessageError.

    A reader that `copies` is faster for small messages: single bytes are slow to read through a view.
    """
    source = FunctionSource(
        ended=_ended,
        error=struct.error,
        new=tuple.__new__,
        read_count=read_count,
        read_items=read_items,
        read_name=read_name,
        read_string=read_string,
        read_tags=read_tags,
        read_uvarint=read_uvarint,
        refuse_bytes=_refuse_bytes,
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
    run: list[Field] = []
    for field in shape.fields:
        if field.tag is not None:
            continue
        if has_fixed_size(field):
            run.append(field)
            continue
        # The number that a field begins with belongs to the run of the fields before it.
        *read, first = _read_run(source, run, _first_letter(field, shape.flexible), at)
        values.update(zip([each.name for each in run], read, strict=True))
        values[field.name] = _read_value(source, field, shape.flexible, at, first)
        run = []
    *read, first = _read_run(source, run, "B" if shape.flexible else "", at)
    values.update(zip([each.name for each in run], read, strict=True))
    if shape.flexible:
        values |= _read_tagged(source, [field for field in shape.fields if field.tag is not None], at, first)
    order = shape.order()
    if order is None:
        named = ", ".join(f"{name}={value}" for name, value in values.items())
        return f"{source.named(shape.make)}({named})"
    made = f"({''.join(f'{values[name]}, ' for name in order)})"
    return made if shape.make is tuple else f"new({source.named(shape.make)}, {made})"


def _first_letter(field: Field, flexible: bool) -> str:
    """The number that tells the size of a field, or whether it is null: its format of `struct`, if any.

    In flexible versions it is a byte at least.
    """
    if field.struct is not None and not field.array:
        return "B" if field.nullable else ""
    if has_fixed_size(field):
        return ""
    return "B" if flexible else "h" if field.kafka_type == "string" and not field.array else "i"


def _read_run(source: FunctionSource, run: Sequence[Field], first: str, at: str) -> list[str]:
    """Reads adjacent fields of fixed size, and a number after them that has the format `first`, if any.

    The values as expressions; the last is the number.
    """
    types = [FIXED[each.kafka_type] for each in run]
    layout = struct.Struct(f">{''.join(each.letter for each in types)}{first}")
    if layout.format == ">":
        return [""]
    if layout.format == ">B":
        values = [source.new(f"b[{at}]")]
    else:
        values = [source.new() for _ in layout.format[1:].replace("16s", "s")]
        source.add(f"{', '.join(values)}, = {source.named(layout.unpack_from)}(b, {at})")
    source.add(f"{at} += {layout.size}")
    decoded = [
        value if each.decode is None else f"{source.named(each.decode)}({value})"
        for each, value in zip(types, values, strict=False)
    ]
    return [*decoded, values[-1] if first else ""]


def _read_tagged(source: FunctionSource, fields: Sequence[Field], at: str, count: str) -> dict[str, str]:
    """Reads tagged fields after the first byte of their number; the fields as expressions."""
    values = {field.name: source.new(source.named(field.default)) for field in fields}
    with source.block(f"if {count}"):
        tags = source.new()
        source.add(f"{tags}, {at} = read_tags(b, {at} - 1)")
        for field in fields:
            with source.block(f"if {field.tag} in {tags}"):
                start = source.new(f"{tags}[{field.tag}]")
                # A tagged struct has no null marker, because its absence means null.
                bare = field if field.array or field.struct is None else field._replace(nullable=False)
                source.add(f"{values[field.name]} = {_read_one(source, bare, True, start)}")
    return values


def _read_one(source: FunctionSource, field: Field, flexible: bool, at: str) -> str:
    """Reads a field that stands alone; the value as an expression."""
    if has_fixed_size(field):
        return _read_run(source, [field], "", at)[0]
    (first,) = _read_run(source, [], _first_letter(field, flexible), at)
    return _read_value(source, field, flexible, at, first)


def _read_value(source: FunctionSource, field: Field, flexible: bool, at: str, first: str) -> str:
    """Reads a field after the number that it begins with; the value as an expression."""
    if field.array:
        return _read_array(source, field, flexible, at, first)
    if field.struct is None:
        return _read_sized(source, field, flexible, at, first)
    if not field.nullable:
        return _read_struct(source, field.struct, at)
    value = source.new("None")
    with source.block(f"if {first} <= 0x7F"):
        source.add(f"{value} = {_read_struct(source, field.struct, at)}")
    return value


def _read_sized(source: FunctionSource, field: Field, flexible: bool, at: str, size: str) -> str:
    """Reads a string or bytes after their size, which in flexible versions is one more."""
    value, is_text = source.new(), field.kafka_type == "string"
    nullable = field.nullable or field.kafka_type in ("view", "parts", "records")
    if flexible and not is_text:
        with source.block(f"if {size} > 0x7F"):
            source.add(f"{size}, {at} = read_uvarint(b, {at} - 1)")
    bytes_size = f"{size} - 1" if flexible else size
    usual = f"{size} >= 0" if not flexible else f"0 < {size} < 0x80" if is_text else f"{size} > 0"
    if nullable:
        with source.block(f"if {f'not {size}' if flexible else f'{size} < 0'}"):
            source.add(f"{value} = None")
    end = source.new()
    with source.block(f"{'elif' if nullable else 'if'} {usual} and ({end} := {at} + {bytes_size}) <= length"):
        raw = f"b[{at}:{end}]"
        if is_text:
            raw = f'str({raw}, "utf-8", "replace")'
        elif field.kafka_type not in ("view", "parts"):
            raw = f"bytes({raw})"
        source.add(f"{value} = {raw}")
        source.add(f"{at} = {end}")
    with source.block("else"):
        if is_text:
            read = "read_string" if nullable else "read_name"
            head = 1 if flexible else struct.calcsize(">h")
            source.add(f"{value}, {at} = {read}(b, {at} - {head}, {flexible})")
        else:
            source.add(f"refuse_bytes(b, {at}, {bytes_size}, {nullable})")
    return value


def _read_array(source: FunctionSource, field: Field, flexible: bool, at: str, count: str) -> str:
    """Reads an array after its count, which in flexible versions is one more."""
    if flexible:
        source.add(f"{count} -= 1")
    items = source.new("None" if field.nullable else None)
    # Each item takes a byte at least.
    usual = f"-1 < {count} < 0x7F" if flexible else f"{count} >= 0"
    with source.block(f"if not ({usual} and {count} <= length - {at})"):
        read, head = (
            "read_count" if field.nullable else "read_items",
            1 if flexible else struct.calcsize(">i"),
        )
        source.add(f"{count}, {at} = {read}(b, {at} - {head}, {flexible})")
    with source.block(f"if {count} is not None") if field.nullable else nullcontext():
        fixed = FIXED.get(field.kafka_type)
        if fixed is not None and fixed.decode is None:
            # Most of what brokers send each other are replica lists.
            source.add(f'{items} = unpack_from(f">{{{count}}}{fixed.letter}", b, {at})')
            source.add(f"{at} += {count} * {struct.calcsize(fixed.letter)}")
            if field.array is list:
                source.add(f"{items} = list({items})")
        else:
            source.add(f"{items} = []")
            with source.block(f"for _ in range({count})"):
                item = field._replace(array=None, nullable=False)
                source.add(f"{items}.append({_read_one(source, item, flexible, at)})")
            if field.array is tuple:
                source.add(f"{items} = tuple({items})")
    return items
