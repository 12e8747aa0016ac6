"""Defines the options of `klog dump-segment` that no other command has: names, types and help."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final

import typer

from klog.commands.shared.records.plan import BytesMode
from klog.commands.shared.records.selection_options import ROWS


class DumpFormat(StrEnum):
    """The output formats. Each but `json` and `kafka` is a module of `klog.commands.offline.dump`."""

    TABLE = "table"
    JSONL = "jsonl"
    JSON = "json"
    """Another name of jsonl."""
    KAFKA = "kafka"
    PARQUET = "parquet"


_CHECK: Final = "Checking"

Paths = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[PATH]...",
        help="Files (plain or .gz), globs, partition directories or whole log directories.",
        show_default=False,
    ),
]
Files = Annotated[
    list[str] | None,
    typer.Option(
        "--files", metavar="FILE,FILE", help="Files, named as for kafka-dump-log.", show_default=False
    ),
]
Format = Annotated[
    DumpFormat | None,
    typer.Option(
        "--format",
        "-f",
        help="The output format. [default: table on a terminal, jsonl elsewhere]",
        show_default=False,
    ),
]
Summary = Annotated[
    bool, typer.Option("--summary", help="Show statistics of a segment, a partition or a log directory.")
]
Output = Annotated[
    str | None,
    typer.Option(
        "--output",
        "-o",
        metavar="PATH",
        help="Write to this file instead of stdout (parquet: a file, or a directory for several segments).",
        show_default=False,
    ),
]
Force = Annotated[bool, typer.Option("--force", help="Replace files of --output that exist already.")]
AllFiles = Annotated[
    bool,
    typer.Option(
        "--all-files", help="Show every file of a directory that is Kafka's, not only the live segments."
    ),
]
Batches = Annotated[
    bool,
    typer.Option(
        "--batches/--records", help="Show one row per batch, or one per record.", rich_help_panel=ROWS
    ),
]
Bytes = Annotated[
    BytesMode,
    typer.Option(
        "--bytes",
        help="How to print keys and values. auto: UTF-8 text or base64; none: only their lengths.",
        rich_help_panel=ROWS,
    ),
]
Verify = Annotated[
    bool,
    typer.Option("--verify", help="Also check checksums, offsets and indexes.", rich_help_panel=_CHECK),
]
Strict = Annotated[bool, typer.Option("--strict", help="Stop at the first problem.", rich_help_panel=_CHECK)]
MaxDecompressedBytes = Annotated[
    int,
    typer.Option(
        min=1,
        metavar="BYTES",
        help="The largest size to which one batch may decompress.",
        rich_help_panel=_CHECK,
    ),
]
