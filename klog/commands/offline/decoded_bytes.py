"""`klog formats NAME --decode FILE@POSITION`: the bytes of a file under the names of their fields."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import typer

from klog.commands.shared.messages import print_line, print_note
from klog.commands.shared.table_layout import Cell, Column, print_table
from klog.formats.catalogue import Format, of_file
from klog.formats.errors import KlogError, UsageError, placed
from klog.formats.picture import Section, Source, sections
from klog.formats.tracing import Place
from klog.storage.files.files import open_for_reading, read_at

_MOST_HEX_BYTES: Final = 16
_MOST_TEXT: Final = 48
_MOST_ITEMS: Final = 3
_COLUMNS: Final = (
    Column("POSITION", right=True),
    Column("BYTES", folded=True),
    Column("NAME"),
    Column("VALUE", folded=True),
    Column("MEANING", folded=True, rank=1),
)
# Bytes, name and value of a field have one colour, its neighbours another.
_STYLES: Final = ("cyan", "green", "magenta")
_LATEST: Final = 253_402_300_799_999  # the last millisecond of the year 9999


def show(chosen: Format, where: str, *, json_output: bool) -> None:
    """Print the part of a file at `FILE@POSITION`. Raises `KlogError`."""
    path, position = _place(where)
    _note_other_format(chosen, path)
    with open_for_reading(path) as file:
        source = Source(lambda at, size: read_at(file, at, size), file.seek(0, os.SEEK_END))
        with placed(path):
            found = sections(chosen, source, position)
    if json_output:
        for section in found:
            _print_json(section)
        return
    print_line(f"{chosen.name}: {chosen.title}")
    for section in found:
        _print(section, path)
    if not found:
        print_line("no records")


def _note_other_format(chosen: Format, path: str) -> None:
    """Say so if the file has the name of another format: bytes without a checksum decode as anything."""
    try:
        named = of_file(os.path.basename(path))
    except KlogError:
        return  # a file of any other name, as a copy
    if named is None or named.name == chosen.name:
        return
    if chosen.kind == "file" or (chosen.kind == "part" and named.name != "segment"):
        print_note(f"{path} is by its name of the format {named.name}, and is decoded as {chosen.name}")


def _place(where: str) -> tuple[str, int]:
    """The file and the position, which is 0 if there is none."""
    path, separator, text = where.rpartition("@")
    if not separator or os.path.exists(where):
        return where, 0
    if not path or not text.isascii() or not text.isdigit():
        raise UsageError(
            f"--decode {where}: there is no such file, and {text!r} is no position in bytes",
            cure="write FILE@POSITION, as segment.log@0",
        )
    return path, int(text)


def _print(section: Section, path: str) -> None:
    where = "of the decompressed block" if section.block else f"of {path}"
    last = section.first_byte + len(section.data) - 1
    extent = f"bytes {section.first_byte} to {last}" if section.data else "no bytes"
    title = f"{section.title}, " if section.title else ""
    typer.echo()
    print_line(f"{title}{extent} {where}{section.note and f'; {section.note}'}")
    if section.data:
        print_table(_COLUMNS, _cells(section))


def _cells(section: Section) -> list[list[Cell]]:
    rows = []
    count = 0
    for place, own in _folded(section):
        if place.bits is None:
            count += 1
        style = _STYLES[count % len(_STYLES)]
        hidden = place.bits is not None or not own
        rows.append(
            [
                Cell("" if hidden else str(place.start), "dim"),
                Cell(_hex(place, own), style),
                Cell("  " * place.depth + place.name, style),
                Cell(_value(place), f"bold {style}"),
                Cell(place.meaning),
            ]
        )
    return rows


def _folded(section: Section) -> Iterator[tuple[Place, bytes]]:
    """The rows, of each array only the first items; all further ones are one row."""
    folded: Place | None = None
    last, own_bytes = "", b""
    for place, own in section.rows():
        if folded is not None and place.depth >= folded.depth:
            last = place.name if place.depth == folded.depth else last
            own_bytes += own
            continue
        if folded is not None:
            yield replace(folded, name=_range(folded.name, last)), own_bytes
            folded = None
        if place.name == f"[{_MOST_ITEMS}]":
            folded, last, own_bytes = place, place.name, own
        else:
            yield place, own
    if folded is not None:
        yield replace(folded, name=_range(folded.name, last)), own_bytes


def _range(first: str, last: str) -> str:
    return first if first == last else f"{first} to {last}"


def _hex(place: Place, own: bytes) -> str:
    """The bytes in hex, a length before a value apart from it. Bits stand at their places among points."""
    if place.bits is not None:
        lowest, width = place.bits
        size = 8 * (place.end - place.start)
        number = int(getattr(place.value, "intvalue", place.value) or 0)
        bits = "." * (size - lowest - width) + f"{number:0{width}b}" + "." * lowest
        return " ".join(bits[at : at + 4] for at in range(0, size, 4))
    shown = own[:_MOST_HEX_BYTES]
    parts = (shown[: place.lead].hex(" "), shown[place.lead :].hex(" "))
    more = f" .. {len(own) - len(shown)} more" if len(own) > len(shown) else ""
    return " | ".join(part for part in parts if part) + more


def _value(place: Place) -> str:
    value = place.value
    if isinstance(value, list):
        return f"{len(value)} item{'' if len(value) == 1 else 's'}"
    if isinstance(value, dict):
        return ""
    if isinstance(value, bytes):
        return _text(value)
    if isinstance(value, str):
        return repr(str(value)) if place.lead else str(value)
    if value is None:
        return "null" if place.name else ""
    moment = _moment(value) if "timestamp" in place.name.lower() and "delta" not in place.name.lower() else ""
    return f"{value}{moment and f' ({moment})'}"


def _text(value: bytes) -> str:
    """Bytes as text if they are some, else their number."""
    try:
        text = value.decode("utf-8")
    except UnicodeDecodeError:
        text = ""
    if not text.isprintable() or (value and not text):
        return f"{len(value)} bytes"
    return f"'{text}'" if len(text) <= _MOST_TEXT else f"'{text[:_MOST_TEXT]}' .. {len(value)} bytes"


def _moment(timestamp_ms: int) -> str:
    if not 0 < timestamp_ms <= _LATEST:
        return ""
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=timestamp_ms)
    return moment.strftime("%Y-%m-%d %H:%M:%S.") + f"{timestamp_ms % 1000:03d} UTC"


def _print_json(section: Section) -> None:
    for place, own in section.rows():
        row: dict[str, Any] = {
            "part": section.title,
            "position": place.start,
            "block": section.block,
            "bytes": own.hex(),
            "depth": place.depth,
            "name": place.name,
            "value": _plain(place.value),
            "meaning": place.meaning,
        }
        if place.bits is not None:
            row["lowestBit"], row["bits"] = place.bits
        typer.echo(json.dumps(row))


def _plain(value: Any) -> Any:  # noqa: ANN401 (of any definition)
    """A value as JSON has it: bytes as hex; None for what consists of the rows that follow."""
    if isinstance(value, bytes):
        return value.hex()
    return None if isinstance(value, (dict, list)) else value
