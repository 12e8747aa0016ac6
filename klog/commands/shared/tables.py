"""Prints rows as a table for people, or as JSON Lines for programs."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TextIO, TypeVar

import typer

from klog.commands.shared.messages import BOLD, INDENT, columns_of, hanging, paint, print_line
from klog.formats.visible import visible

Row = Mapping[str, object]
_Item = TypeVar("_Item")
Fields = Mapping[str, Callable[[_Item], object]]
"""The fields of a row by their names, as functions of what the row is about."""

_LEAST_WIDTH = 10
_GAP = "  "
_WORD_START = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def row_of(fields: Fields[_Item], item: _Item) -> dict[str, object]:
    """The row about an item."""
    return {name: value_of(item) for name, value_of in fields.items()}


def show_json(rows: Sequence[Row]) -> None:
    """Print one JSON object per line."""
    for row in rows:
        typer.echo(json.dumps(row, ensure_ascii=columns_of(sys.stdout) is not None))


def show_table(rows: Sequence[Row], *, aside: str = "", stream: TextIO | None = None) -> None:
    """Print aligned columns under their names, numbers to the right. All rows have the same keys.

    A name like `logEndOffset` becomes LOG-END-OFFSET.

    On a terminal the table keeps to the screen. A row that is too long goes on in the next line, indented,
    and the column `aside` gets a line of its own. Nothing is cut or left out.
    """
    if not rows:
        return
    out = stream or sys.stdout
    columns = columns_of(out)
    names = [name for name in rows[0] if columns is None or name != aside]
    texts = [[_text(row[name]) for name in names] for row in rows]
    if columns is not None:
        texts = [[visible(text) for text in row] for row in texts]
    right = [all(isinstance(row[name], int) for row in rows) for name in names]
    titles = [title_of(name) for name in names]
    widths = [max(map(len, column)) for column in zip(titles, *texts, strict=True)]
    if columns is not None:
        widths = _limited(widths, right, columns)
    typer.echo(paint(_line(titles, widths, right), BOLD, out), file=out)
    if columns is None:
        typer.echo("\n".join(_line(text, widths, right) for text in texts), file=out)
        return
    for row, text in zip(rows, texts, strict=True):
        line = _line(text, widths, right)
        typer.echo(line if len(line) <= columns else hanging(line, columns), file=out)
        if aside and row.get(aside):
            print_line(f"{INDENT}{aside} {_text(row[aside])}", stream=out)


def title_of(name: str) -> str:
    """The title of a column: LOG-END-OFFSET for `logEndOffset`."""
    return _WORD_START.sub("-", name).upper()


def _limited(widths: Sequence[int], right: Sequence[bool], columns: int) -> list[int]:
    """Widths for a screen: in a table that is too wide, the widest texts may stick out of their column."""
    found = list(widths)
    over = sum(widths) + len(_GAP) * (len(widths) - 1) - columns
    places = [place for place in range(len(widths)) if not right[place]]
    for place in sorted(places, key=lambda place: -widths[place]):
        if over <= 0:
            break
        less = min(over, max(0, found[place] - _LEAST_WIDTH))
        found[place] -= less
        over -= less
    return found


def _text(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, list | tuple):
        return ",".join(map(str, value)) or "-"
    return str(value)


def _line(cells: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    """The cells in their columns. A cell that sticks out takes the blanks of those after it."""
    line, end = "", 0
    for cell, width, flush in zip(cells, widths, right, strict=True):
        end += width
        room = end - len(line)
        line += (cell.rjust(room) if flush else cell.ljust(room)) + _GAP
        end += len(_GAP)
    return line.rstrip()
