"""Parses bytes by a definition, and says which bytes each field took.

The definition is copied, and each named part of the copy notes its place. So what is shown is what the
definition itself reads. `picture` puts the places of a file's part together.
"""

from __future__ import annotations

import copy
import io
from dataclasses import dataclass
from typing import Final

import construct as c

from klog.formats import binary
from klog.formats import primitives as p
from klog.formats import structures as s
from klog.formats.index_entries import EntriesToZeroTail
from klog.formats.text_blocks import CountedLines
from klog.formats.values import Bytes, Value

# What constructs keep their parts in: a part, several, and parts from which one is chosen.
_PART: Final = ("subcon", "thensubcon", "elsesubcon", "version")
_PARTS: Final = ("subcons", "words")
_CHOICES: Final = ("cases", "versions", "fields", "known")
_ARRAYS: Final = (p.SizedArray, p.CountedArray, s.Filled, s.UntilMark, EntriesToZeroTail, CountedLines)


@dataclass(slots=True)
class Place:
    """A field, and the bytes from `start` to `end` that it takes. `depth` is the nesting.

    `lead` is the size of a length in front of the value. If `bits` is given, the field is these bits (lowest,
    width) of the attributes that the bytes are.
    """

    depth: int
    name: str
    meaning: str
    start: int
    end: int = 0
    value: Value = None
    lead: int = 0
    bits: tuple[int, int] | None = None


def trace(
    definition: c.Construct, data: Bytes, what: str, position_bytes: int = 0
) -> tuple[Value, list[Place]]:
    """What a definition reads from all of `data`, and the places of its fields. Raises `FormatError`.

    `position_bytes` is the position of `data` in its file.
    """
    places: list[Place] = []
    with_places = _copied(definition, places, 0)
    stream = p.Located(bytes(data), position_bytes)
    value = binary.parse_next(with_places, stream, what, position_bytes)
    binary.require_end(stream, what, position_bytes)
    return value, places


def _copied(con: c.Construct, places: list[Place], depth: int) -> c.Construct:
    """The construct with parts that note their places."""
    name = meaning = ""
    while isinstance(con, c.Renamed):
        name, meaning = con.name or name, con.docs or meaning
        con = con.subcon
    inside = depth + 1 if name else depth
    twin = _with_parts(con, places, inside)
    return _Noted(twin, con, name, " ".join(str(meaning).split()), places, depth) if name else twin


def _with_parts(con: c.Construct, places: list[Place], depth: int) -> c.Construct:
    twin = copy.copy(con)
    if isinstance(con, (c.Transformed, c.Restreamed)):
        return twin  # bits, which are told from the value
    if isinstance(con, _ARRAYS):
        twin.subcon = _Item(_copied(con.subcon, places, depth + 1), con.subcon, places, depth)
        return _Array(twin)
    for name in _PART:
        if hasattr(con, name):
            setattr(twin, name, _copied(getattr(con, name), places, depth))
    for name in _PARTS:
        if hasattr(con, name):
            setattr(twin, name, [_copied(part, places, depth) for part in getattr(con, name)])
    for name in _CHOICES:
        parts = getattr(con, name, None)
        if isinstance(parts, dict):
            setattr(twin, name, {case: _copied(part, places, depth) for case, part in parts.items()})
    return twin


class _Noted(c.Subconstruct):  # type: ignore[misc]
    """A named field that notes its place."""

    def __init__(
        self,
        subcon: c.Construct,
        plain: c.Construct,
        name: str,
        meaning: str,
        places: list[Place],
        depth: int,
    ) -> None:
        super().__init__(subcon)
        self.plain = plain
        self.name = name
        self.meaning = meaning
        self.places = places
        self.depth = depth

    def _parse(self, stream: io.BytesIO, context: c.Container, path: str) -> Value:
        place = Place(self.depth, self.label(), self.meaning, p.first_byte(stream) + stream.tell())
        number = len(self.places)
        self.places.append(place)
        place.value = self.subcon._parsereport(stream, context, f"{path} -> {self.name}")
        place.end = p.first_byte(stream) + stream.tell()
        if place.end == place.start and place.value is None:
            del self.places[number]  # a field that this form does not have
        elif isinstance(self.plain, p.SizedBytes):
            raw = b"" if place.value is None else self.plain.encode(place.value)
            place.lead = place.end - place.start - len(raw)
        elif isinstance(self.plain, (c.Transformed, c.Restreamed)):
            self.places += _bits(self.plain, place)
        return place.value

    def label(self) -> str:
        """The name under which the place is noted."""
        return str(self.name)


class _Array(c.Subconstruct):  # type: ignore[misc]
    """An array, whose items are counted from 0."""

    def _parse(self, stream: io.BytesIO, context: c.Container, path: str) -> Value:
        self.subcon.subcon.number = -1
        return self.subcon._parsereport(stream, context, path)


class _Item(_Noted):
    """The items of an array, which have numbers. Those without parts stand in their array."""

    def __init__(self, subcon: c.Construct, plain: c.Construct, places: list[Place], depth: int) -> None:
        super().__init__(subcon, plain, "", "", places, depth)
        self.number = -1

    def _parse(self, stream: io.BytesIO, context: c.Container, path: str) -> Value:
        before = len(self.places)
        self.number += 1
        value = super()._parse(stream, context, path)
        if len(self.places) == before + 1:
            self.places.pop()
        return value

    def label(self) -> str:
        return f"[{self.number}]"


def _bits(con: c.Construct, place: Place) -> list[Place]:
    """The fields within attributes."""
    found = []
    lowest = 8 * int(con.sizeof())
    for field in con.subcon.subcons:
        width = int(field.sizeof())
        lowest -= width
        value = place.value[field.name]
        where = (place.start, place.end)
        found.append(Place(place.depth + 1, field.name, field.docs, *where, value, bits=(lowest, width)))
    return found
