"""The shapes of Construct definitions, of which `fast_readers` and `fast_writers` make functions."""

from __future__ import annotations

from typing import Any

import construct as c

from klog.formats import primitives as p
from klog.formats import structures as s
from klog.formats.shapes import UUID, Array, Base128, Fixed, Nullable, Shape, Sized, Struct, Tagged


def plain(con: c.Construct) -> c.Construct:
    """A definition without its name."""
    while isinstance(con, c.Renamed):
        con = con.subcon
    return con


def fixed(con: c.Construct) -> str | None:
    """The code of `struct` of a field of fixed size; None of another one."""
    found = _fixed(plain(con))
    return found and found.code


def shape_of(con: c.Construct) -> Any:  # noqa: ANN401 (as its definition says)
    """The shape of a definition. Raises `TypeError` if there is no fast reader or writer of it."""
    con = plain(con)
    if isinstance(con, c.Struct):
        return Struct(tuple((field.name, shape_of(field)) for field in con.subcons))
    if isinstance(con, p.SizedBytes):
        return Sized(shape_of(con.length), isinstance(con, p.SizedString), con.null)
    if isinstance(con, p.SizedArray):
        return Array(shape_of(con.length), shape_of(con.subcon), con.null)
    if isinstance(con, s.TaggedFields):
        return Tagged(tuple((tag, field.name, shape_of(field)) for tag, field in con.known.items()))
    if isinstance(con, s.NullableStruct):
        return Nullable(shape_of(con.subcon), con.null_mark)
    found = _fixed(con) or _base128(con)
    if found is None:
        raise TypeError(f"no fast reader or writer of {con!r}")
    return found


def _fixed(con: c.Construct) -> Fixed | None:
    if isinstance(con, c.FormatField):
        return Fixed(str(con.fmtstr[-1]).replace("l", "i").replace("L", "I"))
    if isinstance(con, p.UuidField):
        return UUID
    if isinstance(con, p.BoolField):
        return Fixed("B", "bool")
    if isinstance(con, c.Bytes):
        return Fixed(f"{con.length}s")
    found = _fixed(plain(con.subcon)) if isinstance(con, c.Const) else None
    return found and found._replace(constant=con.value)


def _base128(con: c.Construct) -> Shape | None:
    if isinstance(con, p.PlusOne):
        return Base128(con.subcon.bits, "plus one")
    if isinstance(con, p.VarUInt):
        return Base128(con.bits, "zigzag" if isinstance(con, p.ZigZag) else "")
    return None
