"""Defines the options of `klog dump-segment`: names, types and help."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final

import typer

from klog.commands.dump.plan import BytesMode


class DumpFormat(StrEnum):
    """Output formats; each is a module of `klog.commands.dump`."""

    TABLE = "table"
    JSONL = "jsonl"
    KAFKA = "kafka"
    PARQUET = "parquet"


ROWS: Final = "Rows"
SELECT: Final = "Selection"
_CHECK: Final = "Checking"
_KAFKA: Final = "Kafka's own options (they imply --format kafka)"

Paths = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="PATH",
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
Offsets = Annotated[
    str | None,
    typer.Option(
        metavar="A..B", help="Only these offsets, both included: 5..9, 5.., ..9, 5.", rich_help_panel=SELECT
    ),
]
Since = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        help="Only timestamps from this on: ISO 8601, epoch ms, or a span like 2h (that long ago).",
        rich_help_panel=SELECT,
    ),
]
Until = Annotated[
    str | None, typer.Option(metavar="TIME", help="Only timestamps before this.", rich_help_panel=SELECT)
]
Key = Annotated[
    str | None,
    typer.Option(metavar="TEXT", help="Only records with exactly this key.", rich_help_panel=SELECT),
]
Grep = Annotated[
    str | None,
    typer.Option(metavar="REGEX", help="Only records whose key or value matches.", rich_help_panel=SELECT),
]
Limit = Annotated[
    int | None, typer.Option(min=0, metavar="N", help="Show at most N rows.", rich_help_panel=SELECT)
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
PrintDataLog = Annotated[
    bool, typer.Option("--print-data-log", help="Print records with keys and values.", rich_help_panel=_KAFKA)
]
DeepIteration = Annotated[
    bool, typer.Option("--deep-iteration", help="Print the records of each batch.", rich_help_panel=_KAFKA)
]
SkipRecordMetadata = Annotated[
    bool,
    typer.Option("--skip-record-metadata", help="Print records without metadata.", rich_help_panel=_KAFKA),
]
MaxBytes = Annotated[
    int,
    typer.Option(
        metavar="BYTES", help="Read at most so many bytes of batches per file.", rich_help_panel=_KAFKA
    ),
]
MaxMessageSize = Annotated[
    int, typer.Option(metavar="BYTES", help="The size of the largest batch.", rich_help_panel=_KAFKA)
]
KeyDecoderClass = Annotated[
    str | None, typer.Option(metavar="CLASS", help="A decoder class of Kafka.", rich_help_panel=_KAFKA)
]
ValueDecoderClass = Annotated[
    str | None, typer.Option(metavar="CLASS", help="A decoder class of Kafka.", rich_help_panel=_KAFKA)
]
OffsetsDecoder = Annotated[
    bool,
    typer.Option("--offsets-decoder", help="Decode records of __consumer_offsets.", rich_help_panel=_KAFKA),
]
TransactionLogDecoder = Annotated[
    bool,
    typer.Option(
        "--transaction-log-decoder", help="Decode records of __transaction_state.", rich_help_panel=_KAFKA
    ),
]
ClusterMetadataDecoder = Annotated[
    bool,
    typer.Option(
        "--cluster-metadata-decoder", help="Decode records of __cluster_metadata.", rich_help_panel=_KAFKA
    ),
]
RemoteLogMetadataDecoder = Annotated[
    bool,
    typer.Option(
        "--remote-log-metadata-decoder",
        help="Decode records of __remote_log_metadata.",
        rich_help_panel=_KAFKA,
    ),
]
IndexSanityCheck = Annotated[
    bool,
    typer.Option("--index-sanity-check", help="Check indexes; do not print them.", rich_help_panel=_KAFKA),
]
VerifyIndexOnly = Annotated[
    bool,
    typer.Option(
        "--verify-index-only",
        help="Check indexes against the log; do not print them.",
        rich_help_panel=_KAFKA,
    ),
]
