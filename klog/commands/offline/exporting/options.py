"""The options of `klog export`: their types and help texts, one alias for each option.

The options that select records have the names of those of Spark's Kafka source, in kebab-case;
`klog.export.options_parsing` checks their values, so that they mean the same here and there.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Final

import typer

from klog.export.decoders.decoding import Encoding
from klog.export.deserialise import BadRecords
from klog.export.writers import Format as OutputFormat

_READ: Final = "What to read (as Spark's Kafka source)"
_WRITE: Final = "What to write"
_DECODE: Final = "How to decode keys and values"
_RUN: Final = "How to run"


class InternalTopicsChoice(StrEnum):
    """How internal topics are exported."""

    RECORDS = "records"
    TABLES = "tables"


def _value(panel: str, metavar: str, text: str, *names: str, least: int | None = None) -> Any:  # noqa: ANN401
    """An option whose default is not shown: the text says what happens without it."""
    return typer.Option(
        *names, metavar=metavar, help=text, show_default=False, rich_help_panel=panel, min=least
    )


def _choice(panel: str, text: str, *names: str) -> Any:  # noqa: ANN401 (typer's)
    """A flag, or an option whose values and default are shown."""
    return typer.Option(*names, help=text, rich_help_panel=panel)


Text = str | None

Paths = Annotated[
    list[str],
    typer.Argument(
        metavar="PATH...",
        help="Log directories, partition directories, segments; paths, or URIs (s3, gs, abfs, hdfs).",
        show_default=False,
    ),
]
Output = Annotated[
    str, typer.Option("--output", "-o", metavar="DIR", help="A new or empty directory, or a URI.")
]

Format = Annotated[OutputFormat, _choice(_WRITE, "Format of the files.", "--format", "-f")]
Compression = Annotated[
    Text,
    _value(
        _WRITE,
        "NAME",
        "Default: zstd. Parquet: snappy, gzip, lz4, brotli, none; orc: snappy, zlib, lz4, none; "
        "jsonl: gzip, none.",
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
Columns = Annotated[Text, _value(_WRITE, "NAME,...", "Only these columns.")]
IncludeHeaders = Annotated[bool, _choice(_WRITE, "Add the column headers.", "--include-headers")]
MetadataColumns = Annotated[
    Text,
    _value(
        _WRITE,
        "NAME,...",
        "Add some of leaderEpoch, producerId, producerEpoch, sequence, isTransactional, codec, "
        "batchPosition, file.",
    ),
]

Key = Annotated[Encoding, _choice(_DECODE, "Encoding of the keys.", "--key")]
Value = Annotated[Encoding, _choice(_DECODE, "Encoding of the values.", "--value")]
KeySchema = Annotated[str, _value(_DECODE, "FILE|TEXT", "As --value-schema, for keys.")]
ValueSchema = Annotated[
    str,
    _value(
        _DECODE,
        "FILE|TEXT",
        "json: a JSON Schema or a Spark type (default: inferred). avro: the schema. protobuf: compiled "
        "descriptors (protoc --include_imports -o).",
    ),
]
KeyMessage = Annotated[str, _value(_DECODE, "NAME", "As --value-message, for keys.")]
ValueMessage = Annotated[str, _value(_DECODE, "NAME", "The protobuf message. Default: the first.")]
SchemaDir = Annotated[
    str,
    _value(
        _DECODE,
        "DIR",
        "Schemas of a registry, a file for each id (42.avsc, 42.json, 42.desc); records are in Confluent's "
        "wire format.",
    ),
]
BadRecordsOption = Annotated[
    BadRecords,
    _choice(
        _DECODE,
        "Records that do not fit the schema: column keeps them, with _error; reject moves them to _rejects.",
        "--bad-records",
    ),
]
InternalTopics = Annotated[
    InternalTopicsChoice,
    _choice(
        _DECODE,
        "records: like any other topic. tables: decode __consumer_offsets and __transaction_state into "
        "directories of these names.",
        "--internal-topics",
    ),
]

Subscribe = Annotated[Text, _value(_READ, "TOPIC,...", "Only these topics.")]
SubscribePattern = Annotated[Text, _value(_READ, "REGEX", "Only topics whose whole name matches.")]
Assign = Annotated[Text, _value(_READ, "JSON", """Only these partitions: {"orders": [0, 1]}.""")]
StartingOffsets = Annotated[
    Text,
    _value(_READ, "earliest|JSON", """The first offsets: {"orders": {"0": 23}}; -2 is the earliest."""),
]
EndingOffsets = Annotated[
    Text, _value(_READ, "latest|JSON", "The offsets to end before; -1 is the end of the log.")
]
StartingTimestamp = Annotated[
    Text, _value(_READ, "MS", "Start at the first record of this time or later (ms since 1970).")
]
EndingTimestamp = Annotated[Text, _value(_READ, "MS", "End before the first record of this time or later.")]
StartingOffsetsByTimestamp = Annotated[
    Text, _value(_READ, "JSON", """The same for each partition: {"orders": {"0": 1700000000000}}.""")
]
EndingOffsetsByTimestamp = Annotated[Text, _value(_READ, "JSON", "The same for the end.")]
StartingOffsetsByTimestampStrategy = Annotated[
    Text, _value(_READ, "error|latest", "What to do if no record is late enough to start at.")
]
Isolation = Annotated[
    Text,
    _value(
        _READ,
        "LEVEL",
        "read_committed leaves aborted transactions out. Default: read_uncommitted, as in Kafka.",
    ),
]
IncludeDeleted = Annotated[
    bool,
    _choice(_READ, "Also read what a broker was about to delete (-delete, .deleted).", "--include-deleted"),
]
MaxDecompressedBytes = Annotated[
    Text,
    _value(_READ, "SIZE", "The most that one batch may decompress to; more is reported as lost."),
]
FailOnDataLoss = Annotated[
    bool, _choice(_READ, "Stop at the first thing that cannot be read.", "--fail-on-data-loss")
]

Jobs = Annotated[
    int | None, _value(_RUN, "N", "Processes. Default: one for each core.", "--jobs", "-j", least=1)
]
TargetSplitBytes = Annotated[
    Text, _value(_RUN, "SIZE", "Bytes of a segment that one process exports at a time. Default: 64m.")
]
TargetFileBytes = Annotated[
    Text,
    _value(
        _WRITE,
        "SIZE",
        "Begin another file when one has this size. Default: one file for each split (--target-split-bytes).",
    ),
]
MinPartitions = Annotated[Text, _value(_RUN, "N", "The least number of splits.")]
Resume = Annotated[
    bool, _choice(_RUN, "Continue the export in DIR, or start it if there is none.", "--resume")
]
Verify = Annotated[bool, _choice(_RUN, "Then compare the output with the segments, by offsets.", "--verify")]
DryRun = Annotated[bool, _choice(_RUN, "Print what would be read, write nothing.", "--dry-run")]
ReportFile = Annotated[Text, _value(_RUN, "FILE", "Also write the final report as JSON.", "--report")]
Force = Annotated[
    bool, _choice(_RUN, "Replace the file of --report, also if it is no report of klog.", "--force")
]
Quiet = Annotated[bool, _choice(_RUN, "Show no progress and no report.", "--quiet", "-q")]
