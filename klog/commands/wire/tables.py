"""Prints rows as a table for people, or as JSON Lines for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence

import typer

Row = Mapping[str, object]


def show_json(rows: Sequence[Row]) -> None:
    """Print one JSON object per line."""
    for row in rows:
        typer.echo(json.dumps(row, ensure_ascii=False))


def show_table(rows: Sequence[Row]) -> None:
    """Print aligned columns under their names, numbers to the right. All rows have the same keys."""
    if not rows:
        return
    texts = [[_text(value) for value in row.values()] for row in rows]
    names = [name.upper() for name in rows[0]]
    right = [all(isinstance(row[name], int) for row in rows) for name in rows[0]]
    widths = [max(map(len, column)) for column in zip(names, *texts, strict=True)]
    heading = _line(names, widths, right)
    typer.echo(typer.style(heading, bold=True) if sys.stdout.isatty() else heading)
    for text in texts:
        typer.echo(_line(text, widths, right))


def _text(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, list | tuple):
        return ",".join(map(str, value)) or "-"
    return str(value)


def _line(cells: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    padded = (
        cell.rjust(width) if flush else cell.ljust(width)
        for cell, width, flush in zip(cells, widths, right, strict=True)
    )
    return "  ".join(padded).rstrip()
