"""Defines the options of `klog produce`: names, types and help."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final

import typer

from klog.commands.dump.plan import BytesMode

_INPUT: Final = "Input"
_RECORD: Final = "Every record"
_DELIVERY: Final = "Delivery"


class InputFormat(StrEnum):
    """The format of the input."""

    LINES = "lines"
    JSONL = "jsonl"


class Codec(StrEnum):
    """Kafka's names of the codecs, in the order of the codec ids."""

    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


class Acks(StrEnum):
    """How many replicas must have a record before it counts as delivered."""

    NOBODY = "0"
    LEADER = "1"
    ALL = "all"
    ALL_AS_NUMBER = "-1"


Topic = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic to write to.", show_default=False)]
Values = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[VALUE]...", help="Records to write. [default: the lines of stdin]", show_default=False
    ),
]
Files = Annotated[
    list[str] | None,
    typer.Option(
        "--file",
        "-l",
        metavar="PATH",
        help="Read this file instead of stdin (repeatable; - is stdin).",
        show_default=False,
        rich_help_panel=_INPUT,
    ),
]
Whole = Annotated[
    bool, typer.Option("--whole", help="Write each file as one record.", rich_help_panel=_INPUT)
]
Format = Annotated[
    InputFormat,
    typer.Option(
        "--format",
        "-f",
        help="Lines of text, or the JSON Lines of klog consume and klog dump-segment.",
        rich_help_panel=_INPUT,
    ),
]
Bytes = Annotated[
    BytesMode,
    typer.Option(
        "--bytes",
        help="How keys and values are written in jsonl: the --bytes of the dump.",
        rich_help_panel=_INPUT,
    ),
]
KeyDelimiter = Annotated[
    str | None,
    typer.Option(
        "--key-delimiter",
        "-K",
        metavar="TEXT",
        help="The text between key and value in lines.",
        rich_help_panel=_INPUT,
    ),
]
Delimiter = Annotated[
    str,
    typer.Option(
        "--delimiter", "-D", metavar="TEXT", help="The text after each record.", rich_help_panel=_INPUT
    ),
]
Null = Annotated[
    str | None,
    typer.Option(metavar="TEXT", help="Write keys and values of this text as null.", rich_help_panel=_INPUT),
]
IgnorePartitions = Annotated[
    bool,
    typer.Option(
        "--ignore-partitions",
        help="Choose partitions anew; do not keep those of jsonl.",
        rich_help_panel=_INPUT,
    ),
]
Key = Annotated[
    str | None,
    typer.Option("--key", "-k", metavar="TEXT", help="The key of every record.", rich_help_panel=_RECORD),
]
Header = Annotated[
    list[str] | None,
    typer.Option(
        "--header",
        "-H",
        metavar="NAME=VALUE",
        help="A header (repeatable). NAME alone has the value null.",
        rich_help_panel=_RECORD,
    ),
]
Partition = Annotated[
    int | None,
    typer.Option(
        "--partition",
        "-p",
        min=0,
        metavar="N",
        help="The partition. [default: chosen by key, as Kafka does]",
        rich_help_panel=_RECORD,
    ),
]
Timestamp = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        help="ISO 8601, epoch ms, or a span like 2h (that long ago). [default: that of jsonl, or now]",
        rich_help_panel=_RECORD,
    ),
]
CompressionType = Annotated[
    Codec,
    typer.Option("--compression-type", "-z", help="The codec of the batches.", rich_help_panel=_DELIVERY),
]
AcksOption = Annotated[
    Acks, typer.Option("--acks", help="How many replicas must have a record.", rich_help_panel=_DELIVERY)
]
Idempotence = Annotated[
    bool | None,
    typer.Option(
        "--idempotence/--no-idempotence",
        help="Write no duplicates after lost connections. [default: with --acks all]",
        show_default=False,
        rich_help_panel=_DELIVERY,
    ),
]
Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", help="Report only failures.", rich_help_panel=_DELIVERY)
]
