"""Draws the layout of a format from its definition, which is the documentation.

`rows` walks the Construct objects (or the lines and rules of text and name formats) and returns plain data.
The command renders the rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import construct as c

from klog.formats import primitives as p
from klog.formats import structures as s
from klog.formats.keyed import Keyed
from klog.formats.names import NameRule
from klog.formats.text_blocks import TextLine, UnlessEnd
from klog.formats.text_format import TextFormat
from klog.formats.values import Value


class Row(NamedTuple):
    """One line of a layout.

    `offset` is in bytes from the start of the format, or of the enclosing item if `relative`; None after a
    field of variable size. `size` is in bytes as text (`4`, `1-5`, `n`). For bit fields `bits` is true, and
    offset and size are in bits. `depth` is the nesting of the field.
    """

    depth: int
    offset: int | None
    size: str
    type: str
    name: str
    meaning: str
    relative: bool = False
    bits: bool = False


_NUMBERS: Final = {
    "b": "int8",
    "B": "uint8",
    "h": "int16",
    "H": "uint16",
    "l": "int32",
    "L": "uint32",
    "q": "int64",
    "Q": "uint64",
    "d": "float64",
}


_TAGGED: Final = "optional: uvarint count, then of each uvarint tag, uvarint size, value; ascending"


def rows(definition: Value) -> list[Row]:
    """The layout of a definition, top to bottom."""
    if isinstance(definition, Keyed):
        return list(_keyed(definition))
    if isinstance(definition, TextFormat):
        return list(_text(definition))
    if isinstance(definition, tuple):
        return [
            Row(0, None, "", "name", rule.shape, rule.meaning)
            for rule in definition
            if isinstance(rule, NameRule)
        ]
    return _Walk().walk(definition, 0)


def _keyed(definition: Keyed) -> Iterator[Row]:
    yield Row(0, None, "", "", "key", "chooses what the value is")
    yield from _Walk().walk(definition.key, 1)
    values = _grouped({case: _Walk().walk(value, 2) for case, value in definition.values.items()})
    for cases, value_rows in values:
        yield Row(0, None, "", "", f"value of {cases}", "")
        yield from (row._replace(depth=row.depth - 1) for row in value_rows)


def _text(definition: TextFormat) -> Iterator[Row]:
    for line in definition.lines:
        yield Row(0, None, line.occurs, "line", line.shape, line.meaning)
        for field in line.fields:
            yield Row(1, None, "n", field.type.name, field.name, field.meaning)


def _grouped(cases: Mapping[Any, list[Row]]) -> list[tuple[str, list[Row]]]:
    """Cases with the same layout together: equal versions are drawn once."""
    groups: list[tuple[list[str], list[Row]]] = []
    for case, case_rows in cases.items():
        same = next((group for group in groups if group[1] == case_rows), None)
        if same is None:
            groups.append(([str(case)], case_rows))
        else:
            same[0].append(str(case))
    return [(", ".join(names), case_rows) for names, case_rows in groups]


class _Walk:
    """One pass over a definition. It counts bytes while sizes are fixed."""

    def __init__(self, offset: int | None = 0, relative: bool = False) -> None:
        self.offset = offset
        self.relative = relative

    def walk(self, con: c.Construct, depth: int, name: str = "", meaning: str = "") -> list[Row]:
        """The rows of one field, at `depth`."""
        while isinstance(con, c.Renamed):
            name, meaning = con.name or name, con.docs or meaning
            con = con.subcon
        # Documentation of several source lines becomes one line of the layout.
        meaning = " ".join(str(meaning).split())
        for kind, draw in _DRAWINGS:
            if isinstance(con, kind):
                found: list[Row] = draw(self, con, depth, name, meaning)
                return found
        return [self.leaf(con, depth, name, meaning)]

    def leaf(
        self, con: c.Construct, depth: int, name: str, meaning: str, kind: str = "", size: str = ""
    ) -> Row:
        """A row for one field; moves the offset past it."""
        fixed = _fixed_size(con)
        text = size or (str(fixed) if fixed is not None else str(getattr(con, "size_text", "n")))
        row = Row(depth, self.offset, text, kind or _type_name(con), name, meaning, self.relative)
        self.skip(fixed if not size else None)
        return row

    def skip(self, size: int | None) -> None:
        """Move past a field; None for a field of variable size."""
        self.offset = None if size is None or self.offset is None else self.offset + size

    def heading(self, depth: int, kind: str, name: str, meaning: str, size: str = "") -> Row:
        """A row for something whose fields follow."""
        return Row(depth, self.offset, size, kind, name, meaning, self.relative)


def _fixed_size(con: c.Construct) -> int | None:
    try:
        return int(con.sizeof())
    except c.SizeofError:
        return None


def _type_name(con: c.Construct) -> str:
    own = getattr(con, "type_name", None)
    if own is not None:
        return str(own)
    if isinstance(con, c.FormatField):
        return _NUMBERS[con.fmtstr[-1]]
    return "bytes" if con is c.GreedyBytes or isinstance(con, c.Bytes) else type(con).__name__.lower()


def _draw_struct(walk: _Walk, con: c.Struct, depth: int, name: str, meaning: str) -> list[Row]:
    found = [walk.heading(depth, "struct", name, meaning)] if name else []
    inner = depth + 1 if name else depth
    for subcon in con.subcons:
        found += walk.walk(subcon, inner)
    return found


def _draw_bits(walk: _Walk, con: c.Construct, depth: int, name: str, meaning: str) -> list[Row]:
    size = int(con.sizeof())
    found = [walk.heading(depth, f"{size * 8} bits", name, meaning, str(size))]
    above = size * 8
    for field in con.subcon.subcons:
        width = int(field.sizeof())
        above -= width
        for row in _Walk(None).walk(field, depth + 1):
            kind = "flag" if width == 1 and row.type == "flag" else f"{width} bits"
            found.append(row._replace(offset=above, size=str(width), type=kind, bits=True))
    walk.skip(size)
    return found


def _draw_enum(walk: _Walk, con: c.Enum, depth: int, name: str, meaning: str) -> list[Row]:
    values = ", ".join(f"{number} {label}" for label, number in con.encmapping.items())
    return walk.walk(con.subcon, depth, name, f"{meaning}: {values}" if meaning else values)


def _draw_inside(walk: _Walk, con: c.Construct, depth: int, name: str, meaning: str) -> list[Row]:
    return walk.walk(con.subcon, depth, name, meaning)


def _draw_line(walk: _Walk, con: TextLine, depth: int, name: str, meaning: str) -> list[Row]:
    if len(con.words) == 1:
        return walk.walk(con.words[0], depth, name, meaning)
    found = [walk.heading(depth, "line", name, meaning, "n")] if name else []
    walk.skip(None)
    return found + [row for word in con.words for row in walk.walk(word, depth + bool(name))]


def _draw_choice(walk: _Walk, con: c.IfThenElse, depth: int, name: str, meaning: str) -> list[Row]:
    if con.elsesubcon is c.Pass:
        fixed = _fixed_size(con.thensubcon)
        row = walk.leaf(con.thensubcon, depth, name, meaning, size=f"0 or {'n' if fixed is None else fixed}")
        return [row]
    start = walk.offset
    found = walk.walk(con.thensubcon, depth, name, meaning)
    walk.offset = start
    found += walk.walk(con.elsesubcon, depth, name, "or: one block of bytes")
    walk.offset = None
    return found


def _draw_sized(walk: _Walk, con: s.Sized, depth: int, name: str, meaning: str) -> list[Row]:
    found = [walk.heading(depth, "struct", name, meaning)] if name else []
    inner = depth + 1 if name else depth
    found.append(walk.leaf(con.length, inner, "length", "bytes after this field"))
    return found + walk.walk(con.subcon, inner)


def _draw_items(walk: _Walk, con: c.Subconstruct, depth: int, name: str, meaning: str) -> list[Row]:
    item = con.subcon
    while isinstance(item, c.Renamed):
        item = item.subcon
    if isinstance(item, (c.Struct, s.Sized, s.Versioned, TextLine)) or hasattr(item, "cases"):
        found = [walk.leaf(con, depth, name, meaning)] if name else []
        return found + _Walk(0, relative=True).walk(item, depth + 1 if name else depth)
    kind = _type_name(con).replace("array", f"array of {_type_name(item)}")
    return [walk.leaf(con, depth, name, meaning, kind=kind)]


def _draw_nullable_struct(
    walk: _Walk, con: s.NullableStruct, depth: int, name: str, meaning: str
) -> list[Row]:
    found = [walk.leaf(con, depth, name, meaning)]
    return found + _Walk(0, relative=True).walk(con.subcon, depth + 1)


def _draw_tagged(walk: _Walk, con: s.TaggedFields, depth: int, name: str, meaning: str) -> list[Row]:
    found = [walk.leaf(con, depth, name, meaning or _TAGGED)]
    for tag, field in con.known.items():
        tagged_rows = _Walk(0, relative=True).walk(field, depth + 1)
        tagged_rows[0] = tagged_rows[0]._replace(meaning=f"tag {tag}: {tagged_rows[0].meaning}")
        found += tagged_rows
    return found


def _draw_versioned(walk: _Walk, con: s.Versioned, depth: int, _name: str, meaning: str) -> list[Row]:
    found = [walk.leaf(c.Int16sb, depth, "version", meaning or con.title)]
    return found + list(_draw_versions(walk, con.versions.items(), depth, "version "))


def _draw_cases(walk: _Walk, con: Value, depth: int, name: str, meaning: str) -> list[Row]:
    found = [walk.heading(depth, _type_name(con), name, meaning)] if name else []
    prefix = "magic " if all(isinstance(case, int) for case in con.cases) else ""
    return found + list(_draw_versions(walk, con.cases.items(), depth + bool(name), prefix))


def _draw_versions(
    walk: _Walk, cases: Iterable[tuple[Any, c.Construct]], depth: int, prefix: str
) -> Iterator[Row]:
    start = walk.offset
    drawn = {case: _Walk(start, walk.relative).walk(fields, depth + 1) for case, fields in cases}
    for names, case_rows in _grouped(drawn):
        yield Row(depth, start, "", "", f"{prefix}{names}", "", walk.relative)
        yield from case_rows
    walk.offset = None


# The first matching kind draws. Kinds of format modules are recognised by their `cases`.
class _WithCases(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, c.Construct) and isinstance(getattr(instance, "cases", None), dict)


class _Cases(metaclass=_WithCases):
    """Any construct that chooses one of `cases`."""


_DRAWINGS: Final[tuple[tuple[Any, Any], ...]] = (
    (c.Struct, _draw_struct),
    ((c.Transformed, c.Restreamed), _draw_bits),
    (c.Enum, _draw_enum),
    ((s.Bounded, UnlessEnd), _draw_inside),
    (TextLine, _draw_line),
    ((c.Const, c.Validator), _draw_inside),
    (c.IfThenElse, _draw_choice),
    (s.Sized, _draw_sized),
    (s.NullableStruct, _draw_nullable_struct),
    (s.TaggedFields, _draw_tagged),
    (s.Versioned, _draw_versioned),
    (_Cases, _draw_cases),
    ((p.UuidField, p.BoolField, p.PlusOne), lambda walk, con, *rest: [walk.leaf(con, *rest)]),
    (c.Subconstruct, _draw_items),
)
