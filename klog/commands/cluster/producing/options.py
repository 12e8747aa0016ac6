"""Defines the options of `klog produce`: names, types and help, grouped as in its help."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from klog.commands.shared.option_sets import flag, option_set, optional, valued
from klog.commands.shared.records.plan import BytesMode


class InputFormat(StrEnum):
    """The format of the input."""

    LINES = "lines"
    JSONL = "jsonl"
    JSON = "json"
    """Another name of jsonl."""


Topic = Annotated[
    str | None, typer.Argument(metavar="TOPIC", help="The topic to write to.", show_default=False)
]
Values = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[VALUE]...", help="Records to write. [default: the lines of stdin]", show_default=False
    ),
]


@option_set("Input")
class InputOptions:
    """Where records come from, and how to parse them."""

    files: list[str] | None = valued(
        "PATH", "Read this file instead of stdin (repeatable; - is stdin).", "--file", "-l"
    )
    whole: bool = flag("Write each file as one record.")
    format_: InputFormat = optional(
        InputFormat.LINES,
        "Lines of text, or the JSON Lines of klog consume and klog dump-segment.",
        "--format",
        "-f",
    )
    bytes_: BytesMode = optional(
        BytesMode.AUTO, "How keys and values are written in jsonl: the --bytes of the dump."
    )
    key_delimiter: str | None = valued(
        "TEXT", "The text between key and value in lines.", "--key-delimiter", "-K"
    )
    delimiter: str = optional(r"\n", "The text after each record.", "--delimiter", "-D", metavar="TEXT")
    null: str | None = valued("TEXT", "Write keys and values of this text as null.")
    ignore_partitions: bool = flag("Choose partitions anew; do not keep those of jsonl.")


@option_set("Every record")
class RecordOptions:
    """What every record gets."""

    key: str | None = valued("TEXT", "The key of every record.", "--key", "-k")
    header: list[str] | None = valued(
        "NAME=VALUE", "A header (repeatable). NAME alone has the value null.", "--header", "-H"
    )
    partition: int | None = valued(
        "N", "The partition. [default: chosen by key, as Kafka does]", "--partition", "-p", least=0
    )
    timestamp: str | None = valued(
        "TIME", "ISO 8601, epoch ms, or a span like 2h (that long ago). [default: that of jsonl, or now]"
    )
