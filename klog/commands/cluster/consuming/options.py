"""Defines the options of `klog consume` that no other command has: names, types and help."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from klog.commands.shared.option_sets import flag, option_set, optional, valued
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


@option_set(SELECT)
class ReadingOptions:
    """What to read of the topics, and until when."""

    partition: list[int] | None = valued("N", "Read only this partition (repeatable).", "--partition", "-p")
    last: int | None = valued("N", "Read the last N offsets of each partition.", least=0)
    follow: bool = flag("Go on with new records; do not stop at the end.")
    isolation_level: IsolationLevel | None = optional(
        None,
        "Show all records, or only committed ones. [default: read_uncommitted]",
        "--isolation-level",
        "--isolation",
    )


@option_set(ROWS)
class PrintOptions:
    """How to print records."""

    format_: str | None = valued(
        "FORMAT",
        "value, jsonl (or json), or a text with kcat's tokens: %k key, %s value, %h headers, %t topic, "
        "%p partition, %o offset, %T timestamp, %K %S sizes.",
        "--format",
        "-f",
    )
    bytes_: BytesMode = optional(
        BytesMode.AUTO,
        "How to print keys and values. auto: as they are (jsonl: UTF-8 text or base64); none: sizes.",
    )
    key_delimiter: str | None = valued(
        "TEXT", "Print the key and this text before each value.", "--key-delimiter", "-K"
    )
    delimiter: str = optional(r"\n", "The text after each record.", "--delimiter", "-D", metavar="TEXT")
    null: str = optional("", "The text to print for null.", metavar="TEXT")
