"""Java's properties files, parsed without loss: comments, blank lines, escapes, continuation lines.

Rules: the documentation of `java.util.Properties.load`. Text is ISO-8859-1, one byte a character, so every
file can be read and is written back unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from klog.formats.errors import FormatError

_NATURAL_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
_CONTROL: Final = re.compile(rb"[\x00-\x08\x0b\x0e-\x1f\x7f]")
_WHITE: Final = " \t\f"
_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_UNESCAPES: Final = {"\t": "\\t", "\n": "\\n", "\r": "\\r", "\f": "\\f", "\\": "\\\\"}


class PropertyLine(NamedTuple):
    """One logical line as it is in the file, with its end. Comments and blank lines have no key and value."""

    raw: str
    key: str | None = None
    value: str | None = None


def parse(data: bytes) -> tuple[PropertyLine, ...]:
    """The logical lines. Raises `FormatError` for a malformed `\\uxxxx`."""
    return parse_text(str(data, "latin-1"))


def parse_text(text: str) -> tuple[PropertyLine, ...]:
    """The logical lines of a text that was in another encoding. Raises `FormatError` as `parse` does."""
    return tuple(_lines(text))


def build(lines: tuple[PropertyLine, ...]) -> bytes:
    """The bytes of the lines; raises `FormatError` for a character that is not ISO-8859-1."""
    try:
        return "".join(line.raw for line in lines).encode("latin-1")
    except UnicodeEncodeError as error:
        raise FormatError(
            f"properties cannot be written: {error.object[error.start]!r} is not ISO-8859-1"
        ) from error


def entries(lines: tuple[PropertyLine, ...]) -> dict[str, str]:
    """The properties. If a key occurs twice, the last one wins."""
    return {line.key: line.value for line in lines if line.key is not None and line.value is not None}


def config_entries(data: bytes) -> dict[str, str]:
    """The properties of a file of configs.

    Raises `FormatError` as `parse` does, and for a file that is no text: it has control characters, as
    compressed files, key stores and UTF-16 have.
    """
    control = _CONTROL.search(data)
    if control is not None:
        raise FormatError(
            f"is no text: it has the byte 0x{control[0][0]:02x}",
            position_bytes=control.start(),
            cure="name a properties file with lines of the form key=value",
        )
    return entries(parse(data))


def property_line(key: str, value: str) -> PropertyLine:
    """The line that Java's `store` writes for a property."""
    escaped_key = "".join(_escape(char, " \t\f=:#!") for char in key)
    body = value.lstrip(" ")
    escaped_value = "\\ " * (len(value) - len(body)) + "".join(_escape(char, "=:#!") for char in body)
    return PropertyLine(f"{escaped_key}={escaped_value}\n", key, value)


def _escape(char: str, special: str) -> str:
    if char in _UNESCAPES:
        return _UNESCAPES[char]
    if char in special:
        return "\\" + char
    if " " <= char <= "~":
        return char
    units = char.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02X}{units[at + 1]:02X}" for at in range(0, len(units), 2))


def _lines(text: str) -> Iterator[PropertyLine]:
    naturals = _NATURAL_LINE.finditer(text)
    for natural in naturals:
        raw = natural[0]
        content = raw.rstrip("\r\n").lstrip(_WHITE)
        if content[:1] in ("", "#", "!"):
            yield PropertyLine(raw)
            continue
        logical = ""
        while _ends_escaped(content):
            logical += content[:-1]
            following = next(naturals, None)
            if following is None:
                content = ""
                break
            raw += following[0]
            content = following[0].rstrip("\r\n").lstrip(_WHITE)
        logical += content
        yield _property(raw, logical, natural.start()) if logical else PropertyLine(raw)


def _ends_escaped(content: str) -> bool:
    return (len(content) - len(content.rstrip("\\"))) % 2 == 1


def _property(raw: str, logical: str, position_bytes: int) -> PropertyLine:
    end = 0
    while end < len(logical) and logical[end] not in "=:" + _WHITE:
        end += 2 if logical[end] == "\\" else 1
    rest = logical[end:].lstrip(_WHITE)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(_WHITE)
    return PropertyLine(raw, _unescape(logical[:end], position_bytes), _unescape(rest, position_bytes))


def _unescape(text: str, position_bytes: int) -> str:
    out = []
    at = 0
    while at < len(text):
        if text[at] != "\\":
            out.append(text[at])
            at += 1
            continue
        char = text[at + 1 : at + 2]
        at += 2
        if char == "u":
            digits = text[at : at + 4]
            if re.fullmatch(r"[0-9a-fA-F]{4}", digits) is None:
                raise FormatError(
                    f"properties: \\u{digits} is no character",
                    position_bytes=position_bytes,
                    cure="Java refuses the whole file: write \\u and four hex digits",
                )
            out.append(chr(int(digits, 16)))
            at += 4
        else:
            out.append(_ESCAPES.get(char, char))
    # Two escapes may be the two halves of one character.
    return "".join(out).encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
