"""Writes tables of any length in chunks of rows, laid out for the screen if `out` is a terminal.

Only one chunk is in memory. Columns keep their widths from chunk to chunk, unless a chunk has wider cells, or
cells in a column that was empty before; then the heading is written again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import BinaryIO, Final

from klog.commands.shared.messages import coloured, columns_of, hanging
from klog.commands.shared.table_layout import (
    Cell,
    Column,
    Fitted,
    Row,
    dropped,
    fit,
    heading,
    lines,
    natural_widths,
    safe,
    styled,
)
from klog.formats.visible import visible

__all__ = ["Column", "Row", "TableWriter"]

CHUNK_ROWS: Final = 200
PLAIN_WIDE_WIDTH: Final = 80
"""Characters of a key or value if no terminal limits them."""


class TableWriter:
    """Writes sections and tables to `out`, in UTF-8; characters that UTF-8 lacks become `?`."""

    def __init__(self, out: BinaryIO) -> None:
        self._out = out
        self._columns = columns_of(out)
        self._coloured = coloured(out)
        self._sections = 0
        self._missing: list[str] = []

    def __enter__(self) -> TableWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self._out.flush()

    @property
    def wide_width(self) -> int:
        """How many characters a wide cell may have."""
        return PLAIN_WIDE_WIDTH if self._columns is None else max(20, self._columns)

    def section(self, title: str, note: str = "") -> None:
        """Write a heading, after an empty line unless it is the first."""
        if self._sections:
            self.line()
        self._sections += 1
        if self._columns is not None:
            title = self._styled(visible(title), "bold")
            note = self._styled(note, "dim")
        self._write(f"{title}  {note}" if note else title)

    def line(self, text: str = "", style: str = "") -> None:
        """Write one line."""
        if self._columns is not None:
            text = self._styled(hanging(visible(text), self._columns), style) if text.strip() else text
        self._write(text)

    def facts(self, facts: Iterable[tuple[str, Cell]]) -> None:
        """Write one name and text per line; a repeated name is written once."""
        found = list(facts)
        width = max((len(name) for name, _ in found), default=0)
        before = ""
        for name, cell in found:
            lead = f"  {('' if name == before else name).ljust(width)}  "
            before = name
            if self._columns is None:
                self._write(lead + cell.text)
                continue
            text = hanging(lead + visible(cell.text), self._columns, " " * len(lead))[len(lead) :]
            self._write(self._styled(lead, "bold") + self._styled(text, cell.style))

    def table(self, columns: list[Column], rows: Iterable[Row]) -> int:
        """Write a table without its empty columns; returns how many rows there are."""
        count = 0
        shown: list[int] = []
        natural: list[int] = []
        fitted: Fitted | None = None
        for chunk in _chunks(rows if self._columns is None else map(safe, rows)):
            filled = {place for row in chunk for place, cell in enumerate(row) if cell.text}
            shown = sorted({*shown, *filled})
            natural = natural_widths(columns, chunk, natural)
            before, fitted = fitted, self._fitted(columns, chunk, natural, shown)
            if before is None or before.places != fitted.places:
                self._row(columns, heading(columns, fitted), fitted)
            for row in chunk:
                self._row(columns, [row[place] for place in fitted.places], fitted)
            count += len(chunk)
        if fitted is not None:
            self._note(dropped(columns, fitted, shown))
        return count

    def _note(self, missing: list[str]) -> None:
        """Say which columns are not shown, unless the table before said the same."""
        if missing and missing != self._missing:
            self.line(f"no room for {', '.join(missing)} (--format jsonl has all)", "dim")
        self._missing = missing

    def _fitted(self, columns: list[Column], rows: list[Row], natural: list[int], shown: list[int]) -> Fitted:
        if self._columns is None:
            return Fitted(tuple(shown), tuple(natural[place] for place in shown))
        found = fit(
            [columns[place] for place in shown],
            [[row[place] for place in shown] for row in rows],
            [natural[place] for place in shown],
            self._columns,
        )
        return Fitted(tuple(shown[place] for place in found.places), found.widths)

    def _row(self, columns: list[Column], row: Row, fitted: Fitted) -> None:
        for line in lines(columns, row, fitted, styles=self._coloured):
            self._write(line)

    def _styled(self, text: str, style: str) -> str:
        return styled(text, style) if self._coloured else text

    def _write(self, line: str) -> None:
        self._out.write(f"{line}\n".encode("utf-8", "replace"))


def _chunks(rows: Iterable[Row]) -> Iterator[list[Row]]:
    rows = iter(rows)
    while chunk := list(islice(rows, CHUNK_ROWS)):
        yield chunk
