"""Formats values as short text for people: times, sizes, counts, previews of keys and values."""

from __future__ import annotations

import codecs
from contextlib import suppress
from datetime import datetime
from typing import Final

from klog.commands.shared.records.plan import BytesMode
from klog.commands.shared.table_layout import Cell

NULL: Final = "dim italic"
BINARY: Final = "cyan"
CONTROL: Final = "magenta"
BAD: Final = "bold red"

_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
_ESCAPES: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def human_bytes(count: float) -> str:
    """A size in binary units with three digits: `512 B`, `1.46 KiB`, `1.00 GiB`."""
    unit = 0
    while abs(count) >= 1024 and unit < len(_UNITS) - 1:
        count /= 1024
        unit += 1
    if unit == 0:
        return f"{count:.0f} B"
    digits = max(0, 3 - len(str(int(abs(count)))))
    return f"{count:.{digits}f} {_UNITS[unit]}"


def human_count(count: int) -> str:
    """A count with commas: `1,234,567`."""
    return f"{count:,}"


def human_time(timestamp_ms: int) -> str:
    """Local time to the millisecond; `-` for no timestamp, the number for one outside of the calendar."""
    if timestamp_ms == -1:
        return "-"
    try:
        moment = datetime.fromtimestamp(timestamp_ms // 1000)
    except (ValueError, OverflowError, OSError):
        return str(timestamp_ms)
    return f"{moment.isoformat(' ')}.{timestamp_ms % 1000:03d}"


def zoned_time(timestamp_ms: int) -> str:
    """As `human_time`, with the name of the time zone, for those who compare it with other clocks."""
    shown = human_time(timestamp_ms)
    with suppress(ValueError, OverflowError, OSError):
        shown += f" {datetime.fromtimestamp(timestamp_ms // 1000).astimezone().tzname()}"
    return shown


def zone() -> str:
    """The name of the time zone of `human_time`."""
    return datetime.now().astimezone().tzname() or "local"


def human_span(span_ms: int) -> str:
    """A length of time in its two largest units: `850 ms`, `12.3 s`, `3 h 20 m`, `41 d 2 h`."""
    if span_ms < 1000:
        return f"{span_ms} ms"
    if span_ms < 60_000:
        return f"{span_ms / 1000:.1f} s"
    minutes = span_ms // 60_000
    if minutes < 60:
        return f"{minutes} m {span_ms // 1000 % 60} s"
    if minutes < 48 * 60:
        return f"{minutes // 60} h {minutes % 60} m"
    return f"{minutes // 1440} d {minutes // 60 % 24} h"


def preview(data: bytes | memoryview | None, size: int, mode: BytesMode, width: int) -> Cell:
    """A key or value in about `width` characters at most.

    `data` may be only its first bytes; `size` is the size of the whole.
    """
    if data is None:
        return Cell("null", NULL)
    if mode is BytesMode.NONE:
        return Cell(f"({size} bytes)", NULL)
    if size == 0:
        return Cell('""', NULL)
    head = bytes(data[: width * 4])
    if mode in (BytesMode.AUTO, BytesMode.UTF8):
        text = _text(head, cut=len(head) < size, strict=mode is BytesMode.AUTO)
        if text is not None:
            return Cell(_cut(text, width, more=len(head) < size))
    if mode is BytesMode.BASE64:
        encoded = codecs.encode(head[: width * 3 // 4], "base64").decode("ascii").replace("\n", "")
        return Cell(_cut(encoded, width, more=size > width * 3 // 4), BINARY)
    return Cell(_cut(f"0x{head[: width // 2].hex()}", width, more=size > width // 2), BINARY)


def _cut(text: str, width: int, *, more: bool) -> str:
    return f"{text[: width - 1]}\u2026" if more or len(text) > width else text


def _text(head: bytes, *, cut: bool, strict: bool) -> str | None:
    """`head` as one line of text, None if it is not UTF-8. A character that was cut in two is dropped."""
    decoder = codecs.getincrementaldecoder("utf-8")("strict" if strict else "replace")
    try:
        text = decoder.decode(head, final=not cut)
    except UnicodeDecodeError:
        return None
    if text.isprintable():
        return text
    plain = "".join(
        character if character.isprintable() else _ESCAPES.get(character, f"\\u{ord(character):04x}")
        for character in text
    )
    # Mostly unprintable text is binary data that happens to be UTF-8.
    unprintable = sum(not character.isprintable() and character not in _ESCAPES for character in text)
    return None if strict and unprintable * 4 > len(text) else plain
