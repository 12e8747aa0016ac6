"""Defines the options of `klog consume` that no other command has: names, types and help."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from klog.commands.dump.options import ROWS
from klog.commands.dump.plan import BytesMode
from klog.commands.dump.selection_options import SELECT


class IsolationLevel(StrEnum):
    """Kafka's names for what a reader sees of transactions."""

    READ_UNCOMMITTED = "read_uncommitted"
    READ_COMMITTED = "read_committed"


Topics = Annotated[list[str], typer.Argument(metavar="TOPIC...", help="The topics to read.")]
Partition = Annotated[
    list[int] | None,
    typer.Option(
        "--partition",
        "-p",
        metavar="N",
        help="Read only this partition (repeatable).",
        rich_help_panel=SELECT,
    ),
]
Last = Annotated[
    int | None,
    typer.Option(
        min=0, metavar="N", help="Read the last N offsets of each partition.", rich_help_panel=SELECT
    ),
]
Follow = Annotated[
    bool,
    typer.Option("--follow", help="Go on with new records; do not stop at the end.", rich_help_panel=SELECT),
]
IsolationOption = Annotated[
    IsolationLevel,
    typer.Option(help="Show all records, or only committed ones.", rich_help_panel=SELECT),
]
Format = Annotated[
    str,
    typer.Option(
        "--format",
        "-f",
        metavar="FORMAT",
        help="value, jsonl, or a text with kcat's tokens: %k key, %s value, %h headers, %t topic, "
        "%p partition, %o offset, %T timestamp, %K %S sizes.",
        rich_help_panel=ROWS,
    ),
]
Bytes = Annotated[
    BytesMode,
    typer.Option(
        "--bytes",
        help="How to print keys and values. auto: as they are (jsonl: UTF-8 text or base64); none: sizes.",
        rich_help_panel=ROWS,
    ),
]
KeyDelimiter = Annotated[
    str | None,
    typer.Option(
        "--key-delimiter",
        "-K",
        metavar="TEXT",
        help="Print the key and this text before each value.",
        rich_help_panel=ROWS,
    ),
]
Delimiter = Annotated[
    str,
    typer.Option(
        "--delimiter", "-D", metavar="TEXT", help="The text after each record.", rich_help_panel=ROWS
    ),
]
Null = Annotated[str, typer.Option(metavar="TEXT", help="The text to print for null.", rich_help_panel=ROWS)]
