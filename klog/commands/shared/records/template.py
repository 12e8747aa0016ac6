"""Formats records by the user's template, with the tokens of kcat's `-f`.

Tokens: `%s` value, `%S` its size in bytes (-1: null), `%R` the same as four bytes big-endian, `%k` key, `%K`
its size, `%h` headers (`name=value,...`), `%T` timestamp in ms, `%t` topic, `%p` partition, `%o` offset, `%%`
a percent sign. Escapes: `\\n \\r \\t \\0 \\\\` and `\\xHH`.
"""

from __future__ import annotations

import re
import struct
from base64 import b64encode
from collections.abc import Callable
from typing import Final, NamedTuple

from klog.admin.consuming import Run
from klog.commands.shared.records.plan import BytesMode
from klog.formats.errors import UsageError
from klog.kernel import kernel
from klog.kernel.text import java_text

_ESCAPES: Final = {"n": b"\n", "r": b"\r", "t": b"\t", "0": b"\0", "\\": b"\\"}
_ESCAPE: Final = re.compile(r"\\(?:x(?P<hex>[0-9A-Fa-f]{2})|(?P<char>.))", re.DOTALL)
_TOKEN: Final = re.compile(r"%(.?)", re.DOTALL)
_INT32: Final = struct.Struct(">i")


def unescape(text: str) -> bytes:
    """The bytes of a text, its escapes replaced. Raises UsageError."""
    found = []
    at = 0
    for match in _ESCAPE.finditer(text):
        found.append(_raw(text[at : match.start()]))
        at = match.end()
        if match["hex"]:
            found.append(bytes.fromhex(match["hex"]))
        elif match["char"] in _ESCAPES:
            found.append(_ESCAPES[match["char"]])
        else:
            raise UsageError(f"{match[0]} is not an escape", cure=r"known are \n \r \t \0 \\ \xHH")
    return b"".join((*found, _raw(text[at:])))


def _raw(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


class LineStyle(NamedTuple):
    """How to print keys and values: `null` for null, other bytes by `mode`."""

    mode: BytesMode = BytesMode.AUTO
    null: bytes = b""

    def show(self, data: bytes | memoryview | None) -> bytes:
        """A key or value as it is printed."""
        if data is None:
            return self.null
        return _SHOWN[self.mode](bytes(data))


_SHOWN: Final[dict[BytesMode, Callable[[bytes], bytes]]] = {
    BytesMode.AUTO: lambda data: data,
    BytesMode.UTF8: lambda data: java_text(data).encode(),
    BytesMode.BASE64: b64encode,
    BytesMode.HEX: lambda data: data.hex().encode(),
    BytesMode.NONE: lambda data: b"%d" % len(data),
}


class Row(NamedTuple):
    """One record: a row of a run's table."""

    run: Run
    view: memoryview
    row: int

    def key(self) -> memoryview | None:
        """The key, None if it is null."""
        records = self.run.records
        return _span(self.view, records.key_start[self.row], records.key_size[self.row])

    def value(self) -> memoryview | None:
        """The value, None if it is null."""
        records = self.run.records
        return _span(self.view, records.value_start[self.row], records.value_size[self.row])


def _span(view: memoryview, start: int, size: int) -> memoryview | None:
    return None if size < 0 else view[start : start + size]


Piece = Callable[[Row], bytes]


class Template:
    """A parsed format. Raises UsageError for tokens that do not exist."""

    def __init__(self, text: str, style: LineStyle) -> None:
        self._style = style
        self._pieces: list[Piece] = []
        at = 0
        for match in _TOKEN.finditer(text):
            self._literal(unescape(text[at : match.start()]))
            at = match.end()
            self._token(match[1])
        self._literal(unescape(text[at:]))

    def _literal(self, text: bytes) -> None:
        if text:
            self._pieces.append(lambda _: text)

    def _token(self, name: str) -> None:
        if name == "%":
            self._literal(b"%")
            return
        piece = _pieces(self._style).get(name)
        if piece is None:
            raise UsageError(f"%{name} is not a token", cure="known are %s %S %R %k %K %h %T %t %p %o %%")
        self._pieces.append(piece)

    def render(self, row: Row) -> bytes:
        """One record as it is printed."""
        return b"".join([piece(row) for piece in self._pieces])


def _pieces(style: LineStyle) -> dict[str, Piece]:
    return {
        "s": lambda row: style.show(row.value()),
        "S": lambda row: b"%d" % row.run.records.value_size[row.row],
        "R": lambda row: _INT32.pack(row.run.records.value_size[row.row]),
        "k": lambda row: style.show(row.key()),
        "K": lambda row: b"%d" % row.run.records.key_size[row.row],
        "h": lambda row: _headers(row, style),
        "T": lambda row: b"%d" % row.run.records.timestamp[row.row],
        "t": lambda row: _raw(row.run.partition.topic),
        "p": lambda row: b"%d" % row.run.partition.partition,
        "o": lambda row: b"%d" % row.run.records.offset[row.row],
    }


def _headers(row: Row, style: LineStyle) -> bytes:
    records = row.run.records
    headers = kernel.headers(row.view, records.headers_start[row.row], records.header_count[row.row])
    return b",".join(name + b"=" + style.show(content) for name, content in headers)
