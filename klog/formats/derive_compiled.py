"""Makes `kernel/_derived_records.pxi`: structs of C, and functions that read, measure and write their bytes.

Compiled modules include it. The order and the types of fields come from the definitions.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final, NamedTuple

import construct as c

from klog.formats import consumer_offsets, control_records, message_set, record_batch
from klog.formats import primitives as p
from klog.formats.constants import COMMIT_KEY_VERSION, COMMIT_VALUE_VERSION
from klog.formats.definition_shapes import fixed, plain


def _part(con: c.Struct, first: str = "", end: str = "") -> c.Struct:
    """The fields of a definition from one on, before another."""
    names = [field.name for field in con.subcons]
    return c.Struct(
        *con.subcons[names.index(first) if first else 0 : names.index(end) if end else len(names)]
    )


_RECORD: Final = record_batch.Record.subcon
_MESSAGE: Final = plain(message_set.Message.subcons[-1]).subcon

SOURCES: Final[dict[str, c.Struct]] = {
    "record": _RECORD,
    "record_head": _part(_RECORD, end="key"),
    "record_header": record_batch.Header,
    "message_data": _part(_MESSAGE, "key"),
    "control_key": _part(control_records.ControlKey, end="rest"),
    "end_txn_marker": _part(control_records.EndTxnMarker, end="rest"),
    "commit_key": consumer_offsets.Key.whole(COMMIT_KEY_VERSION),
    "commit_value": consumer_offsets.OffsetCommitValue.whole(COMMIT_VALUE_VERSION),
}
"""What is made, by the words in the names of its struct and functions."""
READ_ONLY: Final = ("record_header", "control_key", "end_txn_marker")
"""What compiled modules only read."""
SIZE_SOURCES: Final = {"record": record_batch.Record.length}
"""The size that stands before the fields."""


class _Number(NamedTuple):
    """A number, or how many bytes or items follow. `code` is that of `struct`; without one it is a varint."""

    place: str
    bits: int
    code: str = ""


class _Data(NamedTuple):
    """The bytes after their size."""

    place: str
    null: bool


def _steps(con: c.Struct) -> Iterator[_Number | _Data]:
    """What is read, in the order of the bytes. The items of an array are left to the caller."""
    for field in con.subcons:
        of = plain(field)
        if isinstance(of, p.SizedBytes):
            yield _number(f"{field.name}.size", of.length)
            yield _Data(field.name, of.null)
        else:
            yield _number(field.name, of.length if isinstance(of, p.SizedArray) else of)


def _number(place: str, con: c.Construct) -> _Number:
    code = fixed(con.subcon if isinstance(con, c.Enum) else con)
    if code is not None:
        return _Number(place, 8 * struct.calcsize(">" + code), code)
    if isinstance(con, p.ZigZag):
        return _Number(place, 64 if con is p.VarLong else 32)
    raise TypeError(f"compiled modules read no {con!r}")


class _Form:
    """The struct and the functions of one definition."""

    def __init__(self, name: str, con: c.Struct) -> None:
        self.name = name
        self.struct = "".join(map(str.title, name.split("_"))) + "Fields"
        self.steps = list(_steps(con))
        self.runs = [
            (is_run, list(run))
            for is_run, run in groupby(self.steps, lambda step: isinstance(step, _Number) and step.code != "")
        ]

    def lines(self) -> Iterator[str]:
        """All of it that compiled modules use."""
        writing = () if self.name in READ_ONLY else (self._size(), self._writer())
        for lines in (self._fields(), self._reader(), *writing):
            yield from lines
            yield from ("", "")

    def _fields(self) -> Iterator[str]:
        yield f"cdef struct {self.struct}:"
        for step in self.steps:
            if isinstance(step, _Data):
                yield f"    Data {step.place}"
            elif "." not in step.place:
                yield f"    int{step.bits}_t {step.place}"

    def _function(self, kind: str, arguments: str) -> str:
        return f"cdef inline {kind}_{self.name}({arguments}) noexcept nogil:"

    def _reader(self) -> Iterator[str]:
        yield self._function(
            "const uint8_t *read", f"const uint8_t *p, const uint8_t *stop, {self.struct} *fields"
        )
        for is_run, steps in self.runs:
            if is_run:
                yield f"    if stop - p < {_size_bytes(steps)}:"
                yield "        return NULL"
                for number, at in _places(steps):
                    yield f"    fields.{number.place} = <int{number.bits}_t>be{number.bits}({at})"
                yield f"    p += {_size_bytes(steps)}"
            else:
                for step in steps:
                    yield from _data_reader(step) if isinstance(step, _Data) else _varint_reader(step)
        yield "    return p"

    def _size(self) -> Iterator[str]:
        yield self._function("int64_t size_of", f"const {self.struct} *fields")
        yield "    return ("
        yield f"        {sum(_size_bytes(steps) for is_run, steps in self.runs if is_run)}"
        for is_run, steps in self.runs:
            for step in () if is_run else steps:
                if isinstance(step, _Data):
                    yield f"        + bytes_of(&fields.{step.place})"
                else:
                    yield f"        + size_of_varint(zigzag64(fields.{step.place}))"
        yield "    )"

    def _writer(self) -> Iterator[str]:
        yield self._function("uint8_t *write", f"uint8_t *p, {self.struct} *fields")
        for is_run, steps in self.runs:
            if is_run:
                for number, at in _places(steps):
                    yield f"    put{number.bits}({at}, <uint{number.bits}_t>fields.{number.place})"
                yield f"    p += {_size_bytes(steps)}"
            else:
                for step in steps:
                    put = "put_data(p, &" if isinstance(step, _Data) else "put_varint(p, zigzag64("
                    yield f"    p = {put}fields.{step.place}{')' * put.count('(')}"
        yield "    return p"


def _size_bytes(run: Sequence[_Number | _Data]) -> int:
    return sum(step.bits for step in run if isinstance(step, _Number)) // 8


def _places(run: Sequence[_Number | _Data]) -> Iterator[tuple[_Number, str]]:
    at = 0
    for step in run:
        if isinstance(step, _Number):
            yield step, f"p + {at}" if at else "p"
            at += step.bits // 8


def _varint_reader(step: _Number) -> Iterator[str]:
    yield f"    p = varint{step.bits}(p, stop, &fields.{step.place})"
    yield "    if p == NULL:"
    yield "        return NULL"


def _data_reader(step: _Data) -> Iterator[str]:
    size = f"fields.{step.place}.size"
    yield f"    fields.{step.place}.start = p"
    yield f"    if {'' if step.null else f'{size} < 0 or '}{size} > stop - p:"
    yield "        return NULL"
    if step.null:
        yield f"    if {size} > 0:"
    yield f"    {'    ' if step.null else ''}p += {size}"


_HEAD: Final = '''\
# Records as structs of C, with functions that read them, measure and write them. Made by
# `python -m klog.formats.derive`: do not edit.
#
# A `read_` function gives the position after the fields; NULL if they do not end before `stop`, or if
# something is null that may not be. A `write_` function writes as many bytes as `size_of_` says. Of an array
# there is only the number of items, which are its last bytes.
#
# `_numbers.pxi` and `_varint.pxi` must be included before.

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy


cdef struct Data:  # null if `size` is negative
    const uint8_t *start
    int32_t size


cdef inline int64_t bytes_of(const Data *data) noexcept nogil:
    return data.size if data.size > 0 else 0


cdef inline uint8_t *put_data(uint8_t *p, Data *data) noexcept nogil:
    """Without a start, the caller writes the bytes to where they start then."""
    if data.start == NULL:
        data.start = p
    elif data.size > 0:
        memcpy(p, data.start, data.size)
    return p + bytes_of(data)

'''


def include_text() -> str:
    """The text of `kernel/_derived_records.pxi`."""
    lines = [_HEAD]
    for name, con in SOURCES.items():
        lines += _Form(name, con).lines()
    for name, length in SIZE_SOURCES.items():
        bits = _number(name, length).bits
        lines += [
            f"cdef inline const uint8_t *read_size_of_{name}(",
            f"    const uint8_t *p, const uint8_t *stop, int{bits}_t *size",
            ") noexcept nogil:",
            f"    return varint{bits}(p, stop, size)",
            "",
            "",
            f"cdef inline uint8_t *write_size_of_{name}(uint8_t *p, int{bits}_t size) noexcept nogil:",
            "    return put_varint(p, zigzag64(size))",
            "",
            "",
        ]
    return "\n".join(lines).rstrip("\n") + "\n"
