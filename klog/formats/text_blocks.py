"""Building blocks of text files in Construct: words, lines of them, and lines up to the end.

Rules: Kafka's `CheckpointFile`. Java's reader ends a line at `\\n`, `\\r` or `\\r\\n`, and splits a line of
several words at white space, which may also stand at its end. What is written has one space and `\\n`.
"""

# ruff: noqa: ARG002 - the signatures are Construct's

from __future__ import annotations

import io
import re
from typing import Final

import construct as c

from klog.formats import text_format
from klog.formats.primitives import Variable, remaining_bytes, require_list
from klog.formats.structures import parse_within
from klog.formats.text_format import TextType
from klog.formats.values import Value

_LINE: Final = re.compile(rb"[^\r\n]*")
_LINE_END: Final = re.compile(rb"\r\n|[\r\n]|$")
_WORD: Final = re.compile(rb"\S*")
_SPACE: Final = re.compile(rb"\s*")


def _next(pattern: re.Pattern[bytes], stream: io.BytesIO) -> bytes:
    """What matches at the position of the stream, without going past it."""
    with stream.getbuffer() as data:
        found = pattern.match(data, stream.tell())
        return found[0] if found else b""


class Word(c.Construct):  # type: ignore[misc]
    """A word of a line, as text that `text_type` reads."""

    def __init__(self, text_type: TextType) -> None:
        super().__init__()
        self.text_type = text_type
        self.type_name = f"{text_type.name} as text"
        self.size_text = "n"

    def _parse(self, stream: io.BytesIO, context: c.Container, path: str) -> Value:
        raw = _next(_WORD, stream)
        try:
            text = raw.decode("utf-8")
            if re.fullmatch(self.text_type.pattern, text, re.ASCII) is None:
                raise ValueError(f"{text!r} is no {self.type_name}")
            value = self.text_type.read(text)
        except ValueError as error:
            raise c.FormatFieldError(str(error), path=path) from error
        stream.seek(len(raw), io.SEEK_CUR)
        return value

    def _build(self, obj: Value, stream: io.BytesIO, context: c.Container, path: str) -> Value:
        raw = str(obj).encode("utf-8", "surrogateescape")
        if not raw or _WORD.fullmatch(raw) is None:
            raise c.FormatFieldError(f"{obj!r} is no word", path=path)
        stream.write(raw)
        return obj


Int32: Final = Word(text_format.INT32)
Int64: Final = Word(text_format.INT64)
Text: Final = Word(text_format.WORD)


class TextLine(c.Construct):  # type: ignore[misc]
    """A line of named words, or of one word, which is then the value."""

    def __init__(self, *words: c.Construct) -> None:
        super().__init__()
        self.words = words
        self.type_name = "line"
        self.size_text = "n"

    def _parse(self, stream: io.BytesIO, context: c.Container, path: str) -> Value:
        value = parse_within(_Words(self.words), len(_next(_LINE, stream)), stream, context, path)
        stream.seek(len(_next(_LINE_END, stream)), io.SEEK_CUR)
        return value

    def _build(self, obj: Value, stream: io.BytesIO, context: c.Container, path: str) -> Value:
        _Words(self.words)._build(obj, stream, context, path)
        stream.write(b"\n")
        return obj


class _Words(c.Construct):  # type: ignore[misc]
    """What stands in a line."""

    def __init__(self, words: tuple[c.Construct, ...]) -> None:
        super().__init__()
        self.words = words

    def _parse(self, stream: io.BytesIO, context: c.Container, path: str) -> Value:
        if len(self.words) == 1:
            return self.words[0]._parsereport(stream, context, path)
        value = c.Container()
        for word in self.words:
            value[word.name] = word._parsereport(stream, context, path)
            stream.seek(len(_next(_SPACE, stream)), io.SEEK_CUR)
        return value

    def _build(self, obj: Value, stream: io.BytesIO, context: c.Container, path: str) -> Value:
        for number, word in enumerate(self.words):
            stream.write(b" " if number else b"")
            word._build(obj if len(self.words) == 1 else obj[word.name], stream, context, path)
        return obj


class UnlessEnd(Variable):
    """A field that is None if the data ends before it."""

    def _parse(self, stream: io.BytesIO, context: c.Container, path: str) -> Value:
        return self.subcon._parsereport(stream, context, path) if remaining_bytes(stream) else None

    def _build(self, obj: Value, stream: io.BytesIO, context: c.Container, path: str) -> Value:
        return obj if obj is None else self.subcon._build(obj, stream, context, path)


class CountedLines(Variable):
    """Lines up to the end, as many as an earlier field with the name `count` says; no line if it is None."""

    def __init__(self, count: str, subcon: c.Construct) -> None:
        super().__init__(subcon)
        self.count = count
        self.type_name = f"lines, as {count} says"
        self.size_text = "n"

    def _parse(self, stream: io.BytesIO, context: c.Container, path: str) -> c.ListContainer:
        lines = c.ListContainer()
        while remaining_bytes(stream):
            lines.append(self.subcon._parsereport(stream, context, path))
        self._require_count(lines, context, path)
        return lines

    def _build(self, obj: Value, stream: io.BytesIO, context: c.Container, path: str) -> Value:
        require_list(obj, path)
        self._require_count(obj, context, path)
        for line in obj:
            self.subcon._build(line, stream, context, path)
        return obj

    def _require_count(self, lines: Value, context: c.Container, path: str) -> None:
        count = context[self.count] or 0
        if len(lines) != count:
            raise c.RangeError(f"{count} entries announced, but {len(lines)} are there", path=path)
