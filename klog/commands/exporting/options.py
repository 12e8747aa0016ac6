"""The options of `klog export`: names, types and help, one alias an option.

What to read has the names of Spark's Kafka source, in kebab-case; `klog.export.options_parsing` judges the
values, so that they mean the same here and there.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final

import typer

from klog.export.decoders.decoding import Encoding
from klog.export.deserialise import BadRecords
from klog.export.writers import Format as OutputFormat

_READ: Final = "What to read (as Spark's Kafka source)"
_WRITE: Final = "What to write"
_DECODE: Final = "How to decode keys and values"
_RUN: Final = "How to run"


class InternalTopicsChoice(StrEnum):
    """What becomes of internal topics."""

    RECORDS = "records"
    TABLES = "tables"


Paths = Annotated[
    list[str],
    typer.Argument(
        metavar="PATH...",
        help="Log directories, partition directories, segments; paths, or URIs (s3, gs, abfs, hdfs).",
        show_default=False,
    ),
]
Output = Annotated[
    str,
    typer.Option("--output", "-o", metavar="DIR", help="A new or empty directory, or a URI."),
]
Format = Annotated[
    OutputFormat, typer.Option("--format", "-f", help="Format of the files.", rich_help_panel=_WRITE)
]
Compression = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Default: zstd. Parquet: snappy, gzip, lz4, brotli, none; orc: snappy, zlib, lz4, none; "
        "jsonl: gzip, none.",
        show_default=False,
        rich_help_panel=_WRITE,
    ),
]
PartitionBy = Annotated[
    str,
    typer.Option(
        metavar="LEVELS",
        help="Directories, Hive-style: some of topic, partition, day (of the timestamp, UTC); or none.",
        rich_help_panel=_WRITE,
    ),
]
Columns = Annotated[
    str | None,
    typer.Option(metavar="NAME,...", help="Only these columns.", show_default=False, rich_help_panel=_WRITE),
]
IncludeHeaders = Annotated[
    bool, typer.Option("--include-headers", help="Add the column headers.", rich_help_panel=_WRITE)
]
MetadataColumns = Annotated[
    str | None,
    typer.Option(
        metavar="NAME,...",
        help="Add some of leaderEpoch, producerId, producerEpoch, sequence, isTransactional, codec, "
        "batchPosition, file.",
        show_default=False,
        rich_help_panel=_WRITE,
    ),
]
Key = Annotated[Encoding, typer.Option("--key", help="What keys are.", rich_help_panel=_DECODE)]
Value = Annotated[Encoding, typer.Option("--value", help="What values are.", rich_help_panel=_DECODE)]
KeySchema = Annotated[
    str,
    typer.Option(metavar="FILE|TEXT", help="Likewise, of keys.", show_default=False, rich_help_panel=_DECODE),
]
ValueSchema = Annotated[
    str,
    typer.Option(
        metavar="FILE|TEXT",
        help="Of json a JSON Schema or Spark type (default: inferred), of avro its schema, of protobuf "
        "compiled descriptors (protoc --include_imports -o).",
        show_default=False,
        rich_help_panel=_DECODE,
    ),
]
KeyMessage = Annotated[
    str,
    typer.Option(metavar="NAME", help="Likewise, of keys.", show_default=False, rich_help_panel=_DECODE),
]
ValueMessage = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="The protobuf message. Default: the first.",
        show_default=False,
        rich_help_panel=_DECODE,
    ),
]
SchemaDir = Annotated[
    str,
    typer.Option(
        metavar="DIR",
        help="Schemas of a registry, a file an id (42.avsc, 42.json, 42.desc): bytes are in Confluent's "
        "wire format.",
        show_default=False,
        rich_help_panel=_DECODE,
    ),
]
BadRecordsOption = Annotated[
    BadRecords,
    typer.Option(
        "--bad-records",
        help="Records that do not fit: column keeps them, with _error; reject writes them to _rejects.",
        rich_help_panel=_DECODE,
    ),
]
InternalTopics = Annotated[
    InternalTopicsChoice,
    typer.Option(
        "--internal-topics",
        help="records: as any other topic. tables: __consumer_offsets and __transaction_state decoded, in "
        "directories of these names.",
        rich_help_panel=_DECODE,
    ),
]
Subscribe = Annotated[
    str | None,
    typer.Option(metavar="TOPIC,...", help="Only these topics.", show_default=False, rich_help_panel=_READ),
]
SubscribePattern = Annotated[
    str | None,
    typer.Option(
        metavar="REGEX", help="Only topics that match, whole.", show_default=False, rich_help_panel=_READ
    ),
]
Assign = Annotated[
    str | None,
    typer.Option(
        metavar="JSON",
        help="""Only these partitions: {"orders": [0, 1]}.""",
        show_default=False,
        rich_help_panel=_READ,
    ),
]
StartingOffsets = Annotated[
    str | None,
    typer.Option(
        metavar="earliest|JSON",
        help="""Where to start: {"orders": {"0": 23}}; -2 is the earliest.""",
        show_default=False,
        rich_help_panel=_READ,
    ),
]
EndingOffsets = Annotated[
    str | None,
    typer.Option(
        metavar="latest|JSON",
        help="Where to end, exclusive; -1 is the latest.",
        show_default=False,
        rich_help_panel=_READ,
    ),
]
StartingTimestamp = Annotated[
    str | None,
    typer.Option(
        metavar="MS",
        help="Start at the first record that is as young (ms since 1970).",
        show_default=False,
        rich_help_panel=_READ,
    ),
]
EndingTimestamp = Annotated[
    str | None,
    typer.Option(
        metavar="MS",
        help="End before the first record that is as young.",
        show_default=False,
        rich_help_panel=_READ,
    ),
]
StartingOffsetsByTimestamp = Annotated[
    str | None,
    typer.Option(
        metavar="JSON",
        help="""The same by partition: {"orders": {"0": 1700000000000}}.""",
        show_default=False,
        rich_help_panel=_READ,
    ),
]
EndingOffsetsByTimestamp = Annotated[
    str | None,
    typer.Option(metavar="JSON", help="Likewise, the end.", show_default=False, rich_help_panel=_READ),
]
StartingOffsetsByTimestampStrategy = Annotated[
    str | None,
    typer.Option(
        metavar="error|latest",
        help="Where no record is as young.",
        show_default=False,
        rich_help_panel=_READ,
    ),
]
Isolation = Annotated[
    str | None,
    typer.Option(
        metavar="LEVEL",
        help="read_committed leaves aborted transactions out. Default: read_uncommitted, as in Kafka.",
        show_default=False,
        rich_help_panel=_READ,
    ),
]
IncludeDeleted = Annotated[
    bool,
    typer.Option(
        "--include-deleted",
        help="Read what a broker was about to delete too (-delete, .deleted).",
        rich_help_panel=_READ,
    ),
]
MaxDecompressedBytes = Annotated[
    str | None,
    typer.Option(
        metavar="SIZE",
        help="What one batch may decompress to; more is lost, and listed.",
        show_default=False,
        rich_help_panel=_READ,
    ),
]
FailOnDataLoss = Annotated[
    bool,
    typer.Option(
        "--fail-on-data-loss", help="Stop at the first thing that cannot be read.", rich_help_panel=_READ
    ),
]
Jobs = Annotated[
    int | None,
    typer.Option(
        "--jobs",
        "-j",
        min=1,
        metavar="N",
        help="Processes. Default: one a core.",
        show_default=False,
        rich_help_panel=_RUN,
    ),
]
TargetSplitBytes = Annotated[
    str | None,
    typer.Option(
        metavar="SIZE",
        help="Bytes of a segment that become one file. Default: 64m.",
        show_default=False,
        rich_help_panel=_RUN,
    ),
]
MinPartitions = Annotated[
    str | None,
    typer.Option(metavar="N", help="At least so many splits.", show_default=False, rich_help_panel=_RUN),
]
Resume = Annotated[
    bool,
    typer.Option(
        "--resume",
        help="Go on with the export in DIR, or start it where there is none.",
        rich_help_panel=_RUN,
    ),
]
Verify = Annotated[
    bool,
    typer.Option(
        "--verify", help="Then count the output against the segments, by offsets.", rich_help_panel=_RUN
    ),
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Print what would be read, write nothing.", rich_help_panel=_RUN)
]
ReportFile = Annotated[
    str | None,
    typer.Option(
        "--report",
        metavar="FILE",
        help="Write the final report as JSON too.",
        show_default=False,
        rich_help_panel=_RUN,
    ),
]
Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", help="No progress, no report on stderr.", rich_help_panel=_RUN)
]
