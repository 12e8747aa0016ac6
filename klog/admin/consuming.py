"""Reads records of assigned partitions as columns, from chosen offsets or times, to the end or on and on.

Rules: it gives what a Kafka consumer gives. There are no control records, a committed reader gets no records
of aborted transactions (KIP-98), and records before the requested position are left out, although brokers
send whole batches.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from klog.client.cluster import Cluster
from klog.client.fetcher import Fetched, Fetcher, FetchSettings, Jumped
from klog.client.offsets import NOT_FOUND, list_offsets
from klog.formats.checksums import Bytes
from klog.formats.constants import CONTROL_ABORT, CONTROL_BIT, TRANSACTIONAL_BIT
from klog.formats.errors import CorruptRecordError, KlogError
from klog.formats.names import TopicPartition
from klog.kernel import kernel
from klog.kernel.columns import STOP_BAD_SIZE, BatchTable, RecordTable
from klog.kernel.markers import control_key, first_key
from klog.protocol.offset_times import EARLIEST, LATEST
from klog.storage.reading.reader import OnProblem, SegmentReader
from klog.storage.reading.select import Bounds, compact

OnJump = Callable[[Jumped], None]


class Run(NamedTuple):
    """Consecutive records of one partition. The tables are reused: copy what you keep."""

    partition: TopicPartition
    batches: BatchTable
    records: RecordTable
    payload: Bytes


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """What to read of each partition. `last` counts offsets back from the end.

    Reading starts at the first record of `start_ms` or later, and ends before the first one of `stop_ms` or
    later (ms since the epoch; unlike those of `bounds` they filter nothing between). It stops at the end that
    the partition had when reading began; with `follow` it goes on. It ends in any case if there was no record
    for `idle_timeout_ms`.
    """

    bounds: Bounds
    follow: bool = False
    last: int | None = None
    start_ms: int | None = None
    stop_ms: int | None = None
    idle_timeout_ms: int | None = None
    fetch: FetchSettings = field(default_factory=FetchSettings)


class ReadRange(NamedTuple):
    """The offsets to read; `stop` is not read, None sets no end."""

    start: int
    stop: int | None

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to read."""
        return self.stop is not None and self.start >= self.stop


def read(
    cluster: Cluster,
    partitions: Iterable[TopicPartition],
    plan: ReadPlan,
    on_problem: OnProblem,
    on_jump: OnJump,
) -> Iterator[Run]:
    """The records within the plan's bounds: in order within a partition, partitions mixed as they arrive.

    Calls `on_problem` for a damaged batch, and `on_jump` if a position does not exist (any more). Raises
    ClientError, ChannelError.
    """
    ranges = _ranges(cluster, tuple(TopicPartition(*partition) for partition in partitions), plan)
    positions = {partition: wanted.start for partition, wanted in ranges.items() if not wanted.is_empty}
    fetcher = Fetcher(cluster, positions, plan.fetch)
    readers: dict[TopicPartition, PartitionReader] = {}
    for partition in fetcher.positions:
        readers[partition] = PartitionReader(partition, ranges[partition], plan, on_problem)
    idle_since_s = cluster.clock.monotonic_s()
    while fetcher.positions:
        for run in poll_once(fetcher, readers, ranges, on_jump):
            yield run
            idle_since_s = cluster.clock.monotonic_s()
        idle_ms = (cluster.clock.monotonic_s() - idle_since_s) * 1000
        if plan.idle_timeout_ms is not None and idle_ms > plan.idle_timeout_ms:
            return


def _ranges(
    cluster: Cluster, partitions: tuple[TopicPartition, ...], plan: ReadPlan
) -> dict[TopicPartition, ReadRange]:
    """The offsets to read of each partition."""
    bounds = plan.bounds
    earliest = list_offsets(cluster, dict.fromkeys(partitions, EARLIEST))
    latest = list_offsets(cluster, dict.fromkeys(partitions, LATEST), plan.fetch.isolation)
    first_since = _first_at(cluster, partitions, bounds.since_ms, plan)
    first_started = _first_at(cluster, partitions, plan.start_ms, plan)
    first_stopped = _first_at(cluster, partitions, plan.stop_ms, plan)
    found = {}
    for partition in partitions:
        end = latest[partition]
        start = max(earliest[partition], min(bounds.first_offset or 0, end))
        for first in (first_since, first_started):
            offset = first.get(partition, start)
            start = max(start, end if offset == NOT_FOUND else offset)
        if plan.last is not None:
            start = max(start, end - plan.last)
        stop = None if plan.follow else end
        if bounds.last_offset is not None:
            stop = min(bounds.last_offset + 1, bounds.last_offset + 1 if stop is None else stop)
        stopped = first_stopped.get(partition, NOT_FOUND)
        if stopped != NOT_FOUND:
            stop = stopped if stop is None else min(stop, stopped)
        found[partition] = ReadRange(start, stop)
    return found


def _first_at(
    cluster: Cluster, partitions: tuple[TopicPartition, ...], time_ms: int | None, plan: ReadPlan
) -> Mapping[TopicPartition, int]:
    """The offset of the first record of this time or later, for each partition; nothing without a time."""
    if time_ms is None:
        return {}
    return list_offsets(cluster, dict.fromkeys(partitions, max(time_ms, 0)), plan.fetch.isolation)


def poll_once(
    fetcher: Fetcher,
    readers: dict[TopicPartition, PartitionReader],
    ranges: Mapping[TopicPartition, ReadRange],
    on_jump: OnJump,
) -> Iterator[Run]:
    """What the leaders give now. Partitions that have been read to their end are dropped from the fetcher."""
    idle: list[Fetched] = []
    for result in fetcher.poll():
        partition = result.partition
        if isinstance(result, Jumped):
            on_jump(result)
            readers[partition] = readers[partition].restarted(result.to_offset)
        elif not result.records:
            idle.append(result)
            continue
        else:
            yield from readers[partition].runs(result)
            fetcher.advance(partition, max(readers[partition].next_offset, result.position))
        stop = ranges[partition].stop
        if stop is not None and fetcher.positions[partition] >= stop:
            fetcher.drop(partition)
    if len(idle) == len(fetcher.positions):
        _drop_finished(fetcher, ranges, idle)


def _drop_finished(
    fetcher: Fetcher, ranges: Mapping[TopicPartition, ReadRange], idle: Iterable[Fetched]
) -> None:
    """Stop reading partitions that are idle before their known end: the last records were compacted away."""
    for fetched in idle:
        stop = ranges[fetched.partition].stop
        if stop is not None and fetched.end_offset >= stop:
            fetcher.drop(fetched.partition)


class PartitionReader:
    """Turns what one partition gave into runs of visible records; `next_offset` is the next to ask for."""

    def __init__(
        self, partition: TopicPartition, wanted: ReadRange, plan: ReadPlan, on_problem: OnProblem
    ) -> None:
        self._partition = partition
        self._range = wanted
        self._plan = plan
        self._on_problem = on_problem
        self._name = str(partition)
        last_offset = None if wanted.stop is None else wanted.stop - 1
        first_offset = max(wanted.start, plan.bounds.first_offset or 0)
        bounds = replace(plan.bounds, first_offset=first_offset, last_offset=last_offset)
        self._reader = SegmentReader(io.BytesIO(), self._name, bounds=bounds, on_problem=self._report)
        self.next_offset = wanted.start

    def restarted(self, start: int) -> PartitionReader:
        """A reader of the same partition that goes on at another offset."""
        return PartitionReader(
            self._partition, self._range._replace(start=start), self._plan, self._on_problem
        )

    def _report(self, problem: KlogError) -> None:
        problem.file = self._name
        problem.position_bytes = None  # a position in the answer says nothing to the user
        self._on_problem(problem)

    def runs(self, fetched: Fetched) -> Iterator[Run]:
        """The visible records of what was fetched. Raises CorruptRecordError if no batch can be found."""
        reader, data = self._reader, fetched.records
        batches = reader.batches
        kernel.scan(data, 0, False, batches)
        if not len(batches) and batches.stop == STOP_BAD_SIZE:
            raise CorruptRecordError(
                f"no record batch at offset {fetched.position} (size field {batches.stop_size})",
                file=self._name,
                cure="`klog verify` on the broker's files tells more",
            )
        if kernel.verify(data, batches):
            self._report_checksums()
        self.next_offset = batches.last_offset[-1] + 1 if len(batches) else fetched.position
        self._keep_visible(data, fetched.aborted)
        for payload in reader.decode(data):
            yield Run(self._partition, batches, reader.records, payload)

    def _report_checksums(self) -> None:
        batches = self._reader.batches
        for row, valid in enumerate(batches.valid):
            if not valid:
                offsets = f"{batches.base_offset[row]} to {batches.last_offset[row]}"
                self._report(
                    CorruptRecordError(
                        f"the batch with offsets {offsets} fails its checksum",
                        cure="`klog verify` on the broker's files tells more",
                    )
                )

    def _keep_visible(self, data: Bytes, aborted: Iterable[tuple[int, int]]) -> None:
        batches = self._reader.batches
        if not any(attributes & (CONTROL_BIT | TRANSACTIONAL_BIT) for attributes in batches.attributes):
            return
        begun = sorted(aborted, key=lambda transaction: transaction[1])
        open_aborted: set[int] = set()
        visible = []
        for row, attributes in enumerate(batches.attributes):
            while begun and begun[0][1] <= batches.last_offset[row]:
                open_aborted.add(begun.pop(0)[0])
            producer_id = batches.producer_id[row]
            if batches.magic[row] < 2 or not attributes & CONTROL_BIT:
                if not (attributes & TRANSACTIONAL_BIT and producer_id in open_aborted):
                    visible.append(row)
            elif self._ends_aborted(data, row):
                open_aborted.discard(producer_id)
        compact(batches, visible)

    def _ends_aborted(self, data: Bytes, row: int) -> bool:
        records = RecordTable()
        kernel.decode(data, self._reader.batches, row, row + 1, records)
        key = control_key(first_key(data, records))
        return key is not None and key[1] == CONTROL_ABORT
