"""Defines the options of `klog produce`: names, types and help, grouped as in its help."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Final

import typer

from klog.commands.shared.option_sets import optional
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
        _INPUT,
        "Read this file instead of stdin (repeatable; - is stdin).",
        *("--file", "-l"),
        metavar="PATH",
    )
    whole: bool = optional(False, _INPUT, "Write each file as one record.", "--whole")
    format_: InputFormat = optional(
        InputFormat.LINES,
        _INPUT,
        "Lines of text, or the JSON Lines of klog consume and klog dump-segment.",
        *("--format", "-f"),
    )
    bytes_: BytesMode = optional(
        BytesMode.AUTO,
        _INPUT,
        "How keys and values are written in jsonl: the --bytes of the dump.",
        "--bytes",
    )
    key_delimiter: str | None = optional(
        None, _INPUT, "The text between key and value in lines.", "--key-delimiter", "-K", metavar="TEXT"
    )
    delimiter: str = optional(
        r"\n", _INPUT, "The text after each record.", "--delimiter", "-D", metavar="TEXT"
    )
    null: str | None = optional(None, _INPUT, "Write keys and values of this text as null.", metavar="TEXT")
    ignore_partitions: bool = optional(
        False, _INPUT, "Choose partitions anew; do not keep those of jsonl.", "--ignore-partitions"
    )


@dataclass(frozen=True, slots=True)
class RecordOptions:
    """What every record gets."""

    key: str | None = optional(None, _RECORD, "The key of every record.", "--key", "-k", metavar="TEXT")
    header: list[str] | None = optional(
        None,
        _RECORD,
        "A header (repeatable). NAME alone has the value null.",
        *("--header", "-H"),
        metavar="NAME=VALUE",
    )
    partition: int | None = optional(
        None,
        _RECORD,
        "The partition. [default: chosen by key, as Kafka does]",
        *("--partition", "-p"),
        metavar="N",
        least=0,
    )
    timestamp: str | None = optional(
        None,
        _RECORD,
        "ISO 8601, epoch ms, or a span like 2h (that long ago). [default: that of jsonl, or now]",
        metavar="TIME",
    )
