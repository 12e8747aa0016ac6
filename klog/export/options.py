"""Options that select records: the same for `klog export`, an export job on Spark, and Spark's data source.

Where Spark's Kafka source has such an option, name and meaning are the same (Structured Streaming + Kafka
Integration Guide, "Creating a Kafka Source for Batch Queries"). `docs/export.md` lists all of them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from klog.formats.names import TopicPartition
from klog.storage.reading.batch_search import MAX_BATCH_BYTES

EARLIEST: Final = -2
"""In offsets given by JSON: the partition's first offset."""
LATEST: Final = -1
"""In offsets given by JSON: the end of the readable log."""

TARGET_SPLIT_BYTES: Final = 64 << 20


class Isolation(StrEnum):
    """Which records of transactions are read (KIP-98)."""

    READ_UNCOMMITTED = "read_uncommitted"
    READ_COMMITTED = "read_committed"


@dataclass(frozen=True, slots=True)
class Subscription:
    """Which partitions to read; if all fields are None, every partition that is found.

    Topics by name (`topics`) or by a regular expression for the whole name (`pattern`), or single partitions
    (`partitions`: topic to numbers). At most one is given, as in Spark.
    """

    topics: frozenset[str] | None = None
    pattern: str | None = None
    partitions: Mapping[str, frozenset[int]] | None = None

    def wants_some_of(self, topic: str) -> bool:
        """Whether partitions of a topic are read."""
        if self.topics is not None:
            return topic in self.topics
        if self.pattern is not None:
            return re.fullmatch(self.pattern, topic) is not None
        return self.partitions is None or topic in self.partitions

    def wants(self, partition: TopicPartition) -> bool:
        """Whether a partition is read."""
        if self.partitions is not None:
            return partition.partition in self.partitions.get(partition.topic, ())
        return self.wants_some_of(partition.topic)


@dataclass(frozen=True, slots=True)
class Edge:
    """Where reading starts or ends, per partition: by offset or by time, never both for one partition.

    `default` is `EARLIEST` or `LATEST`, for partitions that are not named. `offsets[topic][partition]` is an
    offset, `EARLIEST` or `LATEST`. `timestamps[topic][partition]`, or `timestamp_ms` for all, is in ms since
    the epoch. It stands for the offset of the first record with that timestamp or a later one (as in
    ListOffsets); it is not a filter.
    """

    default: int
    offsets: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    timestamps: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    timestamp_ms: int | None = None


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What a job reads. `klog.export.options_parsing` makes it from strings and checks the values.

    `metadata_columns` are names of `klog.export.schema.METADATA_COLUMNS`; these columns come after Spark's.
    `since_ms` (inclusive) and `until_ms` (exclusive) filter records by timestamp; they come from filters that
    a query pushed down. `min_partitions` is the least number of splits. `max_decompressed_bytes` bounds the
    size of one batch, in the file and decompressed. `fail_on_data_loss` stops a job at the first thing that
    it cannot read. Of a backup repository `at_ms` names the moment, or `backup` a backup (both None: the
    newest); `encryption_key_file` has its key. `timestamp_latest` is Spark's
    `startingOffsetsByTimestampStrategy=latest`: if no record is late enough, reading starts at the end of the
    log; otherwise that is an error.
    """

    paths: tuple[str, ...]
    subscription: Subscription = field(default_factory=Subscription)
    starting: Edge = field(default_factory=lambda: Edge(EARLIEST))
    ending: Edge = field(default_factory=lambda: Edge(LATEST))
    timestamp_latest: bool = False
    since_ms: int | None = None
    until_ms: int | None = None
    isolation: Isolation = Isolation.READ_UNCOMMITTED
    include_headers: bool = False
    metadata_columns: tuple[str, ...] = ()
    fail_on_data_loss: bool = False
    min_partitions: int | None = None
    target_split_bytes: int = TARGET_SPLIT_BYTES
    max_decompressed_bytes: int = MAX_BATCH_BYTES
    include_deleted: bool = False
    """Whether to read what a broker had not yet removed: `-delete` directories, `.deleted` files, and records
    below the log start offset."""
    at_ms: int | None = None
    backup: str | None = None
    encryption_key_file: str | None = None
