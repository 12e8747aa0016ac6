"""Defines the options of `klog consume` that no other command has: names, types and help."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

import typer

from klog.commands.shared.option_sets import optional
from klog.commands.shared.records.plan import BytesMode
from klog.commands.shared.records.selection_options import ROWS, SELECT


class IsolationLevel(StrEnum):
    """Kafka's names for what a reader sees of transactions."""

    READ_UNCOMMITTED = "read_uncommitted"
    READ_COMMITTED = "read_committed"


Topics = Annotated[
    list[str] | None,
    typer.Argument(metavar="[TOPIC]...", help="The topics to read.", show_default=False),
]


@dataclass(frozen=True, slots=True)
class ReadingOptions:
    """What to read of the topics, and until when."""

    partition: list[int] | None = optional(
        None, SELECT, "Read only this partition (repeatable).", "--partition", "-p", metavar="N"
    )
    last: int | None = optional(
        None, SELECT, "Read the last N offsets of each partition.", metavar="N", least=0
    )
    follow: bool = optional(False, SELECT, "Go on with new records; do not stop at the end.", "--follow")
    isolation_level: IsolationLevel | None = optional(
        None,
        SELECT,
        "Show all records, or only committed ones. [default: read_uncommitted]",
        *("--isolation-level", "--isolation"),
    )


@dataclass(frozen=True, slots=True)
class PrintOptions:
    """How to print records."""

    format_: str | None = optional(
        None,
        ROWS,
        "value, jsonl (or json), or a text with kcat's tokens: %k key, %s value, %h headers, %t topic, "
        "%p partition, %o offset, %T timestamp, %K %S sizes.",
        *("--format", "-f"),
        metavar="FORMAT",
    )
    bytes_: BytesMode = optional(
        BytesMode.AUTO,
        ROWS,
        "How to print keys and values. auto: as they are (jsonl: UTF-8 text or base64); none: sizes.",
        "--bytes",
    )
    key_delimiter: str | None = optional(
        None, ROWS, "Print the key and this text before each value.", "--key-delimiter", "-K", metavar="TEXT"
    )
    delimiter: str = optional(r"\n", ROWS, "The text after each record.", "--delimiter", "-D", metavar="TEXT")
    null: str = optional("", ROWS, "The text to print for null.", metavar="TEXT")
