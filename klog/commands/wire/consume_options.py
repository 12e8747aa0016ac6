"""The options of `klog consume`: names, types and help, one alias an option.

Those that select records as `klog dump-segment` does are its own.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from klog.commands.dump import options as dump_options
from klog.commands.dump.options import ROWS, SELECT
from klog.commands.dump.plan import BytesMode


class IsolationLevel(StrEnum):
    """Kafka's names of what a reader sees of transactions."""

    READ_UNCOMMITTED = "read_uncommitted"
    READ_COMMITTED = "read_committed"


Topics = Annotated[list[str], typer.Argument(metavar="TOPIC...", help="What to read.")]
Partition = Annotated[
    list[int] | None,
    typer.Option(
        "--partition", "-p", metavar="N", help="Only this one (repeatable).", rich_help_panel=SELECT
    ),
]
Offsets = dump_options.Offsets
Since = dump_options.Since
Until = dump_options.Until
Key = dump_options.Key
Grep = dump_options.Grep
Last = Annotated[
    int | None,
    typer.Option(min=0, metavar="N", help="The last N offsets of each partition.", rich_help_panel=SELECT),
]
Limit = Annotated[
    int | None, typer.Option(min=0, metavar="N", help="At most so many records.", rich_help_panel=SELECT)
]
Follow = Annotated[
    bool,
    typer.Option("--follow", help="Go on with what comes; else stop at the end.", rich_help_panel=SELECT),
]
IsolationOption = Annotated[
    IsolationLevel,
    typer.Option(help="What to see of transactions.", rich_help_panel=SELECT),
]
Format = Annotated[
    str,
    typer.Option(
        "--format",
        "-f",
        metavar="FORMAT",
        help="value, jsonl, or tokens as kcat has them: %k key, %s value, %h headers, %t topic, "
        "%p partition, %o offset, %T timestamp, %K %S sizes.",
        rich_help_panel=ROWS,
    ),
]
Bytes = Annotated[
    BytesMode,
    typer.Option(
        "--bytes",
        help="Keys and values. auto: as they are (jsonl: text where it is UTF-8, else base64); none: sizes.",
        rich_help_panel=ROWS,
    ),
]
KeyDelimiter = Annotated[
    str | None,
    typer.Option(
        "--key-delimiter", "-K", metavar="TEXT", help="Key and this before values.", rich_help_panel=ROWS
    ),
]
Delimiter = Annotated[
    str,
    typer.Option(
        "--delimiter", "-D", metavar="TEXT", help="What ends a record in lines.", rich_help_panel=ROWS
    ),
]
Null = Annotated[
    str, typer.Option(metavar="TEXT", help="What stands for null in lines.", rich_help_panel=ROWS)
]
