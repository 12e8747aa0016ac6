"""Makes fast readers from Construct definitions: the same values as plain dicts and lists.

A reader takes a buffer and a position, and gives a value and the position after it. It accepts nothing that
its definition refuses. What it refuses, the definition is asked about (`read_all`), so that errors are the
same, and there is one definition of each format.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

import construct as c

from klog.formats import binary, names
from klog.formats import primitives as p
from klog.formats import structures as s
from klog.formats.function_source import FunctionSource
from klog.formats.values import Bytes, Value

Reader: TypeAlias = Callable[[bytes, int], tuple[Value, int]]
REFUSALS: Final = (struct.error, IndexError, ValueError)
"""What a reader raises for bytes that it leaves to its definition."""

_UUID_CODE: Final = "16s"


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
    source = FunctionSource(error=ValueError, unpack_from=struct.unpack_from, uvarint=_uvarint)
    with source.block("def read(b, p)"):
        source.add("length = len(b)")
        source.add(f"return {_value(source, definition)}, p")
    found: Reader = source.function("read")
    return found


def _plain(con: c.Construct) -> c.Construct:
    while isinstance(con, c.Renamed):
        con = con.subcon
    return con


def _fixed(con: c.Construct) -> str | None:
    """The code of `struct` of a field of fixed size; None of another one."""
    if isinstance(con, c.FormatField):
        return str(con.fmtstr[-1])
    if isinstance(con, p.UuidField):
        return _UUID_CODE
    if isinstance(con, p.BoolField):
        return "B"
    return _fixed(_plain(con.subcon)) if isinstance(con, c.Const) else None


def _value(source: FunctionSource, con: c.Construct) -> str:
    """Reads from `p` on, in the buffer `b`, and moves `p`; the value as an expression."""
    con = _plain(con)
    if isinstance(con, c.Struct):
        return _struct(source, con)
    if _fixed(con) is not None:
        return _run(source, [con])[0]
    if isinstance(con, p.SizedBytes):
        return _sized(source, con)
    if isinstance(con, p.SizedArray):
        return _array(source, con)
    if isinstance(con, (p.VarUInt, p.PlusOne)):
        return _length(source, con)
    if isinstance(con, s.TaggedFields):
        return _tagged_fields(source, con)
    raise TypeError(f"no fast reader of {con!r}")


def _struct(source: FunctionSource, con: c.Struct) -> str:
    values: dict[str, str] = {}
    run: list[c.Construct] = []
    for field in con.subcons:
        if _fixed(_plain(field)) is None:
            values.update(zip((each.name for each in run), _run(source, run), strict=True))
            run = []
            values[field.name] = _value(source, field)
        else:
            run.append(field)
    values.update(zip((each.name for each in run), _run(source, run), strict=True))
    return f"{{{', '.join(f'{name!r}: {value}' for name, value in values.items())}}}"


def _run(source: FunctionSource, fields: list[c.Construct]) -> list[str]:
    """Reads adjacent fields of fixed size."""
    if not fields:
        return []
    plain = [_plain(field) for field in fields]
    layout = struct.Struct(">" + "".join(str(_fixed(each)) for each in plain))
    values = [source.new() for _ in plain]
    source.add(f"{', '.join(values)}, = {source.named(layout.unpack_from)}(b, p)")
    source.add(f"p += {layout.size}")
    found = []
    for value, each in zip(values, plain, strict=True):
        if isinstance(each, p.UuidField):
            found.append(f"{source.named(names.encode_uuid)}({value})")
        elif isinstance(each, p.BoolField):
            _refuse(source, f"{value} > 1")
            found.append(f"{value} == 1")
        else:
            if isinstance(each, c.Const):
                _refuse(source, f"{value} != {each.value!r}")
            found.append(value)
    return found


def _refuse(source: FunctionSource, condition: str) -> None:
    with source.block(f"if {condition}"):
        source.add("raise error")


def _length(source: FunctionSource, con: c.Construct) -> str:
    """A variable with a number of any form."""
    if isinstance(con, c.FormatField):
        return _run(source, [con])[0]
    below = con.subcon if isinstance(con, p.PlusOne) else con
    number = source.new("b[p]")
    source.add("p += 1")
    with source.block(f"if {number} > 0x7F"):
        source.add(f"{number}, p = uvarint(b, p - 1, {below.bits})")
    source.add(f"{number} = {number} - 1" if isinstance(con, p.PlusOne) else _decoded(source, below, number))
    return number


def _decoded(source: FunctionSource, con: p.VarUInt, number: str) -> str:
    return f"{number} = {source.named(con.decode)}({number})"


def _uvarint(data: bytes, position: int, bits: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
    if (byte == 0 and shift) or value >> bits:
        raise ValueError
    return value, position


def _unless_null(source: FunctionSource, length: str, null: bool) -> str:
    """The head of a block for what is not null. A negative length is refused, or null."""
    if null:
        _refuse(source, f"{length} < -1")
        return f"if {length} >= 0"
    _refuse(source, f"{length} < 0")
    return "if True"


def _sized(source: FunctionSource, con: p.SizedBytes) -> str:
    size = _length(source, con.length)
    value = source.new("None")
    with source.block(_unless_null(source, size, con.null)):
        end = source.new(f"p + {size}")
        _refuse(source, f"{end} > length")
        is_text = isinstance(con, p.SizedString)
        source.add(
            f'{value} = str(b[p:{end}], "utf-8", "surrogateescape")' if is_text else f"{value} = b[p:{end}]"
        )
        source.add(f"p = {end}")
    return value


def _array(source: FunctionSource, con: p.SizedArray) -> str:
    count = _length(source, con.length)
    items = source.new("None")
    item = _plain(con.subcon)
    with source.block(_unless_null(source, count, con.null)):
        _refuse(source, f"{count} > length - p")
        if isinstance(item, c.FormatField):
            code = item.fmtstr[-1]
            source.add(f'{items} = list(unpack_from(f">{{{count}}}{code}", b, p))')
            source.add(f"p += {count} * {item.length}")
        else:
            source.add(f"{items} = []")
            with source.block(f"for _ in range({count})"):
                source.add(f"{items}.append({_value(source, item)})")
    return items


def _tagged_fields(source: FunctionSource, con: s.TaggedFields) -> str:
    read = _tagged_reader({tag: (field.name, reader(field)) for tag, field in con.known.items()})
    value = source.new("[]")
    with source.block("if b[p]"):
        source.add(f"{value}, p = {source.named(read)}(b, p)")
    with source.block("else"):
        source.add("p += 1")
    return value


def _tagged_reader(known: Mapping[int, tuple[str, Reader]]) -> Reader:
    def read(data: bytes, position: int) -> tuple[Value, int]:
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

    return read


def _whole(data: bytes, position: int) -> tuple[Bytes, int]:
    return data[position:], len(data)
