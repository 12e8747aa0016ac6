"""Defines the options of `klog produce`: names, types and help, grouped as in its help."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Final

import typer

from klog.commands.shared.option_sets import flag, optional
from klog.commands.shared.records.plan import BytesMode

_INPUT: Final = "Input"
_RECORD: Final = "Every record"


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


@dataclass(frozen=True, slots=True)
class InputOptions:
    """Where records come from, and how to parse them."""

    files: list[str] | None = optional(
        None,
        "Read this file instead of stdin (repeatable; - is stdin).",
        "--file",
        "-l",
        panel=_INPUT,
        metavar="PATH",
    )
    whole: bool = flag("Write each file as one record.", panel=_INPUT)
    format_: InputFormat = optional(
        InputFormat.LINES,
        "Lines of text, or the JSON Lines of klog consume and klog dump-segment.",
        "--format",
        "-f",
        panel=_INPUT,
    )
    bytes_: BytesMode = optional(
        BytesMode.AUTO,
        "How keys and values are written in jsonl: the --bytes of the dump.",
        panel=_INPUT,
    )
    key_delimiter: str | None = optional(
        None,
        "The text between key and value in lines.",
        "--key-delimiter",
        "-K",
        panel=_INPUT,
        metavar="TEXT",
    )
    delimiter: str = optional(
        r"\n", "The text after each record.", "--delimiter", "-D", panel=_INPUT, metavar="TEXT"
    )
    null: str | None = optional(
        None, "Write keys and values of this text as null.", panel=_INPUT, metavar="TEXT"
    )
    ignore_partitions: bool = flag("Choose partitions anew; do not keep those of jsonl.", panel=_INPUT)


@dataclass(frozen=True, slots=True)
class RecordOptions:
    """What every record gets."""

    key: str | None = optional(None, "The key of every record.", "--key", "-k", panel=_RECORD, metavar="TEXT")
    header: list[str] | None = optional(
        None,
        "A header (repeatable). NAME alone has the value null.",
        "--header",
        "-H",
        panel=_RECORD,
        metavar="NAME=VALUE",
    )
    partition: int | None = optional(
        None,
        "The partition. [default: chosen by key, as Kafka does]",
        "--partition",
        "-p",
        panel=_RECORD,
        metavar="N",
        least=0,
    )
    timestamp: str | None = optional(
        None,
        "ISO 8601, epoch ms, or a span like 2h (that long ago). [default: that of jsonl, or now]",
        panel=_RECORD,
        metavar="TIME",
    )
