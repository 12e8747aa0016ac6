"""Defines text formats: the kinds of lines, each with a template of typed fields.

One definition serves reading, writing and the drawn layout, as Construct does for the binary formats. A space
in a template means any white space when reading, because Kafka's readers split the line, and one space when
writing.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from klog.formats import names
from klog.formats._derived import LINES
from klog.formats.constants import INT32_MAX, INT64_MAX
from klog.formats.errors import FormatError
from klog.formats.values import Bytes, Value

_FIELD = re.compile(r"\{(\w+)\}")
_LINE_END = re.compile(r"\r\n|\r|\n")


class TextType(NamedTuple):
    """The type of a field in text: its pattern, and how its value is read."""

    name: str
    pattern: str
    read: Callable[[str], Any]


def _within(limit: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        number = int(text)
        if not -limit - 1 <= number <= limit:
            raise ValueError(f"{text} does not fit")
        return number

    return read


INT32: Final = TextType("int32", r"[+-]?[0-9]{1,19}", _within(INT32_MAX))
INT64: Final = TextType("int64", r"[+-]?[0-9]{1,19}", _within(INT64_MAX))
WORD: Final = TextType("word", r"\S+", str)
UUID: Final = TextType("uuid", r"\S+", lambda text: names.encode_uuid(names.decode_uuid(text)))
_TYPES: Final = {known.name: known for known in (INT32, INT64, WORD, UUID)}


class TextField(NamedTuple):
    """A field of a line."""

    name: str
    type: TextType
    meaning: str


@dataclass(frozen=True, slots=True)
class Line:
    """One kind of line. `template` has its fields in braces; `occurs` says how many there are."""

    template: str
    occurs: str
    fields: tuple[TextField, ...]
    meaning: str = ""

    def read(self, text: str, what: str, position_bytes: int) -> dict[str, Value]:
        """The fields of a line. Raises `FormatError` if the line does not match."""
        types = {field.name: field.type for field in self.fields}
        match = re.fullmatch(self._pattern(types), text, re.ASCII)
        try:
            if match is not None:
                return {name: kind.read(match[name]) for name, kind in types.items()}
        except (ValueError, FormatError) as error:
            raise self._misfit(text, what, position_bytes, f": {error}") from error
        raise self._misfit(text, what, position_bytes)

    def text_of_field(self, text: str) -> str:
        """The first field of a line as it stands there; the line itself if it is written in another way."""
        match = re.fullmatch(self._pattern({field.name: field.type for field in self.fields}), text, re.ASCII)
        return text if match is None else match[1]

    def _misfit(self, text: str, what: str, position_bytes: int, why: str = "") -> FormatError:
        return FormatError(
            f"{what}: line {text[:80]!r} is not {self.shape!r}{why}",
            position_bytes=position_bytes,
            cure="the file was cut, edited or overwritten; a broker takes its log directory offline",
        )

    def _pattern(self, types: dict[str, TextType]) -> str:
        parts = _FIELD.split(self.template)
        pattern = "".join(
            f"(?P<{part}>{types[part].pattern})" if index % 2 else re.escape(part).replace(r"\ ", r"\s+")
            for index, part in enumerate(parts)
        )
        # Splitting at white space removes trailing white space; a line of one field is not split.
        return pattern + (r"\s*" if " " in self.template else "")

    @property
    def shape(self) -> str:
        """The template as it is shown to people."""
        return self.template.replace("{{", "{").replace("}}", "}")

    def write(self, **values: Value) -> str:
        """The line with these fields."""
        return self.template.format(**values)


def derived_line(name: str) -> Line:
    """A line of the Construct definitions, by its name in `_derived`."""
    types, names = LINES[name]
    fields = tuple(
        TextField(*field, "")
        for field in zip(names.split(), map(_TYPES.__getitem__, types.split()), strict=True)
    )
    return Line(" ".join(f"{{{field.name}}}" for field in fields), "", fields)


@dataclass(frozen=True, slots=True)
class TextFormat:
    """A text format: its title and its kinds of lines, in order; `notes` describes the rest."""

    title: str
    lines: tuple[Line, ...]
    notes: str = ""

    def split(self, data: Bytes, encoding: str = "utf-8") -> list[tuple[int, str]]:
        """The lines with their positions in bytes, without the line ends that Java's readers know. Raises
        `FormatError`.
        """
        try:
            text = str(data, encoding)
        except UnicodeDecodeError as error:
            raise FormatError(
                f"{self.title}: byte 0x{error.object[error.start]:02x} is no {encoding} text",
                position_bytes=error.start,
                cure="the file is damaged, or is none of this format",
            ) from error
        found = []
        start = at = 0
        for end in _LINE_END.finditer(text):
            line = text[start : end.start()]
            found.append((at, line))
            at += len(line.encode(encoding)) + end.end() - end.start()
            start = end.end()
        if start < len(text):
            found.append((at, text[start:]))
        return found
