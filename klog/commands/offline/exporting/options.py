"""The options of `klog export`, in the groups of its help.

The options that select records have the names of those of Spark's Kafka source, in kebab-case;
`klog.export.options_parsing` checks their values, so that they mean the same here and there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import fields
from enum import StrEnum
from typing import Annotated

import typer

from klog.commands.shared.option_sets import flag, option_set, optional, valued
from klog.export.decoders.decoding import Encoding
from klog.export.deserialise import BadRecords
from klog.export.writers import Format as OutputFormat


class InternalTopicsChoice(StrEnum):
    """How internal topics are exported."""

    RECORDS = "records"
    TABLES = "tables"


Paths = Annotated[
    list[str],
    typer.Argument(
        metavar="PATH...",
        help="Log directories, partition directories, segments, or a backup repository; paths, or URIs (s3,"
        " gs, abfs, hdfs).",
        show_default=False,
    ),
]
Output = Annotated[
    str, typer.Option("--output", "-o", metavar="DIR", help="A new or empty directory, or a URI.")
]


@option_set("What to write")
class WriteOptions:
    """What to write."""

    format_: OutputFormat = optional(OutputFormat.PARQUET, "Format of the files.", "--format", "-f")
    compression: str | None = valued(
        "NAME",
        "Default: zstd. Parquet: snappy, gzip, lz4, brotli, none; orc: snappy, zlib, lz4, none; "
        "jsonl: gzip, none.",
    )
    partition_by: str = optional(
        "topic,partition",
        "Directories, Hive-style: some of topic, partition, day (of the timestamp, UTC); or none.",
        metavar="LEVELS",
    )
    columns: str | None = valued("NAME,...", "Only these columns.")
    include_headers: bool = flag("Add the column headers.")
    metadata_columns: str | None = valued(
        "NAME,...",
        "Add some of leaderEpoch, producerId, producerEpoch, sequence, isTransactional, codec, "
        "batchPosition, file.",
    )
    target_file_bytes: str | None = valued(
        "SIZE",
        "Begin another file when one has this size. Default: one file for each split (--target-split-bytes).",
    )


def _schema(metavar: str, summary: str) -> str:
    return optional("", summary, metavar=metavar, show_default=False)


@option_set("How to decode keys and values")
class DecodeOptions:
    """How to decode keys and values."""

    key: Encoding = optional(Encoding.RAW, "Encoding of the keys.")
    key_schema: str = _schema("FILE|TEXT", "As --value-schema, for keys.")
    key_message: str = _schema("NAME", "As --value-message, for keys.")
    value: Encoding = optional(Encoding.RAW, "Encoding of the values.")
    value_schema: str = _schema(
        "FILE|TEXT",
        "json: a JSON Schema or a Spark type (default: inferred). avro: the schema. protobuf: compiled "
        "descriptors (protoc --include_imports -o).",
    )
    value_message: str = _schema("NAME", "The protobuf message. Default: the first.")
    schema_dir: str = _schema(
        "DIR",
        "Schemas of a registry, a file for each id (42.avsc, 42.json, 42.desc); records are in Confluent's "
        "wire format.",
    )
    bad_records: BadRecords = optional(
        BadRecords.COLUMN,
        "Records that do not fit the schema: column keeps them, with _error; reject moves them to _rejects.",
    )
    internal_topics: InternalTopicsChoice = optional(
        InternalTopicsChoice.RECORDS,
        "records: like any other topic. tables: decode __consumer_offsets and __transaction_state into "
        "directories of these names.",
    )


@option_set("What to read (as Spark's Kafka source)")
class SourceOptions:
    """What to read."""

    subscribe: str | None = valued("TOPIC,...", "Only these topics.")
    subscribe_pattern: str | None = valued("REGEX", "Only topics whose whole name matches.")
    assign: str | None = valued("JSON", """Only these partitions: {"orders": [0, 1]}.""")
    starting_offsets: str | None = valued(
        "earliest|JSON", """The first offsets: {"orders": {"0": 23}}; -2 is the earliest."""
    )
    ending_offsets: str | None = valued("latest|JSON", "The offsets to end before; -1 is the end of the log.")
    starting_timestamp: str | None = valued(
        "MS", "Start at the first record of this time or later (ms since 1970)."
    )
    ending_timestamp: str | None = valued("MS", "End before the first record of this time or later.")
    starting_offsets_by_timestamp: str | None = valued(
        "JSON", """The same for each partition: {"orders": {"0": 1700000000000}}."""
    )
    ending_offsets_by_timestamp: str | None = valued("JSON", "The same for the end.")
    starting_offsets_by_timestamp_strategy: str | None = valued(
        "error|latest", "What to do if no record is late enough to start at."
    )
    isolation: str | None = valued(
        "LEVEL", "read_committed leaves aborted transactions out. Default: read_uncommitted, as in Kafka."
    )
    include_deleted: bool = flag("Also read what a broker was about to delete (-delete, .deleted).")
    at: str | None = valued(
        "TIME",
        "Of a backup repository: all that had arrived by this time, ISO 8601, or a span back from now such as"
        " 2h. Default: the newest backup.",
    )
    backup: str | None = valued("ID", "Of a backup repository: what this backup has.")
    max_decompressed_bytes: str | None = valued(
        "SIZE", "The most that one batch may decompress to; more is reported as lost."
    )
    fail_on_data_loss: bool = flag("Stop at the first thing that cannot be read.")


@option_set("How to run")
class RunningOptions:
    """How to run."""

    jobs: int | None = valued("N", "Processes. Default: one for each core.", "--jobs", "-j", least=1)
    target_split_bytes: str | None = valued(
        "SIZE", "Bytes of a segment that one process exports at a time. Default: 64m."
    )
    min_partitions: str | None = valued("N", "The least number of splits.")
    resume: bool = flag("Continue the export in DIR, or start it if there is none.")
    verify: bool = flag("Then compare the output with the segments, by offsets.")
    dry_run: bool = flag("Print what would be read, write nothing.")
    print_spark_submit: bool = flag("Print the command that does the same on Spark, do nothing.")
    report: str | None = valued("FILE", "Also write the final report as JSON.")
    force: bool = flag("Replace the file of --report, also if it is no report of klog.")
    quiet: bool = flag("Show no progress and no report.", "--quiet", "-q")


def spark_options(write: WriteOptions, source: SourceOptions, run: RunningOptions) -> dict[str, str]:
    """The options that are given, as `klog.export.options_parsing` has them."""
    given = dict(_values(source))
    given |= {name: value for name, value in _values(write) if name in ("includeHeaders", "metadataColumns")}
    given |= {name: value for name, value in _values(run) if name in ("targetSplitBytes", "minPartitions")}
    return given


def _values(group: WriteOptions | SourceOptions | RunningOptions) -> Iterator[tuple[str, str]]:
    """The options that are given, in camelCase, as texts."""
    for each in fields(group):
        value = getattr(group, each.name)
        if value is not None and value is not False:
            name = re.sub("_([a-z])", lambda found: found[1].upper(), each.name)
            yield name, "true" if value is True else str(value)
