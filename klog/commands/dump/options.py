"""The options of `klog dump-segment`: names, types and help, one alias an option."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final

import typer

from klog.commands.dump.plan import BytesMode


class DumpFormat(StrEnum):
    """Renderings of a dump; each is a module of `klog.commands.dump`."""

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
        "--files", metavar="FILE,FILE", help="Files, as kafka-dump-log takes them.", show_default=False
    ),
]
Format = Annotated[
    DumpFormat | None,
    typer.Option("--format", "-f", help="Default: table on a terminal, jsonl elsewhere.", show_default=False),
]
Summary = Annotated[
    bool, typer.Option("--summary", help="A segment, partition or log directory at a glance.")
]
Output = Annotated[
    str | None,
    typer.Option(
        "--output",
        "-o",
        metavar="PATH",
        help="Write here, not to stdout (parquet: a file, or a directory for several segments).",
        show_default=False,
    ),
]
AllFiles = Annotated[
    bool,
    typer.Option(
        "--all-files", help="Of directories take every file of Kafka's, not the live segments alone."
    ),
]
Batches = Annotated[
    bool, typer.Option("--batches/--records", help="One row a batch, or one a record.", rich_help_panel=ROWS)
]
Bytes = Annotated[
    BytesMode,
    typer.Option(
        "--bytes",
        help="Keys and values. auto: text where it is UTF-8, else base64; none: lengths only.",
        rich_help_panel=ROWS,
    ),
]
Offsets = Annotated[
    str | None,
    typer.Option(metavar="A..B", help="Offsets, both included: 5..9, 5.., ..9, 5.", rich_help_panel=SELECT),
]
Since = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        help="Timestamps from here on: ISO 8601, epoch ms, or a span like 2h (that long ago).",
        rich_help_panel=SELECT,
    ),
]
Until = Annotated[
    str | None, typer.Option(metavar="TIME", help="Timestamps before this.", rich_help_panel=SELECT)
]
Key = Annotated[
    str | None, typer.Option(metavar="TEXT", help="Records with exactly this key.", rich_help_panel=SELECT)
]
Grep = Annotated[
    str | None,
    typer.Option(metavar="REGEX", help="Records whose key or value matches.", rich_help_panel=SELECT),
]
Limit = Annotated[
    int | None, typer.Option(min=0, metavar="N", help="At most so many rows.", rich_help_panel=SELECT)
]
Verify = Annotated[
    bool,
    typer.Option("--verify", help="Check checksums, offsets and indexes on the way.", rich_help_panel=_CHECK),
]
Strict = Annotated[bool, typer.Option("--strict", help="Stop at the first problem.", rich_help_panel=_CHECK)]
MaxDecompressedBytes = Annotated[
    int,
    typer.Option(min=1, metavar="BYTES", help="What one batch may decompress to.", rich_help_panel=_CHECK),
]
PrintDataLog = Annotated[
    bool, typer.Option("--print-data-log", help="Print records with keys and values.", rich_help_panel=_KAFKA)
]
DeepIteration = Annotated[
    bool, typer.Option("--deep-iteration", help="Look into each batch.", rich_help_panel=_KAFKA)
]
SkipRecordMetadata = Annotated[
    bool,
    typer.Option("--skip-record-metadata", help="Print records without metadata.", rich_help_panel=_KAFKA),
]
MaxBytes = Annotated[int, typer.Option(metavar="BYTES", help="Of batches, per file.", rich_help_panel=_KAFKA)]
MaxMessageSize = Annotated[
    int, typer.Option(metavar="BYTES", help="Size of the largest batch.", rich_help_panel=_KAFKA)
]
KeyDecoderClass = Annotated[
    str | None, typer.Option(metavar="CLASS", help="A decoder of Kafka's.", rich_help_panel=_KAFKA)
]
ValueDecoderClass = Annotated[
    str | None, typer.Option(metavar="CLASS", help="A decoder of Kafka's.", rich_help_panel=_KAFKA)
]
OffsetsDecoder = Annotated[
    bool, typer.Option("--offsets-decoder", help="Of __consumer_offsets.", rich_help_panel=_KAFKA)
]
TransactionLogDecoder = Annotated[
    bool, typer.Option("--transaction-log-decoder", help="Of __transaction_state.", rich_help_panel=_KAFKA)
]
ClusterMetadataDecoder = Annotated[
    bool, typer.Option("--cluster-metadata-decoder", help="Of __cluster_metadata.", rich_help_panel=_KAFKA)
]
RemoteLogMetadataDecoder = Annotated[
    bool,
    typer.Option("--remote-log-metadata-decoder", help="Of __remote_log_metadata.", rich_help_panel=_KAFKA),
]
IndexSanityCheck = Annotated[
    bool, typer.Option("--index-sanity-check", help="Check indexes, print none.", rich_help_panel=_KAFKA)
]
VerifyIndexOnly = Annotated[
    bool,
    typer.Option(
        "--verify-index-only", help="Check indexes against the log, print none.", rich_help_panel=_KAFKA
    ),
]
