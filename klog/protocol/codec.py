"""The fields of a message in one version, of which a reader and a writer are made.

Fields come from the classes of entities (`entity_codec`) or from tables of all versions (`message_tables`).
`message_reader` and `message_writer` make a function of Python for each version. It handles a whole message:
neighbouring fields of fixed size at once, arrays in loops, without a call for each field or struct.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeAlias
from uuid import UUID

from klog.protocol.error_codes import error_code
from klog.protocol.errors import MalformedMessageError

Value: TypeAlias = Any
Convert: TypeAlias = Callable[[Value], Value] | None

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
_NIL: Final = bytes(16)
# A cluster has few topics, and its ids come again in each message.
_KNOWN_IDS_MAX: Final = 4096


def _duration(value: int) -> timedelta:
    try:
        return timedelta(milliseconds=value)
    except OverflowError:
        # Millions of years: the longest duration that can be expressed means the same.
        return timedelta.max if value > 0 else timedelta.min


def _instant(value: int) -> datetime | None:
    try:
        return None if value == -1 else _EPOCH + timedelta(milliseconds=value)
    except OverflowError as error:
        raise MalformedMessageError(f"timestamp {value} is past the year 9999") from error


def _milliseconds(value: datetime | int | None) -> int:
    if isinstance(value, int):
        return value
    return -1 if value is None else round((value - _EPOCH) / _MILLISECOND)


@lru_cache(maxsize=_KNOWN_IDS_MAX)
def uuid_of(raw: bytes) -> UUID:
    """The id that has these 16 bytes; the same object each time, if it is not one of too many."""
    return UUID(bytes=raw)


class Fixed(NamedTuple):
    """A type of fixed size: the format of `struct`, and functions that convert values, if that is needed."""

    letter: str
    decode: Convert = None
    encode: Convert = None


_DURATION: Final = _duration, lambda value: round(value / _MILLISECOND)
FIXED: Final[dict[object, Fixed]] = {
    "bool": Fixed("?"),
    "int8": Fixed("b"),
    "int16": Fixed("h"),
    "int32": Fixed("i"),
    "int64": Fixed("q"),
    "uint8": Fixed("B"),
    "uint16": Fixed("H"),
    "uint32": Fixed("I"),
    "uint64": Fixed("Q"),
    "float64": Fixed("d"),
    "error_code": Fixed("h", error_code),
    "timedelta_i32": Fixed("i", *_DURATION),
    "timedelta_i64": Fixed("q", *_DURATION),
    "datetime_i64": Fixed("q", _instant, _milliseconds),
    "topic_id": Fixed("16s", uuid_of, lambda value: _NIL if value is None else value.bytes),
    "uuid": Fixed(
        "16s",
        lambda raw: None if raw == _NIL else uuid_of(raw),
        lambda value: _NIL if value is None else value.bytes,
    ),
}

# The errors that a value of a wrong type or size raises.
REFUSALS: Final = (struct.error, TypeError, AttributeError, ValueError, OverflowError)


class Field(NamedTuple):
    """One field. A struct, or an array of structs, has no `kafka_type`. `array` is the class of arrays."""

    name: str
    kafka_type: str | None
    struct: Shape | None
    array: type[tuple[Any, ...]] | type[list[Any]] | None
    nullable: bool
    tag: int | None
    default: Value


class Shape(NamedTuple):
    """A struct in one version: what is made of its fields, in their order, and the values of absent ones.

    What is made are tuples, or calls with the fields' names.
    """

    make: Callable[..., Any]
    flexible: bool
    fields: tuple[Field, ...]
    absent: tuple[tuple[str, Value], ...] = ()

    def order(self) -> Sequence[str] | None:
        """The names of the fields of a tuple; None if it is none."""
        if not (isinstance(self.make, type) and issubclass(self.make, tuple)):
            return None
        named: Sequence[str] | None = getattr(self.make, "_fields", None)
        return [field.name for field in self.fields] if named is None else named


def has_fixed_size(field: Field) -> bool:
    """Whether it is one value of a type of fixed size."""
    return field.kafka_type in FIXED and not field.array
