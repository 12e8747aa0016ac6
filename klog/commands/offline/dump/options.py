"""Defines the options of `klog dump-segment` that no other command has: names, types and help."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import typer

from klog.commands.offline.moments import REPOSITORIES, numbers_of
from klog.commands.shared.option_sets import argument, flag, option_set, optional, valued
from klog.commands.shared.records.plan import BytesMode
from klog.commands.shared.records.selection_options import ROWS
from klog.formats.compression import DEFAULT_LIMIT_BYTES
from klog.formats.names import TopicPartition


class DumpFormat(StrEnum):
    """The output formats. Each but `json` and `kafka` is a module of `klog.commands.offline.dump`."""

    TABLE = "table"
    JSONL = "jsonl"
    JSON = "json"
    """Another name of jsonl."""
    KAFKA = "kafka"
    PARQUET = "parquet"


@dataclass(frozen=True, slots=True)
class DumpOptions:
    """Which files to show, in which form, and where."""

    paths: list[str] | None = argument(
        "[PATH]...",
        "Files (plain or .gz), globs, partition directories, log directories or backup repositories.",
    )
    files: list[str] | None = valued("FILE,FILE", "Files, named as for kafka-dump-log.")
    format: DumpFormat | None = optional(
        None, "The output format. [default: table on a terminal, jsonl elsewhere]", "--format", "-f"
    )
    summary: bool = flag("Show statistics of a segment, a partition or a log directory.")
    output: str | None = valued(
        "PATH",
        "Write to this file instead of stdout (parquet: a file, or a directory for several segments).",
        "--output",
        "-o",
    )
    force: bool = flag("Replace files of --output that exist already.")
    all_files: bool = flag("Show every file of a directory that is Kafka's, not only the live segments.")
    batches: bool = flag("Show one row per batch, or one per record.", "--batches/--records", panel=ROWS)
    bytes: BytesMode = optional(
        BytesMode.AUTO,
        "How to print keys and values. auto: UTF-8 text or base64; none: only their lengths.",
        panel=ROWS,
    )

    def named(self) -> list[str]:
        """The paths. Raises typer's error if there is none."""
        files = (name for group in self.files or () for name in group.split(",") if name)
        named = [*(self.paths or ()), *files]
        if not named:
            raise typer.BadParameter("no file named")
        return named


@option_set(REPOSITORIES)
class PartOptions:
    """Which partitions of a repository to show."""

    topic: list[str] | None = valued(
        "PATTERN",
        "Of a repository: only topics that match as a whole (a regular expression; repeatable).",
        "--topic",
        "-t",
    )
    partitions: str | None = valued("NUMBER,...", "Of a repository: only partitions with these numbers.")

    def wants_topic(self, topic: str) -> bool:
        """Whether partitions of a topic are shown. Raises UsageError."""
        from klog.admin.topic_patterns import include_list

        return not self.topic or any(include_list(each).fullmatch(topic) for each in self.topic)

    def wants(self, partition: TopicPartition) -> bool:
        """Whether a partition is shown. Raises UsageError."""
        numbers = numbers_of(self.partitions)
        return self.wants_topic(partition.topic) and (not numbers or partition.partition in numbers)


@option_set("Checking")
class CheckOptions:
    """What to check while reading."""

    verify: bool = flag("Also check checksums, offsets and indexes.")
    strict: bool = flag("Stop at the first problem.")
    max_decompressed_bytes: int = optional(
        DEFAULT_LIMIT_BYTES, "The largest size to which one batch may decompress.", metavar="BYTES", least=1
    )
