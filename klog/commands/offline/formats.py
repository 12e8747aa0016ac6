"""`klog formats`: lists the formats of files, draws the layout of one from its definition, decodes a file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

from klog.commands.shared.messages import print_line
from klog.commands.shared.option_sets import flag
from klog.formats.errors import UsageError

if TYPE_CHECKING:
    from klog.formats.catalogue import Format
    from klog.formats.layout import Row


def formats(
    name: Annotated[str | None, typer.Argument(help="The format to draw. [default: list all]")] = None,
    decode: Annotated[
        str | None,
        typer.Option(
            metavar="FILE@POSITION",
            help="Show bytes of a file under their names, in hex and decoded: the batch or entry that starts"
            " at the position. [default position: 0]",
        ),
    ] = None,
    json_output: bool = flag("Print one JSON object per line.", "--json"),
) -> None:
    """List the formats of a log directory and of ZooKeeper's, draw one, or decode a part of a file by it.

    The layout comes from the definition with which klog reads and writes the file.

    Examples:

        klog formats
        klog formats record-batch
        klog formats record-batch --decode 00000000000000000000.log@659
        klog formats producer-snapshot --json
    """
    from klog.formats import catalogue

    if decode is not None:
        from klog.commands.offline import decoded_bytes

        if name is None:
            raise UsageError("--decode needs the NAME of a format", cure="`klog formats` lists them")
        decoded_bytes.show(catalogue.find(name), decode, json_output=json_output)
        return

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
    for line in lines:
        if line:
            print_line(line)
    typer.echo()


def _show(rows: list[dict[str, object]], json_output: bool) -> None:
    if json_output:
        import json

        for row in rows:
            typer.echo(json.dumps(row))
    else:
        _show_table(rows)


_STYLES: Final = {"name": "cyan", "type": "green", "offset": "dim", "size": "dim"}
_FOLDED: Final = {"what", "type", "meaning"}
_RANKS: Final = {"source": 2, "where": 1, "type": 1}


def _show_table(rows: list[dict[str, object]]) -> None:
    from klog.commands.shared.table_layout import Cell, Column, print_table

    columns = [
        Column(
            name.upper(),
            right=name in ("offset", "size"),
            folded=name in _FOLDED,
            rank=_RANKS.get(name, 0),
        )
        for name in rows[0]
    ]
    print_table(
        columns, [[Cell(str(value), _STYLES.get(name, "")) for name, value in row.items()] for row in rows]
    )
