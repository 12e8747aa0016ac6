"""The stream source `spark.readStream.format("klog")`: follows log directories that a broker or a copy
appends to.

Offsets, options and guarantees are those of Spark's Kafka source. The checkpoint holds the next offset of
every partition, so each record is in exactly one batch, also after a restart. `klog.export.planner` plans
each batch from the end of the last one: rolled segments and new partitions are found, and records that were
deleted before they were read are a data loss (logged, or an error with `failOnDataLoss`). A plan ends before
a batch of records that is not completely written yet; the next batch of the stream reads it.

There is one difference. A broker's directory holds records that its followers may not have yet, while Kafka's
consumers get only records below the high watermark.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from klog.export.options import EARLIEST, LATEST, Edge, ReadOptions
from klog.export.planner import plan
from klog.export.sources import ReplicaFiles
from klog.formats.errors import StorageError, UsageError
from klog.formats.names import TopicPartition
from klog.replicas.splits import PartitionPlan, Plan, Split
from klog.spark.dividing import divide_splits
from klog.spark.rows import RowSource, TaskSplits
from klog.spark.stream_offsets import (
    Available,
    JsonOffsets,
    batch_end,
    bounded,
    from_json,
    losses,
    ranges,
    to_json,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

POLL_INTERVAL_S: Final = 0.1
"""The least time between two listings of the directories. Spark asks an idle stream every 10 ms."""

_log = logging.getLogger("klog.spark")


class KlogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a stream: each batch from the end of the last one to the current end of the logs.

    `max_offsets` limits a batch (None: no limit). Raises `UsageError` if ending offsets or times are given,
    and for a backup repository.
    """

    def __init__(self, options: ReadOptions, schema: StructType, max_offsets: int | None = None) -> None:
        if options.ending != Edge(LATEST):
            raise UsageError("a stream has no end, and ending offsets or times are given")
        self._source = RowSource.of(options, schema)
        if not isinstance(self._source.source, ReplicaFiles):
            raise UsageError("a backup repository is read as a batch", cure="use spark.read")
        self._max_offsets = max_offsets
        self._target: Mapping[TopicPartition, Available] | None = None
        self._newest: JsonOffsets | None = None
        self._last_plan: tuple[JsonOffsets, Plan] | None = None
        self._idle_since_s: float | None = None
        self._reported: set[str] = set()

    # -- Spark's interface, with its names -------------------------------------------------------------------

    def initialOffset(self) -> JsonOffsets:  # noqa: N802
        """Where a new query starts: at the starting offsets of the options, in the current logs."""
        planned = plan(replace(self._source.options, fail_on_data_loss=False))
        return to_json({_name(one): one.start_offset for one in planned.partitions})

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """How much a batch reads, unless a trigger sets another limit."""
        return ReadAllAvailable() if self._max_offsets is None else ReadMaxRows(self._max_offsets)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """From now on, read only records that exist now."""
        planned = plan(replace(self._source.options, starting=Edge(EARLIEST), fail_on_data_loss=False))
        self._target = _available(planned)

    def latestOffset(self, start: JsonOffsets, limit: ReadLimit) -> JsonOffsets:  # noqa: N802
        """Where the next batch ends; `start` if there are no new records.

        Raises `KlogError` with `failOnDataLoss` for records that can no longer be read.
        """
        self._wait_if_idle()
        begun = from_json(start)
        available = self._available_now(start)
        limit_rows = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        ends = to_json(batch_end(begun, available, limit_rows))
        self._idle_since_s = time.monotonic() if ends == start else None
        return ends

    def reportLatestOffset(self) -> JsonOffsets | None:  # noqa: N802
        """The last known ends of the logs, for the progress report of the query."""
        return self._newest

    def partitions(self, start: JsonOffsets, end: JsonOffsets) -> list[InputPartition]:
        """The tasks of the batch between two offsets. The same offsets give the same records."""
        wanted = ranges(from_json(start), from_json(end))
        if not wanted:
            return []
        splits = _within(self._plan_from(start).splits, wanted)
        options = self._source.options
        tasks = divide_splits(splits, options.target_split_bytes, options.min_partitions)
        return [TaskSplits(task) for task in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task."""
        return self._source.rows(partition)

    # -- implementation --------------------------------------------------------------------------------------

    def _wait_if_idle(self) -> None:
        """Wait until the directories may be listed again, if there was nothing new the last time."""
        if self._idle_since_s is not None:
            time.sleep(max(0.0, self._idle_since_s + POLL_INTERVAL_S - time.monotonic()))

    def _available_now(self, start: JsonOffsets) -> Mapping[TopicPartition, Available]:
        """The offsets that are available now; with `availableNow` only those that existed at the start."""
        self._last_plan = None
        there = _available(self._plan_from(start))
        self._newest = to_json({partition: one.end for partition, one in there.items()})
        return there if self._target is None else bounded(there, self._target)

    def _plan_from(self, start: JsonOffsets) -> Plan:
        """The plan of all records after `start`; partitions that are not in it are new and read completely.

        Records that were lost since `start` are reported.
        """
        if self._last_plan is not None and self._last_plan[0] == start:
            return self._last_plan[1]
        begun = from_json(start)
        offsets: dict[str, dict[int, int]] = {}
        for partition, offset in begun.items():
            offsets.setdefault(partition.topic, {})[partition.partition] = offset
        options = replace(self._source.options, starting=Edge(EARLIEST, offsets=offsets))
        # An incomplete batch at the end of a log is no loss yet, so losses are decided here.
        # A partition that the last batch has read may be gone for a while: that is a loss, and no mistake.
        planned = plan(replace(options, fail_on_data_loss=False), requires_bounded=False)
        self._report(losses(begun, _available(planned)))
        self._report(str(problem) for problem in planned.problems)
        self._report(
            f"{one.topic}-{one.partition} from offset {one.first_offset} to {one.end_offset}: {one.reason}"
            for one in planned.lost
            if one.end_offset is not None
        )
        self._last_plan = start, planned
        return planned

    def _report(self, messages: Iterable[str]) -> None:
        for message in messages:
            if self._source.options.fail_on_data_loss:
                raise StorageError(
                    message, cure="leave failOnDataLoss out to continue with the records that exist"
                )
            if message not in self._reported:
                self._reported.add(message)
                _log.warning("%s", message)


def _name(one: PartitionPlan) -> TopicPartition:
    return TopicPartition(one.topic, one.partition)


def _available(planned: Plan) -> dict[TopicPartition, Available]:
    return {_name(one): Available(one.log_start_offset, one.end_offset) for one in planned.partitions}


def _within(splits: Iterable[Split], wanted: Mapping[TopicPartition, tuple[int, int]]) -> list[Split]:
    """The splits, narrowed to the given offsets of each partition."""
    cut = []
    for split in splits:
        first, end = wanted.get(split.topic_partition, (0, 0))
        first, end = max(first, split.first_offset), min(end, split.end_offset)
        if first < end:
            cut.append(replace(split, first_offset=first, end_offset=end))
    return cut
