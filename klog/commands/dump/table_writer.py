"""Writes tables of any length in chunks of rows: with rich on a terminal, as plain text elsewhere.

Only one chunk is in memory. Columns keep their widths from chunk to chunk.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, BinaryIO, Final, NamedTuple

from klog.commands.dump.cells import Cell, cell_width

if TYPE_CHECKING:
    from rich.console import Console

CHUNK_ROWS: Final = 200
PLAIN_WIDE_WIDTH: Final = 80
"""Characters of a key or value if no terminal limits them."""


class Column(NamedTuple):
    """A column. Numbers are aligned right; `wide` columns share the width that the others leave."""

    title: str
    right: bool = False
    wide: bool = False


Row = list[Cell]


class _Utf8:
    """A text stream on `out`, as rich wants it. It never closes `out`, also if a write fails."""

    encoding = "utf-8"

    def __init__(self, out: BinaryIO) -> None:
        self._out = out
        self.isatty = out.isatty
        self.fileno = out.fileno
        self.flush = out.flush

    def write(self, text: str) -> int:
        """Write a text; characters that UTF-8 lacks become `?`."""
        self._out.write(text.encode("utf-8", "replace"))
        return len(text)


class TableWriter:
    """Writes sections and tables to `out`. Leave its `with` block before using `out` otherwise."""

    def __init__(self, out: BinaryIO) -> None:
        self._text = _Utf8(out)
        self._console = _console(self._text) if out.isatty() else None
        self._sections = 0

    def __enter__(self) -> TableWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self._text.flush()

    @property
    def wide_width(self) -> int:
        """How many characters a wide cell may have."""
        return PLAIN_WIDE_WIDTH if self._console is None else max(20, self._console.width)

    def section(self, title: str, note: str = "") -> None:
        """Write a heading, after an empty line unless it is the first."""
        if self._sections:
            self.line()
        self._sections += 1
        if self._console is None:
            self._text.write(f"{title}  {note}\n" if note else f"{title}\n")
            return
        from rich.text import Text

        self._console.print(Text.assemble((title, "bold"), "  ", (note, "dim")), soft_wrap=True)

    def line(self, text: str = "", style: str = "") -> None:
        """Write one line."""
        if self._console is None:
            self._text.write(f"{text}\n")
            return
        from rich.text import Text

        self._console.print(Text(text, style), soft_wrap=True)

    def facts(self, facts: Iterable[tuple[str, Cell]]) -> None:
        """Write one name and text per line; a repeated name is written once."""
        found = list(facts)
        width = max((len(name) for name, _ in found), default=0)
        before = ""
        for name, cell in found:
            shown = "" if name == before else name
            before = name
            if self._console is None:
                self._text.write(f"  {shown.ljust(width)}  {cell.text}\n")
                continue
            from rich.text import Text

            self._console.print(
                Text.assemble("  ", (shown.ljust(width), "bold"), "  ", (cell.text, cell.style)),
                soft_wrap=True,
            )

    def table(self, columns: list[Column], rows: Iterable[Row]) -> int:
        """Write the rows; returns how many there were.

        Columns without any text in the first chunk are left out.
        """
        count = 0
        widths: list[int] = []
        shown: list[int] = []
        for chunk in _chunks(rows):
            if not count:
                shown = [place for place in range(len(columns)) if any(row[place].text for row in chunk)]
            kept = [columns[place] for place in shown]
            picked = [[row[place] for place in shown] for row in chunk]
            widths = _widths(kept, picked, widths)
            if self._console is None:
                self._plain(kept, picked, widths, heading=not count)
            else:
                _rich(self._console, kept, picked, widths, heading=not count)
            count += len(chunk)
        return count

    def _plain(self, columns: list[Column], rows: list[Row], widths: list[int], *, heading: bool) -> None:
        lines = [[Cell(column.title) for column in columns], *rows] if heading else rows
        for row in lines:
            parts = [
                _padded(cell.text, column, width)
                for cell, column, width in zip(row, columns, widths, strict=True)
            ]
            self._text.write("  ".join(parts).rstrip() + "\n")


def _padded(text: str, column: Column, width: int) -> str:
    blank = " " * (width - cell_width(text))
    return blank + text if column.right else text + blank


def _console(text: Any) -> Console:  # noqa: ANN401 (rich takes any text stream)
    from rich.console import Console

    return Console(file=text, highlight=False, emoji=False, markup=False)


def _chunks(rows: Iterable[Row]) -> Iterator[list[Row]]:
    rows = iter(rows)
    while chunk := list(islice(rows, CHUNK_ROWS)):
        yield chunk


def _widths(columns: list[Column], rows: list[Row], before: list[int]) -> list[int]:
    """Widths that fit the rows and are not smaller than `before`, so that columns stay aligned."""
    smallest = before or [len(column.title) for column in columns]
    return [
        max(least, *(cell_width(row[place].text) for row in rows)) for place, least in enumerate(smallest)
    ]


def _rich(
    console: Console, columns: list[Column], rows: list[Row], widths: list[int], *, heading: bool
) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(
        box=box.SIMPLE_HEAD, show_header=heading, header_style="bold", pad_edge=False, show_edge=False
    )
    fixed = sum(width for width, column in zip(widths, columns, strict=True) if not column.wide)
    wide = [place for place, column in enumerate(columns) if column.wide]
    left = max(12 * len(wide), console.width - fixed - 3 * len(columns))
    for column, width in zip(columns, _shared(widths, wide, left), strict=True):
        table.add_column(
            column.title,
            justify="right" if column.right else "left",
            width=width,
            no_wrap=True,
            overflow="ellipsis",
        )
    for row in rows:
        table.add_row(*(Text(cell.text, cell.style, no_wrap=True, overflow="ellipsis") for cell in row))
    console.print(table)


def _shared(widths: list[int], wide: list[int], left: int) -> list[int]:
    """Limit the wide columns to `left` characters together; narrow ones keep their width."""
    shared = list(widths)
    for taken, place in enumerate(sorted(wide, key=lambda place: widths[place])):
        shared[place] = min(widths[place], left // (len(wide) - taken))
        left -= shared[place]
    return shared
