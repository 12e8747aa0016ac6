"""Resolves where reading of a partition starts and ends: by offset, by time, or at the ends of the log.

Rules: Kafka's ListOffsets. The offset for a time is that of the first record in the log with this timestamp
or a later one. Time indexes show which segments to skip and where in a segment to start
(`klog.storage.reading.position_search`).
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence

from klog.export.options import EARLIEST, LATEST, Edge, ReadOptions
from klog.formats.errors import KlogError, UsageError
from klog.formats.names import TopicPartition
from klog.kernel.columns import OFFSET_UNKNOWN, BatchTable
from klog.replicas.concurrency import MAX_CONCURRENT_REQUESTS
from klog.replicas.files import is_remote
from klog.replicas.open_segment import OpenSegment
from klog.replicas.replica_contents import Extent, map_segments
from klog.storage.files.files import read_at
from klog.storage.reading.batch_search import valid_batch, walk
from klog.storage.reading.position_search import BatchPosition
from klog.storage.reading.reader import SegmentReader
from klog.storage.reading.select import Bounds


def resolve_bounds(
    options: ReadOptions,
    partition: TopicPartition,
    log_start_offset: int,
    log_end_offset: int,
    at_time: Callable[[int], int | None],
) -> tuple[int, int]:
    """The first offset to read and the offset to end before; both are within the log. `at_time` gives the
    offset of the first record with a timestamp or a later one, None if there is none.

    Raises `UsageError` if no record is late enough to start at, unless `options.timestamp_latest` is set, and
    with `options.fail_on_data_loss` if the start is outside of the log.
    """

    def of(edge: Edge) -> int | None:
        timestamp = _timestamp(edge, partition)
        if timestamp is not None:
            return at_time(timestamp)
        offset = edge.offsets.get(partition.topic, {}).get(partition.partition, edge.default)
        return {EARLIEST: log_start_offset, LATEST: log_end_offset}.get(offset, offset)

    start, end = of(options.starting), of(options.ending)
    if start is None:
        if not options.timestamp_latest:
            raise UsageError(
                f"{partition} has no record at or after timestamp {_timestamp(options.starting, partition)}",
                cure="with startingOffsetsByTimestampStrategy=latest such partitions are read from their end",
            )
        start = log_end_offset
    end = log_end_offset if end is None else end
    if options.fail_on_data_loss and not log_start_offset <= start <= log_end_offset:
        raise UsageError(
            f"{partition} is requested from offset {start}, but has {log_start_offset} to {log_end_offset}",
            cure="leave failOnDataLoss out to read the offsets that exist",
        )
    start = min(max(start, log_start_offset), log_end_offset)
    return start, max(start, min(end, log_end_offset))


def lowest_requested_offset(edge: Edge, partition: TopicPartition) -> int:
    """An offset below which no record is requested, whatever the log holds."""
    if _timestamp(edge, partition) is not None:
        return 0
    return max(0, edge.offsets.get(partition.topic, {}).get(partition.partition, 0))


def _timestamp(edge: Edge, partition: TopicPartition) -> int | None:
    if edge.timestamp_ms is not None:
        return edge.timestamp_ms
    return edge.timestamps.get(partition.topic, {}).get(partition.partition)


def offset_at(
    extents: Sequence[Extent], timestamp_ms: int, problems: list[KlogError], limit_bytes: int
) -> int | None:
    """The offset of the first record with this timestamp or a later one, None if there is none.

    Segments that cannot be read are added to `problems`, and the search continues after them.
    """

    def look(extent: Extent) -> int | KlogError | None:
        try:
            return _offset_in(extent, timestamp_ms, extent is extents[-1], limit_bytes)
        except KlogError as error:
            return error.at(extent.segment.log)

    remote = any(is_remote(extent.segment.log) for extent in extents)
    step = MAX_CONCURRENT_REQUESTS if remote else 1
    for row in range(0, len(extents), step):
        for found in map_segments(look, extents[row : row + step]):
            if isinstance(found, KlogError):
                problems.append(found)
            elif found is not None:
                return found
    return None


def _offset_in(extent: Extent, timestamp_ms: int, is_last: bool, limit_bytes: int) -> int | None:
    with OpenSegment(extent.segment) as opened:
        # A broker adds the last entry when it closes a segment, so the last segment's is not final. A
        # truncated index says less than the last batches do, and zeros say nothing.
        least_ms = max(1, extent.end.max_timestamp_ms)
        if not is_last and opened.search.ends_before_time(timestamp_ms, least_ms):
            return None
        start = opened.search.before_time(timestamp_ms)
        return _first_not_older(opened, extent, start, timestamp_ms, limit_bytes)


def _first_not_older(
    opened: OpenSegment, extent: Extent, start: BatchPosition, timestamp_ms: int, limit_bytes: int
) -> int | None:
    for _, table in walk(opened.file, start.position_bytes, extent.end.end_bytes, opened.segment.base_offset):
        if max(table.max_timestamp) < timestamp_ms:
            continue
        for row, largest in enumerate(table.max_timestamp):
            base = table.base_offset[row]
            if base != OFFSET_UNKNOWN and base >= extent.end_offset:
                return None
            if largest < timestamp_ms or table.last_offset[row] < extent.first_offset:
                continue
            batch = valid_batch(opened.file, table.position[row])
            found = None if batch is None else _record(opened, extent, batch, timestamp_ms, limit_bytes)
            if found is not None:
                return found
    return None


def _record(
    opened: OpenSegment, extent: Extent, batch: BatchTable, timestamp_ms: int, limit_bytes: int
) -> int | None:
    """The offset of the first record of a batch within the extent that is not older, None if there is
    none."""
    data = read_at(opened.file, batch.position[0], batch.size[0])
    unreadable: list[KlogError] = []
    reader = SegmentReader(
        io.BytesIO(data),
        opened.segment.log,
        bounds=Bounds(extent.first_offset, extent.end_offset - 1, timestamp_ms),
        verify=False,
        on_problem=unreadable.append,
        max_decompressed_bytes=limit_bytes,
    )
    reader.batches = batch
    for _ in reader.decode(data):
        return reader.records.offset[0]
    return None
