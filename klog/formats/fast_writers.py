"""Makes fast writers of shapes: the bytes of definitions, of plain values, mappings and lists.

A writer takes a mapping that has the fields by their names, and gives the bytes. One of `WriterSource.add`
takes a version, and the fields by their names, and writes both. Fields that the version does not have are
passed over. A tagged field is written if it is given. A struct within is a mapping.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import Final, NamedTuple, TypeAlias

from klog.formats.function_source import FunctionSource
from klog.formats.record_functions import ABSENT, tagged_fields, too_long, uuid_bytes
from klog.formats.shapes import Array, Base128, Fixed, Nullable, Shape, Sized, Struct, Tagged
from klog.formats.values import Value
from klog.formats.varints import uvarint

Writer: TypeAlias = Callable[[Mapping[str, Value]], bytes]
VersionWriter: TypeAlias = Callable[..., bytes]

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


def _parameters(shape: Struct) -> Iterator[str]:
    for name, of in shape.fields:
        if isinstance(of, Tagged):
            yield from (f"{known}=ABSENT" for _, known, _ in of.known)
        else:
            yield name


def writer(shape: Struct) -> Writer:
    """The writer of the fields alone."""
    source = _source()
    WriterSource(source).add_fields("write", shape)
    found: Writer = source.function("write")
    return found


def version_writer(shape: Struct) -> VersionWriter:
    """The writer of a version and its fields."""
    source = _source()
    WriterSource(source).add("write", shape)
    found: VersionWriter = source.function("write")
    return found


def _source() -> FunctionSource:
    return FunctionSource(
        ABSENT=ABSENT,
        Struct=struct.Struct,
        pack=struct.pack,
        tagged_fields=tagged_fields,
        too_long=too_long,
        uuid_bytes=uuid_bytes,
        write_uvarint=uvarint,
    )


class WriterSource:
    """Writes writers into a source. Each method gives the parts that it writes."""

    def __init__(self, source: FunctionSource) -> None:
        self.source = source

    def add(self, name: str, shape: Struct) -> None:
        """Write the writer of the fields after a version."""
        with self.source.block(f"def {name}(version, /, {', '.join([*_parameters(shape), '**_'])})"):
            self.source.add(f"return {self._joined([_VERSION, *self._parts(shape, _ARGUMENTS)])}")

    def add_fields(self, name: str, shape: Struct) -> None:
        """Write the writer of the fields alone."""
        with self.source.block(f"def {name}(value)"):
            self.source.add(f"return {self._joined(self._parts(shape, 'value'))}")

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

    def _parts(self, shape: Shape, value: str) -> list[Part]:
        match shape:
            case Struct():
                return [
                    part
                    for name, of in shape.fields
                    for part in (
                        self._tagged(of, value)
                        if isinstance(of, Tagged)
                        else self._parts(of, _field(value, name))
                    )
                ]
            case Fixed():
                return [Part(f"uuid_bytes({value})" if shape.kind == "uuid" else value, shape.code)]
            case Sized():
                return self._sized(shape, value)
            case Array():
                return self._array(shape, value)
            case Nullable():
                return self._nullable(shape, value)
        raise TypeError(f"no fast writer of {shape}")

    def _length(self, shape: Fixed | Base128, length: str) -> Part:
        return Part(length, shape.code) if isinstance(shape, Fixed) else Part(f"write_uvarint({length} + 1)")

    def _sized(self, shape: Sized, value: str) -> list[Part]:
        raw, length = self.source.new(), self.source.new()
        if shape.null:
            with self.source.block(f"if {value} is None"):
                self.source.add(f'{raw}, {length} = b"", -1')
        with self.source.block("else") if shape.null else nullcontext():
            if shape.is_text:
                self.source.add(f'{raw} = {value}.encode("utf-8", "surrogatepass")')
                self.source.add(f"{length} = len({raw})")
                with self.source.block(f"if {length} > {_LONGEST_STRING_BYTES}"):
                    self.source.add(f"raise too_long({length})")
            else:
                self.source.add(f"{raw} = {value}")
                self.source.add(f"{length} = len({raw})")
        return [self._length(shape.length, length), Part(raw)]

    def _array(self, shape: Array, value: str) -> list[Part]:
        raw, item = self.source.new(value), shape.item
        items = f"({raw} or ())" if shape.null else raw
        length = self._length(
            shape.length, f"(-1 if {raw} is None else len({raw}))" if shape.null else f"len({raw})"
        )
        if isinstance(item, Fixed) and item.is_number:
            many = f"{{len({items})}}{item.code}"
            if not length.code:
                return [length, Part(f'pack(f">{many}", *{items})')]
            one = self._packed(length.code + item.code, ["1", f"{raw}[0]"])
            packed = f'pack(f">{length.code}{many}", {length.value}, *{items})'
            return [Part(f"({one} if len({items}) == 1 else {packed})")]
        written = self.source.new('b""')
        with self.source.block(f"if {raw}"):
            each, pieces = self.source.new(), self.source.new("[]")
            with self.source.block(f"for {each} in {raw}"):
                self.source.add(f"{pieces} += ({', '.join(self._pieces(self._parts(item, each)))},)")
            self.source.add(f'{written} = b"".join({pieces})')
        return [length, Part(written)]

    def _tagged(self, shape: Tagged, value: str) -> list[Part]:
        if not shape.known:
            return [_END]
        fields = self.source.new("[]")
        for tag, name, of in sorted(shape.known):
            given = f"{name} is not ABSENT" if value == _ARGUMENTS else f'"{name}" in {value}'
            with self.source.block(f"if {given}"):
                written = self._joined(self._parts(of, _field(value, name)))
                self.source.add(f"{fields}.append(({tag}, {written}))")
        return [Part(f"tagged_fields({fields})")]

    def _nullable(self, shape: Nullable, value: str) -> list[Part]:
        raw, written = self.source.new(value), self.source.new()
        with self.source.block(f"if {raw} is None"):
            self.source.add(f"{written} = {self._joined([Part(str(shape.null_mark), 'b')])}")
        with self.source.block("else"):
            self.source.add(f"{written} = {self._joined([Part('1', 'b'), *self._parts(shape.fields, raw)])}")
        return [Part(written)]
