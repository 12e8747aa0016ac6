"""Writes the sources of functions that read what shapes describe: into plain dicts and lists.

A function takes a buffer and a position, and gives a value and the position after it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import ClassVar, TypeAlias

from klog.formats import record_functions
from klog.formats.function_source import FunctionSource
from klog.formats.shapes import INT8, Array, Base128, Fixed, Nullable, Shape, Sized, Struct, Tagged
from klog.formats.values import Value

Reader: TypeAlias = Callable[[bytes, int], tuple[Value, int]]


def kafka_reader(shape: Struct) -> Reader:
    """The reader of a shape by the rules of `KafkaReaderSource`. It raises FormatError."""
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
    KafkaReaderSource(source).add("read", shape)
    found: Reader = source.function("read")
    return found


class ReaderSource:
    """Writes readers into a source. They read from `p` on, in the buffer `b`, and move `p`.

    Each method gives the value as an expression.
    """

    decode: ClassVar = ".decode()"
    uuid: ClassVar = "encode_uuid"

    def __init__(self, source: FunctionSource) -> None:
        self.source = source
        self.name = ""

    def add(self, name: str, shape: Shape) -> None:
        """Write the reader of a shape."""
        self.name = name
        with self.source.block(f"def {name}(b, p)"):
            self.source.add("length = len(b)")
            self.source.add(f"return {self.value(shape)}, p")

    def value(self, shape: Shape) -> str:
        match shape:
            case Struct():
                return self._struct(shape)
            case Fixed() | Base128():
                return self._number(shape)
            case Sized() | Array():
                return self._sized(shape, self._number(shape.length))
            case Tagged():
                return self.tagged_fields(shape)
            case Nullable():
                return self.nullable(shape)

    def _struct(self, shape: Struct) -> str:
        values: dict[str, str] = {}
        run: dict[str, Fixed] = {}
        for name, of in shape.fields:
            length = of.length if isinstance(of, (Sized, Array)) else of
            if isinstance(length, Fixed):
                run[name] = length
            if isinstance(of, Fixed):
                continue
            values.update(zip(run, self._run([*run.values()]), strict=True))
            # The length of a field belongs to the run of the fields before it.
            values[name] = (
                self._sized(of, values[name])
                if name in run and isinstance(of, (Sized, Array))
                else self.value(of)
            )
            run = {}
        values.update(zip(run, self._run([*run.values()]), strict=True))
        return self.made(shape, values)

    def made(self, _: Struct, values: Mapping[str, str]) -> str:
        """The value of a struct of the values of its fields."""
        return f"{{{', '.join(f'{name!r}: {value}' for name, value in values.items())}}}"

    def _run(self, fields: Sequence[Fixed]) -> list[str]:
        """Reads adjacent fields of fixed size."""
        if not fields:
            return []
        codes = "".join(each.code for each in fields)
        unpack = self.source.constant(f"_unpack_{codes}", f'Struct(">{codes}").unpack_from')
        values = [self.source.new() for _ in fields]
        self.source.add(f"{', '.join(values)}, = {unpack}(b, p)")
        self.source.add(f"p += {struct.calcsize('>' + codes)}")
        return [self._converted(each, value) for each, value in zip(fields, values, strict=True)]

    def _converted(self, shape: Fixed, value: str) -> str:
        if shape.kind == "uuid":
            return f"{self.uuid}({value})"
        if shape.kind == "bool":
            self.refuse(f"{value} > 1", value)
            return f"{value} == 1"
        if shape.constant is not None:
            self.refuse(f"{value} != {shape.constant!r}", value)
        return value

    def refuse(self, condition: str, number: str, of: str = "bytes") -> None:  # noqa: ARG002 (of subclasses)
        """Refuses a number of bytes or items, on a condition."""
        with self.source.block(f"if {condition}"):
            self.source.add("raise error")

    def _number(self, shape: Fixed | Base128) -> str:
        """A variable with a number of any form."""
        if isinstance(shape, Fixed):
            return self._run([shape])[0]
        number = self.source.new("b[p]")
        self.source.add("p += 1")
        with self.source.block(f"if {number} > 0x7F"):
            self.source.add(f"{number}, p = uvarint(b, p - 1, {shape.bits})")
        if shape.form == "plus one":
            self.source.add(f"{number} -= 1")
        elif shape.form == "zigzag":
            self.source.add(f"{number} = unzigzag({number})")
        return number

    def unless_null(self, length: str) -> AbstractContextManager[None]:
        """The block for what is not null. Any other negative length than -1 is refused."""
        self.refuse(f"{length} < -1", length)
        return self.source.block(f"if {length} >= 0")

    def _sized(self, shape: Sized | Array, length: str) -> str:
        value = self.source.new("None" if shape.null else None)
        negative = "" if shape.null else f"{length} < 0 or "
        with self.unless_null(length) if shape.null else nullcontext():
            if isinstance(shape, Array):
                self.refuse(f"{negative}{length} > length - p", length, "items")
                self._items(shape.item, length, value)
                return value
            end = self.source.new(f"p + {length}")
            self.refuse(f"{negative}{end} > length", length)
            self.source.add(f"{value} = b[p:{end}]{self.decode if shape.is_text else ''}")
            self.source.add(f"p = {end}")
        return value

    def _items(self, item: Shape, count: str, items: str) -> None:
        if isinstance(item, Fixed) and item.is_number:
            one = self.source.constant(f"_unpack_{item.code}", f'Struct(">{item.code}").unpack_from')
            many = f'unpack_from(f">{{{count}}}{item.code}", b, p)'
            self.source.add(f"{items} = list({one}(b, p) if {count} == 1 else {many})")
            self.source.add(f"p += {count} * {struct.calcsize('>' + item.code)}")
        else:
            self.source.add(f"{items} = []")
            with self.source.block(f"for _ in range({count})"):
                self.source.add(f"{items}.append({self.value(item)})")

    def known(self, shape: Tagged) -> str:
        """The names of tagged fields and their readers, by tag, as an expression."""
        readers: list[str] = []
        for tag, name, of in shape.known:
            reader = f"{self.name}_{name}"
            with self.source.before():
                type(self)(self.source).add(reader, of)
            readers.append(f'{tag}: ("{name}", {reader})')
        return f"{{{', '.join(readers)}}}"

    def tagged_fields(self, shape: Tagged) -> str:
        value = self.source.new("[]")
        with self.source.block("if b[p]"):
            self.source.add(f"{value}, p = tagged(b, p, {self.known(shape)})")
        with self.source.block("else"):
            self.source.add("p += 1")
        return value

    def nullable(self, shape: Nullable) -> str:
        mark, value = self._number(INT8), self.source.new("None")
        self.refuse(f"{mark} not in (1, {shape.null_mark})", mark)
        with self.source.block(f"if {mark} == 1"):
            self.source.add(f"{value} = {self.value(shape.fields)}")
        return value


class TupleSource(ReaderSource):
    """Writes readers that give the values of a struct without their names, also texts that are not UTF-8."""

    decode: ClassVar = '.decode("utf-8", "surrogateescape")'

    def add_walk(self, name: str, mark: bytes, item: Shape) -> None:
        """Write the reader of items up to a mark."""
        with self.source.block(f"def {name}(b, p)"):
            self.source.add("length = len(b)")
            with self.source.block("try"), self.source.block(f"while not b.startswith({mark!r}, p)"):
                self.source.add(f"yield {self.value(item)}, p")
            with self.source.block("except refusals"):
                self.source.add("pass")

    def made(self, _: Struct, values: Mapping[str, str]) -> str:
        return f"({', '.join(values.values())},)"


class KafkaReaderSource(ReaderSource):
    """Writes readers by the rules of Kafka's, with errors of their own, which `record_fields` has.

    Any negative length is null, numbers may have needless bytes, and unknown tagged fields are passed over.
    Known ones are values of the struct, if they are there. Text that is not UTF-8 is refused.
    """

    decode: ClassVar = '.decode("utf-8", "surrogatepass")'
    uuid: ClassVar = "uuid_text"

    def add(self, name: str, shape: Shape) -> None:
        self.name = name
        with self.source.block(f"def {name}(b, p)"):
            with self.source.block("try"):
                self.source.add("length = len(b)")
                self.source.add(f"return {self.value(shape)}, p")
            with self.source.block("except REFUSALS as error"):
                self.source.add("raise refusal(error, b, p) from None")

    def refuse(self, condition: str, number: str, of: str = "bytes") -> None:
        with self.source.block(f"if {condition}"):
            self.source.add(f'raise misfit({number}, "{of}", p)')

    def unless_null(self, length: str) -> AbstractContextManager[None]:
        return self.source.block(f"if {length} >= 0")

    def made(self, shape: Struct, values: Mapping[str, str]) -> str:
        fields = super().made(shape, {name: value for name, value in values.items() if value})
        end = shape.fields[-1][1] if shape.fields else None
        if not isinstance(end, Tagged) or not end.known:
            return fields
        value = self.source.new(fields)
        with self.source.block("if b[p]"):
            self.source.add(f"p = tagged(b, p, {value}, {self.known(end)})")
        with self.source.block("else"):
            self.source.add("p += 1")
        return value

    def tagged_fields(self, shape: Tagged) -> str:
        if not shape.known:
            self.source.add("p = tagged(b, p, {}, {}) if b[p] else p + 1")
        return ""

    def nullable(self, shape: Nullable) -> str:
        mark, value = self._number(INT8), self.source.new("None")
        with self.source.block(f"if {mark} {'>' if shape.null_mark == 0 else '>='} 0"):
            self.source.add(f"{value} = {self.value(shape.fields)}")
        return value
