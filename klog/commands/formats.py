"""`klog formats`: lists the formats of files, and draws the layout of one from its definition."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

if TYPE_CHECKING:
    from klog.formats.catalogue import Format
    from klog.formats.layout import Row


def formats(
    name: Annotated[str | None, typer.Argument(help="The format to draw. [default: list all]")] = None,
    json_output: Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")] = False,
) -> None:
    """List the formats of a log directory, or draw the layout of one.

    The layout comes from the definition with which klog reads and writes the file.

    Examples:

        klog formats

        klog formats record-batch

        klog formats producer-snapshot --json
    """
    from klog.formats import catalogue

    if name is None:
        _show([_list_row(entry) for entry in catalogue.FORMATS], json_output)
        return
    from klog.formats import layout

    chosen = catalogue.find(name)
    rows = layout.rows(chosen.definition)
    if json_output:
        _show([row._asdict() for row in rows], json_output)
        return
    _heading(chosen)
    _show([_layout_row(row) for row in rows], json_output)


def _list_row(entry: Format) -> dict[str, object]:
    return {"name": entry.name, "what": entry.title, "where": entry.pattern, "source": entry.source}


def _layout_row(row: Row) -> dict[str, object]:
    if row.bits:
        offset = f"bit {row.offset}"
    elif row.offset is None:
        offset = ".." if row.type not in ("", "line", "name") else ""
    else:
        offset = f"+{row.offset}" if row.relative else str(row.offset)
    name = "  " * row.depth + row.name
    return {"offset": offset, "size": row.size, "type": row.type, "name": name, "meaning": row.meaning}


def _heading(chosen: Format) -> None:
    lines = [
        f"{chosen.name}: {chosen.title}",
        f"{chosen.pattern or 'names'}; rules: {chosen.source}",
        chosen.notes,
    ]
    typer.echo("\n".join(line for line in lines if line) + "\n")


def _show(rows: list[dict[str, object]], json_output: bool) -> None:
    import sys

    if json_output:
        import json

        for row in rows:
            typer.echo(json.dumps(row))
    elif sys.stdout.isatty():
        _show_table(rows)
    else:
        _show_plain(rows)


_STYLES: Final = {"name": "cyan", "type": "green", "offset": "dim", "size": "dim"}


def _show_table(rows: list[dict[str, object]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, header_style="bold", pad_edge=False)
    for column in rows[0]:
        number = column in ("offset", "size")
        table.add_column(
            column.upper(),
            style=_STYLES.get(column, ""),
            justify="right" if number else "left",
            no_wrap=number,
            overflow="fold",
        )
    for row in rows:
        table.add_row(*(Text(str(value)) for value in row.values()))
    Console().print(table)


def _show_plain(rows: list[dict[str, object]]) -> None:
    texts = [
        [column.upper() for column in rows[0]],
        *([str(value) for value in row.values()] for row in rows),
    ]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    for text in texts:
        typer.echo("  ".join(cell.ljust(width) for cell, width in zip(text, widths, strict=True)).rstrip())
