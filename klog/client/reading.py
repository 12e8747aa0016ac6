"""Records of assigned partitions as columns, from chosen offsets or times to the end or for ever.

Rules: what a Kafka consumer shows: no control records, nothing of aborted transactions to a committed reader
(KIP-98), nothing from before the position asked for, although brokers hand out whole batches.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from klog.client.cluster import Cluster, TopicPartition
from klog.client.fetcher import Fetched, Fetcher, FetchSettings, Jumped
from klog.client.offsets import NOT_FOUND, list_offsets
from klog.formats import kernel
from klog.formats.checksums import Bytes
from klog.formats.columns import (
    CONTROL_BIT,
    STOP_BAD_SIZE,
    TRANSACTIONAL_BIT,
    BatchTable,
    RecordTable,
)
from klog.formats.errors import CorruptRecordError, KlogError
from klog.protocol.offset_times import EARLIEST, LATEST
from klog.storage.reader import OnProblem, SegmentReader
from klog.storage.select import Bounds, compact

_ABORT: Final = 0
_CONTROL_KEY_BYTES: Final = 4

OnJump = Callable[[Jumped], None]


class Run(NamedTuple):
    """Records of one partition that stand together; the tables are reused, take what you need."""

    partition: TopicPartition
    batches: BatchTable
    records: RecordTable
    payload: Bytes


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """What to read of each partition. `last` counts records back from the end; `follow` never ends by itself.

    Without `follow` the end is where the partition ended when reading began.
    """

    bounds: Bounds
    follow: bool = False
    last: int | None = None
    fetch: FetchSettings = field(default_factory=FetchSettings)


class _Stretch(NamedTuple):
    start: int
    stop: int | None


def read(
    cluster: Cluster,
    partitions: Iterable[TopicPartition],
    plan: ReadPlan,
    on_problem: OnProblem,
    on_jump: OnJump,
) -> Iterator[Run]:
    """The records within the plan's bounds, partitions mixed as they come, in order within each.

    A damaged batch goes to `on_problem`; a position that is not there any more to `on_jump`. Raises
    ClientError, ChannelError.
    """
    stretches = _stretches(cluster, tuple(partitions), plan)
    fetcher = Fetcher(
        cluster, {part: stretch.start for part, stretch in stretches.items() if _left(stretch)}, plan.fetch
    )
    readers: dict[TopicPartition, _PartitionReader] = {}
    for partition in fetcher.positions:
        readers[partition] = _PartitionReader(partition, stretches[partition], plan, on_problem)
    while fetcher.positions:
        yield from _round(fetcher, readers, stretches, on_jump)


def _left(stretch: _Stretch) -> bool:
    return stretch.stop is None or stretch.start < stretch.stop


def _stretches(
    cluster: Cluster, partitions: tuple[TopicPartition, ...], plan: ReadPlan
) -> dict[TopicPartition, _Stretch]:
    """Where to begin and where to end in each partition."""
    bounds = plan.bounds
    earliest = list_offsets(cluster, dict.fromkeys(partitions, EARLIEST))
    latest = list_offsets(cluster, dict.fromkeys(partitions, LATEST), plan.fetch.isolation)
    timely: Mapping[TopicPartition, int] = {}
    if bounds.since_ms is not None:
        timely = list_offsets(
            cluster, dict.fromkeys(partitions, max(bounds.since_ms, 0)), plan.fetch.isolation
        )
    found = {}
    for partition in partitions:
        end = latest[partition]
        start = max(earliest[partition], min(bounds.first_offset or 0, end))
        since = timely.get(partition, start)
        start = max(start, end if since == NOT_FOUND else since)
        if plan.last is not None:
            start = max(start, end - plan.last)
        stop = None if plan.follow else end
        if bounds.last_offset is not None:
            stop = min(bounds.last_offset + 1, bounds.last_offset + 1 if stop is None else stop)
        found[partition] = _Stretch(start, stop)
    return found


def _round(
    fetcher: Fetcher,
    readers: dict[TopicPartition, _PartitionReader],
    stretches: Mapping[TopicPartition, _Stretch],
    on_jump: OnJump,
) -> Iterator[Run]:
    idle: list[Fetched] = []
    for news in fetcher.poll():
        partition = news.partition
        if isinstance(news, Jumped):
            on_jump(news)
            readers[partition] = readers[partition].restarted(news.to_offset)
        elif not news.records:
            idle.append(news)
            continue
        else:
            yield from readers[partition].runs(news)
            fetcher.advance(partition, max(readers[partition].next_offset, news.position))
        stop = stretches[partition].stop
        if stop is not None and fetcher.positions[partition] >= stop:
            fetcher.drop(partition)
    if len(idle) == len(fetcher.positions):
        _drop_finished(fetcher, stretches, idle)


def _drop_finished(
    fetcher: Fetcher, stretches: Mapping[TopicPartition, _Stretch], idle: Iterable[Fetched]
) -> None:
    """Nobody has anything: what is left before a known end has been compacted away."""
    for fetched in idle:
        stop = stretches[fetched.partition].stop
        if stop is not None and fetched.end_offset >= stop:
            fetcher.drop(fetched.partition)


class _PartitionReader:
    """Turns what one partition gave into runs of visible records; `next_offset` is what to ask for then."""

    def __init__(
        self, partition: TopicPartition, stretch: _Stretch, plan: ReadPlan, on_problem: OnProblem
    ) -> None:
        self._partition = partition
        self._stretch = stretch
        self._plan = plan
        self._on_problem = on_problem
        self._name = "{}-{}".format(*partition)
        last_offset = None if stretch.stop is None else stretch.stop - 1
        first_offset = max(stretch.start, plan.bounds.first_offset or 0)
        bounds = replace(plan.bounds, first_offset=first_offset, last_offset=last_offset)
        self._reader = SegmentReader(io.BytesIO(), self._name, bounds=bounds, on_problem=self._report)
        self.next_offset = stretch.start

    def restarted(self, start: int) -> _PartitionReader:
        """The reader for going on elsewhere."""
        return _PartitionReader(
            self._partition, self._stretch._replace(start=start), self._plan, self._on_problem
        )

    def _report(self, problem: KlogError) -> None:
        problem.file = self._name
        problem.position_bytes = None  # of the answer, which nobody has
        self._on_problem(problem)

    def runs(self, fetched: Fetched) -> Iterator[Run]:
        """The visible records of what was fetched. Raises CorruptRecordError where nothing can be found."""
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
        if not len(records) or records.key_size[0] < _CONTROL_KEY_BYTES:
            return False
        kind = memoryview(data)[records.key_start[0] + 2 : records.key_start[0] + _CONTROL_KEY_BYTES]
        return int.from_bytes(kind, "big") == _ABORT
