"""What `klog top` shows, and how a key changes it. Knows no terminal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from klog.commands.shared.tables import Row, title_of

KEYS: Final = "q quit  s sort  r reverse  / filter  t topics  b brokers  g groups  Enter opens"


class Page(StrEnum):
    """What the table lists: all of a kind, or the partitions of one."""

    TOPICS = "topics"
    BROKERS = "brokers"
    GROUPS = "groups"
    TOPIC = "topic"
    BROKER = "broker"
    GROUP = "group"


_OPENED: Final = {Page.TOPICS: Page.TOPIC, Page.BROKERS: Page.BROKER, Page.GROUPS: Page.GROUP}
_PAGE_KEYS: Final = {"t": Page.TOPICS, "b": Page.BROKERS, "g": Page.GROUPS}


@dataclass(frozen=True, slots=True)
class View:
    """What is shown: a page, which row is selected, the field that sorts, and the text that names contain.

    `name` is that of the one topic, broker or group of a page, and `before` the view to go back to. No `sort`
    leaves the order in which the rows come. In a view that `is_typing`, keys change the filter.
    """

    page: Page = Page.TOPICS
    name: str = ""
    selected: str = ""
    sort: str = ""
    is_reversed: bool = False
    filter: str = ""
    is_typing: bool = False
    is_over: bool = False
    before: View | None = None


def press(view: View, key: str, rows: Sequence[Row]) -> View:
    """The view after a key. `rows` are those that are shown, as `arranged` gives them."""
    if view.is_typing:
        return _typed(view, key)
    match key:
        case "q":
            return replace(view, is_over=True)
        case "up" | "k":
            return _moved(view, rows, -1)
        case "down" | "j":
            return _moved(view, rows, 1)
        case "s":
            fields = ["", *(rows[0] if rows else ())]
            at = fields.index(view.sort) if view.sort in fields else 0
            return replace(view, sort=fields[(at + 1) % len(fields)], is_reversed=False)
        case "r":
            return replace(view, is_reversed=not view.is_reversed)
        case "/":
            return replace(view, is_typing=True)
        case "t" | "b" | "g":
            return View(_PAGE_KEYS[key])
        case "enter" if rows and view.page in _OPENED:
            return View(_OPENED[view.page], name_of(rows[selected_row(view, rows)]), before=view)
        case "escape" | "backspace":
            return replace(view, filter="") if view.filter else view.before or view
    return view


def _typed(view: View, key: str) -> View:
    match key:
        case "enter":
            return replace(view, is_typing=False)
        case "escape":
            return replace(view, is_typing=False, filter="")
        case "backspace":
            return replace(view, filter=view.filter[:-1])
    return replace(view, filter=view.filter + key) if len(key) == 1 else view


def _moved(view: View, rows: Sequence[Row], step: int) -> View:
    if not rows:
        return view
    at = min(max(0, selected_row(view, rows) + step), len(rows) - 1)
    return replace(view, selected=name_of(rows[at]))


def kind_of(view: View) -> str:
    """What one row of the view's page is."""
    return view.page.removesuffix("s") if view.page in _OPENED else "partition"


def name_of(row: Row) -> str:
    """The name of a row: its first field."""
    return str(next(iter(row.values())))


def selected_row(view: View, rows: Sequence[Row]) -> int:
    """The place of the selected row; the first one if that is not there any more."""
    names = [name_of(row) for row in rows]
    return names.index(view.selected) if view.selected in names else 0


def arranged(view: View, rows: Sequence[Row]) -> list[Row]:
    """The rows whose names contain the filter, in the view's order.

    Numbers descend, texts ascend. Rows without a value come last.
    """
    found = [row for row in rows if view.filter.lower() in name_of(row).lower()]
    known = [row for row in found if row.get(view.sort) is not None]
    if not known:
        return found[::-1] if view.is_reversed and not view.sort else found
    descends = isinstance(known[0][view.sort], int | float)
    known.sort(key=lambda row: row[view.sort], reverse=descends != view.is_reversed)  # type: ignore[arg-type,return-value]
    return [*known, *(row for row in found if row.get(view.sort) is None)]


def window(rows: Sequence[Row], selected: int, most: int) -> Sequence[Row]:
    """As many of the rows as fit, the selected one among them."""
    first = max(0, min(selected - most + 1, len(rows) - most))
    return rows[first : first + most]


def column_of(field: str) -> str:
    """The name of a field in a table for people."""
    return field.replace("PerSec", "/s")


def footer(view: View) -> list[str]:
    """The lines below the tables: what is shown, and the keys."""
    if view.is_typing:
        return [f"filter: {view.filter}_", "Enter keeps the filter, Esc drops it"]
    parts = [f"{view.page} {view.name}".rstrip()]
    parts += [f"sorted by {title_of(column_of(view.sort))}"] if view.sort else []
    parts += ["reversed"] if view.is_reversed else []
    parts += [f"with '{view.filter}' (Esc: all)"] if view.filter else []
    parts += ["Esc: back"] if view.before is not None and not view.filter else []
    return [", ".join(parts), KEYS]
