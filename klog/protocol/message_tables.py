"""Messages of all versions as tables of fields, for requests that are too frequent for entities.

A table names the tuples that a message is read to, and its fields in the order of the wire.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from klog.protocol.codec import REFUSALS, Field, Shape, Value
from klog.protocol.errors import UnencodableMessageError
from klog.protocol.message_reader import reader
from klog.protocol.message_writer import writer
from klog.protocol.primitives import Buffer

_LATEST: Final = 2**15 - 1


@dataclass(frozen=True, slots=True)
class Part:
    """A field in versions `since` to `until`. In others, and as a tag that is absent, it is `default`."""

    name: str
    of: str | Struct
    since: int = 0
    until: int = _LATEST
    array: type[tuple[Any, ...]] | type[list[Any]] | None = None
    nullable: bool = False
    tag: int | None = None
    default: Value = None


@dataclass(frozen=True, slots=True)
class Struct:
    """What is made of fields: tuples of a class, or a function's results."""

    make: Callable[..., Any]
    parts: tuple[Part, ...]

    def shape(self, version: int, flexible: bool) -> Shape:
        """The struct in a version."""
        fields: list[Field] = []
        absent: list[tuple[str, Value]] = []
        for each in self.parts:
            if not each.since <= version <= each.until:
                absent.append((each.name, each.default))
                continue
            of = each.of
            struct = of.shape(version, flexible) if isinstance(of, Struct) else None
            kafka_type = None if isinstance(of, Struct) else of
            fields.append(
                Field(each.name, kafka_type, struct, each.array, each.nullable, each.tag, each.default)
            )
        return Shape(self.make, flexible, tuple(fields), tuple(absent))


class Message:
    """A message in all its versions, flexible from one on. A reader that does not copy returns views."""

    def __init__(self, name: str, flexible_from: int, struct: Struct, *, copies: bool = True) -> None:
        self._name = name

        @cache
        def read(version: int) -> Callable[[Buffer], Any]:
            return reader(struct.shape(version, version >= flexible_from), copies=copies)

        @cache
        def write(version: int) -> Callable[[Any], list[Any]]:
            return writer(struct.shape(version, version >= flexible_from))

        self._reader, self._writer = read, write

    def read(self, version: int, body: Buffer) -> Any:  # noqa: ANN401 (what the table makes)
        """Raises MalformedMessageError."""
        return self._reader(version)(body)

    def write(self, version: int, message: object) -> list[Any]:
        """The parts of a body. Raises UnencodableMessageError."""
        try:
            return self._writer(version)(message)
        except REFUSALS as error:
            raise UnencodableMessageError(
                f"a {self._name} that does not fit its wire types: {error}"
            ) from error
