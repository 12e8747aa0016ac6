"""Makes fast readers from Construct definitions: the same values as plain dicts and lists.

A reader takes a buffer and a position, and gives a value and the position after it. It accepts nothing that
its definition refuses. What it refuses, the definition is asked about (`read_all`), so that errors are the
same, and there is one definition of each format. `KafkaReaderSource` makes readers by other rules.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any, ClassVar, Final, TypeAlias

import construct as c

from klog.formats import binary, record_functions
from klog.formats import primitives as p
from klog.formats import structures as s
from klog.formats.errors import FormatError
from klog.formats.function_source import FunctionSource
from klog.formats.packed import INT16
from klog.formats.values import Bytes, Value

Reader: TypeAlias = Callable[[bytes, int], tuple[Value, int]]
Walker: TypeAlias = Callable[[bytes, int], Iterator[tuple[tuple[Any, ...], int]]]
REFUSALS: Final = (struct.error, IndexError, ValueError, FormatError)
"""What a reader raises for bytes that it leaves to its definition."""

UUID_CODE: Final = "16s"


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
    ReaderSource(source).add("read", definition)
    found: Reader = source.function("read")
    return found


@cache
def kafka_reader(definition: c.Construct) -> Reader:
    """The reader of a definition by the rules of `KafkaReaderSource`. It raises FormatError."""
    source = FunctionSource(
        REFUSALS=record_functions.REFUSALS,
        Struct=struct.Struct,
        misfit=record_functions.misfit,
        refusal=record_functions.refusal,
        tagged=record_functions.tagged,
        unpack_from=struct.unpack_from,
        uuid_text=record_functions.uuid_text,
        uvarint=record_functions.read_uvarint,
    )
    KafkaReaderSource(source).add("read", definition)
    found: Reader = source.function("read")
    return found


def walker(definition: s.UntilMark) -> Walker:
    """A function that gives the values of each item's fields, and where it ends.

    It stops at the mark, or at an item that it leaves to the definition.
    """
    source = _source()
    _TupleSource(source).add_walk("walk", definition)
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


def plain(con: c.Construct) -> c.Construct:
    """A definition without its name."""
    while isinstance(con, c.Renamed):
        con = con.subcon
    return con


def fixed(con: c.Construct) -> str | None:
    """The code of `struct` of a field of fixed size; None of another one."""
    con = plain(con)
    if isinstance(con, c.FormatField):
        return str(con.fmtstr[-1]).replace("l", "i").replace("L", "I")
    if isinstance(con, p.UuidField):
        return UUID_CODE
    if isinstance(con, p.BoolField):
        return "B"
    if isinstance(con, c.Bytes):
        return f"{con.length}s"
    return fixed(con.subcon) if isinstance(con, c.Const) else None


class ReaderSource:
    """Writes readers into a source. They read from `p` on, in the buffer `b`, and move `p`.

    Each method gives the value as an expression.
    """

    decode: ClassVar = ".decode()"
    uuid: ClassVar = "encode_uuid"

    def __init__(self, source: FunctionSource) -> None:
        self.source = source
        self.name = ""

    def add(self, name: str, con: c.Construct) -> None:
        """Write the reader of a definition."""
        self.name = name
        with self.source.block(f"def {name}(b, p)"):
            self.source.add("length = len(b)")
            self.source.add(f"return {self.value(con)}, p")

    def value(self, con: c.Construct) -> str:
        con = plain(con)
        if isinstance(con, c.Struct):
            return self._struct(con)
        if fixed(con) is not None:
            return self._run([con])[0]
        if isinstance(con, (p.SizedBytes, p.SizedArray)):
            return self._sized(con, self._length(con.length))
        if isinstance(con, (p.VarUInt, p.PlusOne)):
            return self._length(con)
        if isinstance(con, s.TaggedFields):
            return self.tagged_fields(con)
        if isinstance(con, s.NullableStruct):
            return self.nullable(con)
        raise TypeError(f"no fast reader of {con!r}")

    def _struct(self, con: c.Struct) -> str:
        values: dict[str, str] = {}
        run: list[c.Construct] = []
        for field in con.subcons:
            of = plain(field)
            length = of.length if isinstance(of, (p.SizedBytes, p.SizedArray)) else of
            if fixed(length) is not None:
                run.append(field.name / length)
            if of is length and fixed(of) is not None:
                continue
            values.update(zip((each.name for each in run), self._run(run), strict=True))
            # The length of a field belongs to the run of the fields before it.
            values[field.name] = (
                self._sized(of, values[field.name]) if field.name in values else self.value(of)
            )
            run = []
        values.update(zip((each.name for each in run), self._run(run), strict=True))
        return self.made(con, values)

    def made(self, _: c.Struct, values: Mapping[str, str]) -> str:
        """The value of a struct of the values of its fields."""
        return f"{{{', '.join(f'{name!r}: {value}' for name, value in values.items())}}}"

    def _run(self, fields: list[c.Construct]) -> list[str]:
        """Reads adjacent fields of fixed size."""
        if not fields:
            return []
        codes = "".join(str(fixed(each)) for each in fields)
        unpack = self.source.constant(f"_unpack_{codes}", f'Struct(">{codes}").unpack_from')
        values = [self.source.new() for _ in fields]
        self.source.add(f"{', '.join(values)}, = {unpack}(b, p)")
        self.source.add(f"p += {struct.calcsize('>' + codes)}")
        return [self._converted(plain(each), value) for each, value in zip(fields, values, strict=True)]

    def _converted(self, con: c.Construct, value: str) -> str:
        if isinstance(con, p.UuidField):
            return f"{self.uuid}({value})"
        if isinstance(con, p.BoolField):
            self.refuse(f"{value} > 1", value)
            return f"{value} == 1"
        if isinstance(con, c.Const):
            self.refuse(f"{value} != {con.value!r}", value)
        return value

    def refuse(self, condition: str, number: str, of: str = "bytes") -> None:  # noqa: ARG002 (of subclasses)
        """Refuses a number of bytes or items, on a condition."""
        with self.source.block(f"if {condition}"):
            self.source.add("raise error")

    def _length(self, con: c.Construct) -> str:
        """A variable with a number of any form."""
        if isinstance(con, c.FormatField):
            return self._run([con])[0]
        below = con.subcon if isinstance(con, p.PlusOne) else con
        number = self.source.new("b[p]")
        self.source.add("p += 1")
        with self.source.block(f"if {number} > 0x7F"):
            self.source.add(f"{number}, p = uvarint(b, p - 1, {below.bits})")
        if isinstance(con, p.PlusOne):
            self.source.add(f"{number} -= 1")
        elif isinstance(con, p.ZigZag):
            self.source.add(f"{number} = unzigzag({number})")
        return number

    def unless_null(self, length: str) -> AbstractContextManager[None]:
        """The block for what is not null. Any other negative length than -1 is refused."""
        self.refuse(f"{length} < -1", length)
        return self.source.block(f"if {length} >= 0")

    def _sized(self, con: p.SizedBytes | p.SizedArray, length: str) -> str:
        value = self.source.new("None" if con.null else None)
        negative = "" if con.null else f"{length} < 0 or "
        with self.unless_null(length) if con.null else nullcontext():
            if isinstance(con, p.SizedArray):
                self.refuse(f"{negative}{length} > length - p", length, "items")
                self._items(plain(con.subcon), length, value)
                return value
            end = self.source.new(f"p + {length}")
            self.refuse(f"{negative}{end} > length", length)
            self.source.add(f"{value} = b[p:{end}]{self.decode if isinstance(con, p.SizedString) else ''}")
            self.source.add(f"p = {end}")
        return value

    def _items(self, item: c.Construct, count: str, items: str) -> None:
        if isinstance(item, c.FormatField):
            one = self.source.constant(f"_unpack_{fixed(item)}", f'Struct(">{fixed(item)}").unpack_from')
            many = f'unpack_from(f">{{{count}}}{fixed(item)}", b, p)'
            self.source.add(f"{items} = list({one}(b, p) if {count} == 1 else {many})")
            self.source.add(f"p += {count} * {item.length}")
        else:
            self.source.add(f"{items} = []")
            with self.source.block(f"for _ in range({count})"):
                self.source.add(f"{items}.append({self.value(item)})")

    def known(self, con: s.TaggedFields) -> str:
        """The names of tagged fields and their readers, by tag, as an expression."""
        readers: list[str] = []
        for tag, field in con.known.items():
            name = f"{self.name}_{field.name}"
            with self.source.before():
                type(self)(self.source).add(name, field)
            readers.append(f'{tag}: ("{field.name}", {name})')
        return f"{{{', '.join(readers)}}}"

    def tagged_fields(self, con: s.TaggedFields) -> str:
        value = self.source.new("[]")
        with self.source.block("if b[p]"):
            self.source.add(f"{value}, p = tagged(b, p, {self.known(con)})")
        with self.source.block("else"):
            self.source.add("p += 1")
        return value

    def nullable(self, con: s.NullableStruct) -> str:
        mark, value = self._run([c.Int8sb])[0], self.source.new("None")
        self.refuse(f"{mark} not in (1, {con.null_mark})", mark)
        with self.source.block(f"if {mark} == 1"):
            self.source.add(f"{value} = {self.value(con.subcon)}")
        return value


class _TupleSource(ReaderSource):
    """Writes readers that give the values of a struct without their names, also texts that are not UTF-8."""

    decode: ClassVar = '.decode("utf-8", "surrogateescape")'

    def add_walk(self, name: str, con: s.UntilMark) -> None:
        with self.source.block(f"def {name}(b, p)"):
            self.source.add("length = len(b)")
            with self.source.block("try"), self.source.block(f"while not b.startswith({con.mark!r}, p)"):
                self.source.add(f"yield {self.value(con.subcon)}, p")
            with self.source.block("except refusals"):
                self.source.add("pass")

    def made(self, _: c.Struct, values: Mapping[str, str]) -> str:
        return f"({', '.join(values.values())},)"


class KafkaReaderSource(ReaderSource):
    """Writes readers by the rules of Kafka's, with errors of their own, which `record_fields` has.

    Any negative length is null, numbers may have needless bytes, and unknown tagged fields are passed over.
    Known ones are values of the struct, if they are there. Text that is not UTF-8 is refused.
    """

    decode: ClassVar = '.decode("utf-8", "surrogatepass")'
    uuid: ClassVar = "uuid_text"

    def add(self, name: str, con: c.Construct) -> None:
        self.name = name
        with self.source.block(f"def {name}(b, p)"):
            with self.source.block("try"):
                self.source.add("length = len(b)")
                self.source.add(f"return {self.value(con)}, p")
            with self.source.block("except REFUSALS as error"):
                self.source.add("raise refusal(error, b, p) from None")

    def refuse(self, condition: str, number: str, of: str = "bytes") -> None:
        with self.source.block(f"if {condition}"):
            self.source.add(f'raise misfit({number}, "{of}", p)')

    def unless_null(self, length: str) -> AbstractContextManager[None]:
        return self.source.block(f"if {length} >= 0")

    def made(self, con: c.Struct, values: Mapping[str, str]) -> str:
        ends = [plain(field) for field in con.subcons if isinstance(plain(field), s.TaggedFields)]
        fields = super().made(con, {name: value for name, value in values.items() if value})
        if not ends or not ends[0].known:
            return fields
        value = self.source.new(fields)
        with self.source.block("if b[p]"):
            self.source.add(f"p = tagged(b, p, {value}, {self.known(ends[0])})")
        with self.source.block("else"):
            self.source.add("p += 1")
        return value

    def tagged_fields(self, con: s.TaggedFields) -> str:
        if not con.known:
            self.source.add("p = tagged(b, p, {}, {}) if b[p] else p + 1")
        return ""

    def nullable(self, con: s.NullableStruct) -> str:
        mark, value = self._run([c.Int8sb])[0], self.source.new("None")
        with self.source.block(f"if {mark} {'>' if con.null_mark == 0 else '>='} 0"):
            self.source.add(f"{value} = {self.value(con.subcon)}")
        return value


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
