"""Makes fast writers from Construct definitions: the same bytes, of plain values, mappings and lists.

A writer takes a mapping that has the fields by their names, and gives the bytes. One of `WriterSource.add`
takes a version, and the fields by their names, and writes both. Fields that the version does not have are
passed over. A tagged field is written if it is given. A struct within is a mapping.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import Final, NamedTuple, TypeAlias

import construct as c

from klog.formats import primitives as p
from klog.formats import structures as s
from klog.formats.fast_readers import fixed, plain
from klog.formats.function_source import FunctionSource
from klog.formats.record_functions import tagged_fields, too_long, uuid_bytes
from klog.formats.values import Value
from klog.formats.varints import uvarint

Writer: TypeAlias = Callable[[Mapping[str, Value]], bytes]

_LONGEST_STRING_BYTES: Final = 2**15 - 1
_MANY_PIECES: Final = 4  # so many are joined faster than added


class Part(NamedTuple):
    """A part of what is written: a value with its code of `struct`, or bytes."""

    value: str
    code: str = ""


_VERSION: Final = Part("version", "h")
_END: Final = Part("", "x")
_ARGUMENTS: Final = ""  # in place of a mapping


def _field(of: str, name: str) -> str:
    return name if of == _ARGUMENTS else f'{of}["{name}"]'


def _parameters(con: c.Struct) -> Iterator[str]:
    for field in con.subcons:
        if isinstance(plain(field), s.TaggedFields):
            yield from (f"{known.name}=ABSENT" for known in plain(field).known.values())
        else:
            yield str(field.name)


def writer(definition: c.Construct) -> Writer:
    """The writer of a definition."""
    source = FunctionSource(
        Struct=struct.Struct,
        pack=struct.pack,
        tagged_fields=tagged_fields,
        too_long=too_long,
        uuid_bytes=uuid_bytes,
        write_uvarint=uvarint,
    )
    WriterSource(source).add_fields("write", definition)
    found: Writer = source.function("write")
    return found


class WriterSource:
    """Writes writers into a source. Each method gives the parts that it writes."""

    def __init__(self, source: FunctionSource) -> None:
        self.source = source

    def add(self, name: str, con: c.Construct) -> None:
        """Write the writer of the fields after a version."""
        with self.source.block(f"def {name}(version, /, {', '.join([*_parameters(plain(con)), '**_'])})"):
            self.source.add(f"return {self._joined([_VERSION, *self._parts(con, _ARGUMENTS)])}")

    def add_fields(self, name: str, con: c.Construct) -> None:
        """Write the writer of the fields alone."""
        with self.source.block(f"def {name}(value)"):
            self.source.add(f"return {self._joined(self._parts(con, 'value'))}")

    def _pieces(self, parts: Sequence[Part]) -> list[str]:
        """Bytes as expressions: adjacent values of fixed size in one."""
        pieces: list[str] = []
        run: list[Part] = []
        for part in (*parts, Part("")):
            if part.code:
                run.append(part)
                continue
            if run:
                pieces.append(self._packed("".join(each.code for each in run), [each.value for each in run]))
                run = []
            if part.value:
                pieces.append(part.value)
        return pieces

    def _packed(self, codes: str, values: Sequence[str]) -> str:
        if not any(values):
            return repr(bytes(len(codes)))
        pack = self.source.constant(f"_pack_{codes}", f'Struct(">{codes}").pack')
        return f"{pack}({', '.join(filter(None, values))})"

    def _joined(self, parts: Sequence[Part]) -> str:
        pieces = self._pieces(parts)
        return " + ".join(pieces) if len(pieces) < _MANY_PIECES else f'b"".join(({", ".join(pieces)}))'

    def _parts(self, con: c.Construct, value: str) -> list[Part]:
        con = plain(con)
        if isinstance(con, c.Struct):
            return [
                part
                for field in con.subcons
                for part in (
                    self._tagged(plain(field), value)
                    if isinstance(plain(field), s.TaggedFields)
                    else self._parts(field, _field(value, field.name))
                )
            ]
        code = fixed(con)
        if code is not None:
            return [Part(f"uuid_bytes({value})" if isinstance(con, p.UuidField) else value, code)]
        if isinstance(con, p.SizedBytes):
            return self._sized(con, value)
        if isinstance(con, p.SizedArray):
            return self._array(con, value)
        if isinstance(con, s.NullableStruct):
            return self._nullable(con, value)
        raise TypeError(f"no fast writer of {con!r}")

    def _length(self, con: c.Construct, length: str) -> Part:
        code = fixed(con)
        if code is not None:
            return Part(length, code)
        return Part(f"write_uvarint({length} + 1)")

    def _sized(self, con: p.SizedBytes, value: str) -> list[Part]:
        raw, length = self.source.new(), self.source.new()
        if con.null:
            with self.source.block(f"if {value} is None"):
                self.source.add(f'{raw}, {length} = b"", -1')
        with self.source.block("else") if con.null else nullcontext():
            if isinstance(con, p.SizedString):
                self.source.add(f'{raw} = {value}.encode("utf-8", "surrogatepass")')
                self.source.add(f"{length} = len({raw})")
                with self.source.block(f"if {length} > {_LONGEST_STRING_BYTES}"):
                    self.source.add(f"raise too_long({length})")
            else:
                self.source.add(f"{raw} = {value}")
                self.source.add(f"{length} = len({raw})")
        return [self._length(con.length, length), Part(raw)]

    def _array(self, con: p.SizedArray, value: str) -> list[Part]:
        raw, item = self.source.new(value), plain(con.subcon)
        items = f"({raw} or ())" if con.null else raw
        length = self._length(
            con.length, f"(-1 if {raw} is None else len({raw}))" if con.null else f"len({raw})"
        )
        if isinstance(item, c.FormatField):
            code = str(fixed(item))
            many = f"{{len({items})}}{code}"
            if not length.code:
                return [length, Part(f'pack(f">{many}", *{items})')]
            one = self._packed(length.code + code, ["1", f"{raw}[0]"])
            packed = f'pack(f">{length.code}{many}", {length.value}, *{items})'
            return [Part(f"({one} if len({items}) == 1 else {packed})")]
        written = self.source.new('b""')
        with self.source.block(f"if {raw}"):
            each, pieces = self.source.new(), self.source.new("[]")
            with self.source.block(f"for {each} in {raw}"):
                self.source.add(f"{pieces} += ({', '.join(self._pieces(self._parts(item, each)))},)")
            self.source.add(f'{written} = b"".join({pieces})')
        return [length, Part(written)]

    def _tagged(self, con: s.TaggedFields, value: str) -> list[Part]:
        if not con.known:
            return [_END]
        fields = self.source.new("[]")
        for tag, field in sorted(con.known.items()):
            given = f"{field.name} is not ABSENT" if value == _ARGUMENTS else f'"{field.name}" in {value}'
            with self.source.block(f"if {given}"):
                written = self._joined(self._parts(field, _field(value, field.name)))
                self.source.add(f"{fields}.append(({tag}, {written}))")
        return [Part(f"tagged_fields({fields})")]

    def _nullable(self, con: s.NullableStruct, value: str) -> list[Part]:
        raw, written = self.source.new(value), self.source.new()
        with self.source.block(f"if {raw} is None"):
            self.source.add(f"{written} = {self._joined([Part(str(con.null_mark), 'b')])}")
        with self.source.block("else"):
            self.source.add(f"{written} = {self._joined([Part('1', 'b'), *self._parts(con.subcon, raw)])}")
        return [Part(written)]
