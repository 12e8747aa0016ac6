"""Makes writers of messages from their fields. Their sources name the parts of the message `parts`.

Rules: the protocol guide, KIP-482 (a tagged field is written if it differs from its default, in the order of
tags), KIP-893 (nullable structs).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from operator import itemgetter
from typing import Any

from klog.formats.function_source import FunctionSource
from klog.formats.varints import ONE_BYTE, uvarint
from klog.protocol.codec import FIXED, Field, Shape
from klog.protocol.file_slice import parts_of
from klog.protocol.primitives import write_tags


def writer(shape: Shape) -> Callable[[Any], list[Any]]:
    """Makes the parts of a message; views are parts as they are. Raises REFUSALS."""
    source = FunctionSource(
        one_byte=ONE_BYTE, pack=struct.pack, parts_of=parts_of, tags=write_tags, uvarint=uvarint
    )
    with source.block("def write(message)"):
        source.add("parts = []")
        parts = _Parts(source, "parts")
        _write_struct(parts, shape, "message")
        parts.end_numbers()
        source.add("return parts")
    found: Callable[[Any], list[Any]] = source.function("write")
    return found


class _Parts:
    """Adds parts to a list. Adjacent numbers are one part: a branch, a loop or what follows ends them."""

    def __init__(self, source: FunctionSource, into: str) -> None:
        self.source = source
        self.into = into
        self._codes = ""
        self._numbers: list[str] = []

    def number(self, code: str, value: str = "") -> None:
        """A number, or as many zeros as the code says."""
        self._codes += code
        self._numbers += [value] if value else []

    def part(self, value: str) -> None:
        """Bytes."""
        self.end_numbers()
        self.source.add(f"{self.into}.append({value})")

    def several(self, values: str) -> None:
        """Bytes in several parts."""
        self.end_numbers()
        self.source.add(f"{self.into} += {values}")

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """A branch or a loop that adds parts."""
        self.end_numbers()
        with self.source.block(head):
            yield
            self.end_numbers()

    def end_numbers(self) -> None:
        """Add the numbers that were given last."""
        if self._numbers:
            pack = self.source.named(struct.Struct(f">{self._codes}").pack)
            self.source.add(f"{self.into}.append({pack}({', '.join(self._numbers)}))")
        elif self._codes:
            self.source.add(f"{self.into}.append({bytes(struct.calcsize(f'>{self._codes}'))!r})")
        self._codes, self._numbers = "", []


def _write_struct(parts: _Parts, shape: Shape, value: str) -> None:
    """Writes the struct in the variable `value`."""
    order, source = shape.order(), parts.source
    values = {field.name: f"{value}.{field.name}" for field in shape.fields}
    if order is not None:
        values = {name: source.new() for name in order}
        source.add(f"{', '.join(values.values())}, = {value}")
    tagged: list[tuple[int, Field]] = []
    for field in shape.fields:
        if field.tag is None:
            _write_value(parts, field, shape.flexible, values[field.name])
        else:
            tagged.append((field.tag, field))
    if tagged:
        _write_tagged(parts, sorted(tagged, key=itemgetter(0)), values)
    elif shape.flexible:
        parts.number("x")


def _write_tagged(parts: _Parts, fields: Sequence[tuple[int, Field]], values: Mapping[str, str]) -> None:
    source = parts.source
    tags = source.new("[]")
    for tag, field in fields:
        value, default = _variable(source, values[field.name]), source.named(field.default)
        with source.block(f"if {value} is not {default} and {value} != {default}"):
            own = _Parts(source, source.new("[]"))
            bare = field if field.array or field.struct is None else field._replace(nullable=False)
            _write_value(own, bare, True, value)
            own.end_numbers()
            source.add(f'{tags}.append(({tag}, b"".join({own.into})))')
    parts.part(f'tags({tags}) if {tags} else b"\\0"')


def _variable(source: FunctionSource, value: str) -> str:
    """A variable with a value. One that has it already is not needed otherwise."""
    return value if value.isidentifier() else source.new(value)


def _write_value(parts: _Parts, field: Field, flexible: bool, value: str) -> None:
    fixed = FIXED.get(field.kafka_type)
    if field.array:
        _write_array(parts, field, flexible, value)
    elif field.struct is not None:
        _write_nested(parts, field.struct, field.nullable, value)
    elif fixed is not None:
        named = value if fixed.encode is None else f"{parts.source.named(fixed.encode)}({value})"
        parts.number(fixed.letter, named)
    else:
        _write_sized(parts, field, flexible, value)


@contextmanager
def _unless_null(parts: _Parts, value: str, null: bytes | None) -> Iterator[None]:
    """The block for a value that is not null. `null` are the bytes of null, if the field may be null."""
    if null is None:
        yield
        return
    with parts.block(f"if {value} is None"):
        parts.part(repr(null))
    with parts.block("else"):
        yield


def _write_nested(parts: _Parts, shape: Shape, nullable: bool, value: str) -> None:
    value = _variable(parts.source, value)
    with _unless_null(parts, value, b"\xff" if nullable else None):
        if nullable:
            parts.number("b", "1")
        _write_struct(parts, shape, value)


def _null(flexible: bool, letter: str) -> bytes:
    """A size or a count of -1."""
    return b"\0" if flexible else struct.pack(f">{letter}", -1)


def _write_size(parts: _Parts, flexible: bool, size: str, letter: str) -> None:
    """Writes a size or a count; in flexible versions one more."""
    if flexible:
        more = parts.source.new(f"{size} + 1")
        parts.part(f"one_byte[{more}] if {more} < 0x80 else uvarint({more})")
    else:
        parts.number(letter, size)


def _write_sized(parts: _Parts, field: Field, flexible: bool, value: str) -> None:
    """Writes a string or bytes after their size."""
    source, is_text = parts.source, field.kafka_type == "string"
    letter = "h" if is_text else "i"
    value = _variable(source, value)
    if field.kafka_type == "parts":
        size = source.new()
        source.add(f"{value}, {size} = parts_of({value})")
        _write_size(parts, flexible, size, letter)
        parts.several(value)
        return
    nullable = field.nullable or field.kafka_type in ("records", "view")
    with _unless_null(parts, value, _null(flexible, letter) if nullable else None):
        if is_text:
            source.add(f'{value} = {value}.encode("utf-8", "surrogateescape")')
        _write_size(parts, flexible, f"len({value})", letter)
        parts.part(value)


def _write_array(parts: _Parts, field: Field, flexible: bool, value: str) -> None:
    source, value = parts.source, _variable(parts.source, value)
    with _unless_null(parts, value, _null(flexible, "i") if field.nullable else None):
        _write_size(parts, flexible, f"len({value})", "i")
        fixed = FIXED.get(field.kafka_type)
        if fixed is not None and fixed.decode is None:
            with parts.block(f"if {value}"):
                parts.part(f'pack(f">{{len({value})}}{fixed.letter}", *{value})')
            return
        item = source.new()
        with parts.block(f"for {item} in {value}"):
            _write_value(parts, field._replace(array=None, nullable=False), flexible, item)
