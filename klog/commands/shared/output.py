"""The options of every command that shows rows: as a table, JSON, JSON Lines or CSV, once or again and again.

A row has the same field names in every form: Kafka's, in camelCase. A table shows them as `LOG-END-OFFSET`.
"""

from __future__ import annotations

import csv
import json
import sys
import time
from collections.abc import Callable, Collection, Sequence
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Final

import typer

from klog.commands.shared.messages import columns_of, print_error, print_note
from klog.commands.shared.option_sets import flag, option_set, optional, valued
from klog.commands.shared.tables import Row, show_json, show_table
from klog.formats.errors import KlogError

if TYPE_CHECKING:
    from klog.client.cluster import Cluster
    from klog.commands.shared.connection import ConnectionOptions

_PANEL: Final = "Output"
HOME_AND_CLEAR: Final = "\x1b[H\x1b[2J\x1b[3J"


class OutputFormat(StrEnum):
    """How rows are printed."""

    TABLE = "table"
    JSON = "json"
    JSONL = "jsonl"
    CSV = "csv"


@option_set(_PANEL)
class OutputOptions:
    """How to print rows."""

    output: OutputFormat = optional(
        OutputFormat.TABLE,
        "table: for people. json: one list. jsonl: one object per line. csv: with a line of names.",
        "--output",
        "-o",
    )
    as_json: bool = flag("The same as -o jsonl.", "--json")

    @property
    def format(self) -> OutputFormat:
        """The form that was asked for."""
        return OutputFormat.JSONL if self.as_json else self.output

    @property
    def for_people(self) -> bool:
        """Whether a table was asked for, so that a command may add lines of text."""
        return self.format is OutputFormat.TABLE

    def show(
        self,
        rows: Sequence[Row],
        *,
        columns: Sequence[str] = (),
        aside: str = "",
        fields: Collection[str] = (),
        none: str = "",
    ) -> None:
        """Print rows, which all have the same fields. A table has only the fields `columns`, if given.

        `aside` is the field that a table on a terminal shows on a line of its own. Without rows a table is
        the sentence `none`, on stderr, and CSV has the names `fields`.
        """
        match self.format:
            case OutputFormat.JSONL:
                show_json(rows)
            case OutputFormat.JSON:
                ascii_only = columns_of(sys.stdout) is not None
                typer.echo(json.dumps(list(rows), ensure_ascii=ascii_only, indent=2))
            case OutputFormat.CSV:
                _show_csv(rows, fields or columns)
            case OutputFormat.TABLE:
                if not rows and none:
                    print_note(none)
                shown = [{name: row[name] for name in columns} for row in rows] if columns else rows
                show_table(shown, aside=aside)


def _show_csv(rows: Sequence[Row], fields: Collection[str]) -> None:
    """Print CSV (RFC 4180, with plain line ends). Lists and objects become JSON, an absent value is empty.

    Without rows only the line of names is printed, as far as `fields` says it.
    """
    writer = csv.writer(sys.stdout, lineterminator="\n")
    if rows or fields:
        writer.writerow(rows[0] if rows else fields)
    for row in rows:
        writer.writerow([_cell(value) for value in row.values()])


def _cell(value: object) -> object:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple | dict):
        return json.dumps(value)
    return value


@option_set(_PANEL)
class WatchOptions(OutputOptions):
    """How to print rows, and whether to show the same again and again."""

    watch_s: float | None = valued(
        "[SECONDS]",
        "Show it again every so many seconds (2 if none are given) until Ctrl-C.",
        "--watch",
        "-w",
        without_value={"--watch": "2", "-w": "2"},
    )

    def over(self, connection: ConnectionOptions, show: Callable[[Cluster], None]) -> None:
        """Call `show` with the cluster as `run` does."""
        with connection.cluster() as cluster:
            self.run(partial(show, cluster))

    def run(self, show: Callable[[], None], *, sleep_s: Callable[[float], object] = time.sleep) -> None:
        """Call `show` once, or until Ctrl-C. While it repeats, an error is shown and the next try follows."""
        if self.watch_s is None:
            show()
            return
        on_screen = columns_of(sys.stdout) is not None
        while True:
            if on_screen:
                sys.stdout.write(HOME_AND_CLEAR)
            try:
                show()
            except KlogError as error:
                print_error(error)
            sys.stdout.flush()
            sleep_s(self.watch_s)
