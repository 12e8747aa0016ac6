"""The options of `klog consume`: names, types and help, one alias an option."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final

import typer

from klog.commands.dump.plan import BytesMode

_SELECT: Final = "Selection"
_ROWS: Final = "Rows"


class IsolationLevel(StrEnum):
    """Kafka's names of what a reader sees of transactions."""

    READ_UNCOMMITTED = "read_uncommitted"
    READ_COMMITTED = "read_committed"


Topics = Annotated[list[str], typer.Argument(metavar="TOPIC...", help="What to read.")]
Partition = Annotated[
    list[int] | None,
    typer.Option(
        "--partition", "-p", metavar="N", help="Only this one (repeatable).", rich_help_panel=_SELECT
    ),
]
Offsets = Annotated[
    str | None,
    typer.Option(metavar="A..B", help="Offsets, both included: 5..9, 5.., ..9, 5.", rich_help_panel=_SELECT),
]
Since = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        help="Timestamps from here on: ISO 8601, epoch ms, or a span like 2h (that long ago).",
        rich_help_panel=_SELECT,
    ),
]
Until = Annotated[
    str | None, typer.Option(metavar="TIME", help="Timestamps before this.", rich_help_panel=_SELECT)
]
Last = Annotated[
    int | None,
    typer.Option(min=0, metavar="N", help="The last N offsets of each partition.", rich_help_panel=_SELECT),
]
Key = Annotated[
    str | None, typer.Option(metavar="TEXT", help="Records with exactly this key.", rich_help_panel=_SELECT)
]
Grep = Annotated[
    str | None,
    typer.Option(metavar="REGEX", help="Records whose key or value matches.", rich_help_panel=_SELECT),
]
Limit = Annotated[
    int | None, typer.Option(min=0, metavar="N", help="At most so many records.", rich_help_panel=_SELECT)
]
Follow = Annotated[
    bool,
    typer.Option("--follow", help="Go on with what comes; else stop at the end.", rich_help_panel=_SELECT),
]
IsolationOption = Annotated[
    IsolationLevel,
    typer.Option(help="What to see of transactions.", rich_help_panel=_SELECT),
]
Format = Annotated[
    str,
    typer.Option(
        "--format",
        "-f",
        metavar="FORMAT",
        help="value, jsonl, or tokens as kcat has them: %k key, %s value, %h headers, %t topic, "
        "%p partition, %o offset, %T timestamp, %K %S sizes.",
        rich_help_panel=_ROWS,
    ),
]
Bytes = Annotated[
    BytesMode,
    typer.Option(
        "--bytes",
        help="Keys and values. auto: as they are (jsonl: text where it is UTF-8, else base64); none: sizes.",
        rich_help_panel=_ROWS,
    ),
]
KeyDelimiter = Annotated[
    str | None,
    typer.Option(
        "--key-delimiter", "-K", metavar="TEXT", help="Key and this before values.", rich_help_panel=_ROWS
    ),
]
Delimiter = Annotated[
    str,
    typer.Option(
        "--delimiter", "-D", metavar="TEXT", help="What ends a record in lines.", rich_help_panel=_ROWS
    ),
]
Null = Annotated[
    str, typer.Option(metavar="TEXT", help="What stands for null in lines.", rich_help_panel=_ROWS)
]
