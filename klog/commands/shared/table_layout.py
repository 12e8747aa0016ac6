"""Lays out tables: as wide as they are in files and pipes, within the width of the screen on a terminal.

If a table is too wide, texts that may be wrapped are wrapped and previews are cut, both to a limit. Then
whole columns are dropped, the least useful first. Numbers and names that somebody may type are never cut.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import Final, NamedTuple

from klog.commands.shared.messages import coloured, columns_of, print_line
from klog.formats.visible import visible

GAP: Final = "  "
_LEAST_PREVIEW: Final = 12
_LEAST_FOLDED: Final = 20
_SGR: Final = {
    "bold": "1",
    "dim": "2",
    "italic": "3",
    "red": "31",
    "green": "32",
    "magenta": "35",
    "cyan": "36",
}


class Cell(NamedTuple):
    """Text with a style (`bold red`), which only a terminal shows."""

    text: str
    style: str = ""


class Column(NamedTuple):
    """A column. Numbers are aligned right.

    A `preview` may be cut and a `folded` text wrapped if the screen is narrow. If that does not suffice, the
    columns with a `rank` are dropped, the highest rank first; 0 is never dropped.
    """

    title: str
    right: bool = False
    preview: bool = False
    folded: bool = False
    rank: int = 0


Row = Sequence[Cell]


class Fitted(NamedTuple):
    """The columns that are shown, by place, with their widths."""

    places: tuple[int, ...]
    widths: tuple[int, ...]


def cell_width(text: str) -> int:
    """How many columns a text takes on a terminal; East Asian characters take two."""
    if text.removesuffix("\u2026").isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def natural_widths(columns: Sequence[Column], rows: Iterable[Row], before: Sequence[int] = ()) -> list[int]:
    """Widths that fit the titles and rows and are not smaller than `before`."""
    widths = list(before) or [len(column.title) for column in columns]
    for row in rows:
        for place, cell in enumerate(row):
            widths[place] = max(widths[place], cell_width(cell.text))
    return widths


def fit(columns: Sequence[Column], rows: Sequence[Row], natural: Sequence[int], available: int) -> Fitted:
    """Choose the columns and widths for a screen."""
    least = [
        _least_width(column, width, [row[place].text for row in rows])
        for place, (column, width) in enumerate(zip(columns, natural, strict=True))
    ]
    places = list(range(len(columns)))
    while _total([least[place] for place in places]) > available:
        droppable = [place for place in places if columns[place].rank]
        if not droppable:
            break
        places.remove(max(droppable, key=lambda place: columns[place].rank))
    widths = {place: least[place] for place in places}
    left = available - _total(list(widths.values()))
    flexible = sorted(
        (place for place in places if least[place] < natural[place]), key=lambda place: natural[place]
    )
    for taken, place in enumerate(flexible):
        more = min(natural[place] - least[place], max(0, left) // (len(flexible) - taken))
        widths[place] += more
        left -= more
    return Fitted(tuple(places), tuple(widths[place] for place in places))


def _least_width(column: Column, natural: int, texts: Iterable[str]) -> int:
    if column.preview:
        return min(natural, max(_LEAST_PREVIEW, len(column.title)))
    if column.folded:
        words = (len(word) for text in texts for word in text.split())
        return min(natural, max(_LEAST_FOLDED, len(column.title), *words, 0))
    return natural


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + len(GAP) * max(0, len(widths) - 1)


def heading(columns: Sequence[Column], fitted: Fitted) -> list[Cell]:
    """The titles of the columns that are shown."""
    return [Cell(columns[place].title, "bold") for place in fitted.places]


def lines(columns: Sequence[Column], row: Sequence[Cell], fitted: Fitted, *, styles: bool) -> Iterator[str]:
    """The lines of one row, which has only the cells that are shown."""
    texts = []
    for place, width, cell in zip(fitted.places, fitted.widths, row, strict=True):
        texts.append(_cell_lines(columns[place], width, cell.text))
    for number, parts in enumerate(zip_longest(*texts, fillvalue="")):
        pieces = []
        for place, width, part, cell in zip(fitted.places, fitted.widths, parts, row, strict=True):
            blank = " " * (width - cell_width(part))
            text = styled(part, cell.style) if styles and part else part
            pieces.append(blank + text if columns[place].right and not number else text + blank)
        yield GAP.join(pieces).rstrip()


def _cell_lines(column: Column, width: int, text: str) -> list[str]:
    if cell_width(text) <= width:
        return [text]
    if column.folded:
        indent = " " * (len(text) - len(text.lstrip(" ")))
        return textwrap.wrap(
            text, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
        )
    return [cut(text, width)] if column.preview else [text]


def cut(text: str, width: int) -> str:
    """The text in at most `width` columns of a terminal, with an ellipsis if it is cut."""
    if cell_width(text) <= width:
        return text
    from rich.cells import set_cell_size

    return set_cell_size(text, width - 1).rstrip() + "\u2026"


def styled(text: str, style: str) -> str:
    """The text with a style's escape sequences."""
    codes = ";".join(_SGR[word] for word in style.split())
    return f"\x1b[{codes}m{text}\x1b[0m" if codes else text


def safe(row: Iterable[Cell]) -> list[Cell]:
    """The row with escapes for what a terminal would obey."""
    return [Cell(visible(cell.text), cell.style) for cell in row]


def dropped(columns: Sequence[Column], fitted: Fitted, shown: Iterable[int]) -> list[str]:
    """The titles of the columns that should be shown and are not."""
    return [columns[place].title for place in shown if place not in fitted.places]


def print_table(columns: Sequence[Column], rows: Sequence[Row]) -> None:
    """Print a whole table on stdout."""
    width = columns_of(sys.stdout)
    if width is None:
        natural = natural_widths(columns, rows)
        fitted = Fitted(tuple(range(len(columns))), tuple(natural))
    else:
        rows = [safe(row) for row in rows]
        fitted = fit(columns, rows, natural_widths(columns, rows), width)
    kept = [heading(columns, fitted), *([row[place] for place in fitted.places] for row in rows)]
    for row in kept:
        for line in lines(columns, row, fitted, styles=coloured(sys.stdout)):
            print(line)  # noqa: T201
    if missing := dropped(columns, fitted, range(len(columns))):
        print_line(f"no room for {', '.join(missing)} (--json has all)")
