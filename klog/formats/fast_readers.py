"""Makes fast readers from Construct definitions: the same values as plain dicts and lists.

A reader takes a buffer and a position, and gives a value and the position after it. It accepts nothing that
its definition refuses. What it refuses, the definition is asked about (`read_all`), so that errors are the
same, and there is one definition of each format. `reader_source` writes their sources.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any, Final, TypeAlias

import construct as c

from klog.formats import binary, record_functions
from klog.formats import primitives as p
from klog.formats import structures as s
from klog.formats.definition_shapes import shape_of
from klog.formats.errors import FormatError
from klog.formats.function_source import FunctionSource
from klog.formats.packed import INT16
from klog.formats.reader_source import Reader, ReaderSource, TupleSource
from klog.formats.values import Bytes, Value

Walker: TypeAlias = Callable[[bytes, int], Iterator[tuple[tuple[Any, ...], int]]]
REFUSALS: Final = (struct.error, IndexError, ValueError, FormatError)
"""What a reader raises for bytes that it leaves to its definition."""


def read_all(
    reader: Reader, definition: c.Construct, data: bytes, what: str, position_bytes: int = 0
) -> Value:
    """The value of all bytes. Raises `FormatError` as `binary.parse_all`."""
    try:
        value, end = reader(data, 0)
    except REFUSALS:
        end = -1
    if end == len(data):
        return value
    return binary.parse_all(definition, data, what, position_bytes)


def reader(definition: c.Construct) -> Reader:
    """The reader of a definition."""
    source = _source()
    ReaderSource(source).add("read", shape_of(definition))
    found: Reader = source.function("read")
    return found


def walker(definition: s.UntilMark) -> Walker:
    """A function that gives the values of each item's fields, and where it ends.

    It stops at the mark, or at an item that it leaves to the definition.
    """
    source = _source()
    TupleSource(source).add_walk("walk", definition.mark, shape_of(definition.subcon))
    found: Walker = source.function("walk")
    return found


def _source() -> FunctionSource:
    return FunctionSource(
        Struct=struct.Struct,
        encode_uuid=record_functions.uuid_text,
        error=ValueError,
        refusals=REFUSALS,
        tagged=_tagged,
        unpack_from=struct.unpack_from,
        uvarint=_uvarint,
        unzigzag=p.VarInt.decode,
    )


def _reader_of_versions(definition: s.Versioned) -> Reader:
    """Reads a version and its fields. The reader of a version is made when it is needed first."""
    readers: dict[bytes, Reader] = {}  # by the bytes of the version
    size_bytes = INT16.size

    def read(data: bytes, position: int) -> tuple[Value, int]:
        raw = data[position : position + size_bytes]
        try:
            of_version = readers[raw]
        except KeyError:
            (version,) = INT16.unpack(raw)
            if version not in definition.versions:
                raise ValueError from None
            of_version = readers[raw] = reader(definition.whole(version))
        return of_version(data, position)

    return read


@cache
def reader_of(definition: c.Construct) -> Reader:
    """The reader of a definition, or of a version and its fields."""
    made = _reader_of_versions if isinstance(definition, s.Versioned) else reader
    return made(definition)


def _uvarint(data: bytes, position: int, bits: int) -> tuple[int, int]:
    value, end = record_functions.read_uvarint(data, position, bits)
    if (end - position > 1 and data[end - 1] == 0) or value >> bits:
        raise ValueError
    return value, end


def _tagged(
    data: bytes, position: int, known: Mapping[int, tuple[str, Reader]]
) -> tuple[list[dict[str, Value]], int]:
    count, position = _uvarint(data, position, p.UVarInt.bits)
    found: list[dict[str, Value]] = []
    last = -1
    for _ in range(count):
        tag, position = _uvarint(data, position, p.UVarInt.bits)
        size, position = _uvarint(data, position, p.UVarInt.bits)
        raw = data[position : position + size]
        if tag <= last or len(raw) < size:
            raise ValueError
        name, read_value = known.get(tag, (None, _whole))
        value, end = read_value(raw, 0)
        if end != size:
            raise ValueError
        found.append({"tag": tag, "name": name, "value": value})
        position += size
        last = tag
    return found, position


def _whole(data: bytes, position: int) -> tuple[Bytes, int]:
    return data[position:], len(data)
