"""Converts values to JSON and back by one definition of both ways, with checks that name the place."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final, TypeAlias

from klog.formats.constants import INT32_MAX, INT64_MAX
from klog.formats.errors import FormatError
from klog.formats.record_functions import uuid_bytes

Value: TypeAlias = Any


@dataclass(frozen=True, slots=True)
class Codec:
    """`encode` makes JSON of a value. `decode` makes the value of JSON at a place, or raises FormatError.

    `names` are those of an object's members.
    """

    encode: Callable[[Value], Value]
    decode: Callable[[Value, str], Value]
    names: frozenset[str] = frozenset()


def invalid(place: str, expected: str, found: object) -> FormatError:
    """The error for what is not as expected."""
    text = repr(found)
    shown = text if len(text) <= 100 else f"{text[:100]}..."
    return FormatError(f"{place or 'the file'} is not {expected} but {shown}")


def _same(value: Value) -> Value:
    return value


def scalar(kind: type, expected: str, accepts: Callable[[Value], bool] = lambda _: True) -> Codec:
    """A value of one type that is the same in JSON; `expected` is the word for those that are accepted."""

    def decode(value: Value, place: str) -> Value:
        if type(value) is not kind or not accepts(value):
            raise invalid(place, expected, value)
        return value

    return Codec(_same, decode)


def integer(least: int, most: int = INT32_MAX) -> Codec:
    """A whole number within limits."""
    return scalar(int, f"a whole number from {least} to {most}", lambda value: least <= value <= most)


def _is_text(value: str) -> bool:
    # JSON can escape a lone surrogate, which is no text that could be written.
    return value.isascii() or not any("\ud800" <= char <= "\udfff" for char in value)


def _is_uuid(value: str) -> bool:
    try:
        uuid_bytes(value)
    except FormatError:
        return False
    return True


TEXT: Final = scalar(str, "text", _is_text)
UUID: Final = scalar(str, "an id of 22 characters", _is_uuid)
BOOL: Final = scalar(bool, "true or false")
BROKER_ID: Final = integer(0)
INT32: Final = integer(-INT32_MAX - 1)
INT64: Final = integer(-INT64_MAX - 1, INT64_MAX)


def _decode_number(value: Value, place: str) -> float:
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not math.isfinite(value):
        raise invalid(place, "a finite number", value)
    return float(value)


NUMBER: Final = Codec(_same, _decode_number)


def named(members: Iterable[IntEnum]) -> Codec:
    """One of some members of an enumeration, by its name."""
    by_name = {each.name: each for each in members}

    def decode(value: Value, place: str) -> IntEnum:
        if not isinstance(value, str) or value not in by_name:
            raise invalid(place, f"one of {', '.join(by_name)}", value)
        return by_name[value]

    return Codec(lambda member: member.name, decode)


def optional(codec: Codec) -> Codec:
    """A value, or null."""
    return Codec(
        lambda value: None if value is None else codec.encode(value),
        lambda value, place: None if value is None else codec.decode(value, place),
    )


def array(codec: Codec) -> Codec:
    """A list; the value is a tuple."""
    return Codec(
        list if codec.encode is _same else lambda values: [codec.encode(each) for each in values],
        lambda value, place: tuple(
            codec.decode(each, f"{place}[{index}]") for index, each in enumerate(_list(value, place))
        ),
    )


def as_set(codec: Codec) -> Codec:
    """A sorted list; the value is a frozenset."""
    items = array(codec)
    return Codec(
        lambda values: items.encode(sorted(values)),
        lambda value, place: frozenset(items.decode(value, place)),
    )


def mapping(codec: Codec) -> Codec:
    """An object whose names are the keys."""

    def decode(value: Value, place: str) -> dict[str, Value]:
        return {
            TEXT.decode(name, place): codec.decode(each, f"{place}.{name}")
            for name, each in _object(value, place).items()
        }

    return Codec(lambda values: {name: codec.encode(each) for name, each in sorted(values.items())}, decode)


REQUIRED: Final = object()


@dataclass(frozen=True, slots=True)
class Member:
    """A member of an object: its name in JSON, and what an absent one means (`REQUIRED`: an error).

    A member that has its default is not written. The members of an `inline` object stand in the outer one.
    """

    name: str
    codec: Codec
    default: Value = REQUIRED
    inline: bool = False

    def is_written(self, value: Value) -> bool:
        """Whether a value is not its default."""
        return self.default is REQUIRED or value != self.default

    def write(self, value: Value, outer: dict[str, Value]) -> None:
        """Put the members that a value takes into the outer object."""
        encoded = self.codec.encode(value)
        if self.inline:
            outer |= encoded
        else:
            outer[self.name] = encoded

    def decode(self, given: dict[str, Value], place: str) -> Value:
        """The value from the outer object."""
        if self.inline:
            inner = {name: each for name, each in given.items() if name in self.codec.names}
            if not inner and self.default is not REQUIRED:
                return self.default
            return self.codec.decode(inner, place)
        if self.name in given:
            return self.codec.decode(given[self.name], f"{place}.{self.name}" if place else self.name)
        if self.default is REQUIRED:
            raise FormatError(f"{place or 'the file'} has no {self.name}")
        return self.default

    @property
    def names(self) -> frozenset[str]:
        return self.codec.names if self.inline else frozenset((self.name,))


def structure(make: Callable[..., Value], **members: Member) -> Codec:
    """An object; `members` are the arguments of `make` and the attributes of its values."""
    known = frozenset(name for each in members.values() for name in each.names)

    def encode(value: Value) -> dict[str, Value]:
        written: dict[str, Value] = {}
        for attribute, each in members.items():
            found = getattr(value, attribute)
            if each.is_written(found):
                each.write(found, written)
        return written

    def decode(value: Value, place: str) -> Value:
        given = _object(value, place)
        _refuse_unknown(given, known, place)
        return make(**{attribute: each.decode(given, place) for attribute, each in members.items()})

    return Codec(encode, decode, known)


def single(name: str, codec: Codec) -> Codec:
    """An object with one member, which is the value."""
    only = Member(name, codec)
    names = frozenset((name,))

    def decode(value: Value, place: str) -> Value:
        given = _object(value, place)
        _refuse_unknown(given, names, place)
        return only.decode(given, place)

    return Codec(lambda value: {name: codec.encode(value)}, decode, names)


def keyed(key: Codec, value: Codec, order: Callable[[Value], Value] = _same) -> Codec:
    """A mapping as a list of objects, each with the members of its key and those of its value.

    Both codecs are of objects, whose members differ. `order` is what keys are sorted by.
    """

    def encode(values: Mapping[Value, Value]) -> list[Value]:
        items = sorted(values.items(), key=lambda item: order(item[0]))
        return [{**key.encode(name), **value.encode(each)} for name, each in items]

    def decode(given: Value, place: str) -> dict[Value, Value]:
        found: dict[Value, Value] = {}
        for index, item in enumerate(_list(given, place)):
            inner = f"{place}[{index}]"
            members = _object(item, inner)
            named = {name: each for name, each in members.items() if name in key.names}
            found_key = key.decode(named, inner)
            if found_key in found:
                raise FormatError(f"{inner} has the key of another item: {named}")
            rest = {name: each for name, each in members.items() if name not in key.names}
            found[found_key] = value.decode(rest, inner)
        return found

    return Codec(encode, decode)


def _refuse_unknown(given: dict[str, Value], known: frozenset[str], place: str) -> None:
    if not given.keys() <= known:
        raise FormatError(f"{place or 'the file'} has an unknown member: {min(given.keys() - known)[:100]!r}")


def _object(value: Value, place: str) -> dict[str, Value]:
    if not isinstance(value, dict):
        raise invalid(place, "an object", value)
    return value


def _list(value: Value, place: str) -> list[Value]:
    if not isinstance(value, list):
        raise invalid(place, "a list", value)
    return value
