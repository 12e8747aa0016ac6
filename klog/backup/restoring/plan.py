"""Plans what comes back: for each partition the exact end, and the markers that are added there.

The plan follows from the headers of batches, and from the records of `__transaction_state`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from klog.backup.moment.aborted import AbortedPart, aborted_parts
from klog.backup.moment.corrections import fenced_epochs
from klog.backup.moment.cut import ConsistentEnds
from klog.backup.moment.decisions import TRANSACTION_TOPIC, Decisions
from klog.backup.moment.values import EndRule, PartitionCut
from klog.backup.moment.view import PartitionView
from klog.backup.restoring.batches import PieceSource, read_batches
from klog.backup.restoring.histories import (
    SETTLED_MS,
    BatchesSeen,
    Detail,
    OnBytes,
    PlanReading,
    Read,
    ignore_bytes,
    settled_before_ms,
)
from klog.backup.restoring.state_records import transaction_states
from klog.formats.errors import UsageError
from klog.formats.names import TopicPartition
from klog.jobs.threads import side_by_side


@dataclass(frozen=True, slots=True)
class Moment:
    """The moment to go back to. `at_ms` is None for the end of a run; `offsets` are ends that are given."""

    at_ms: int | None = None
    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PlannedPartition:
    """A partition that comes back. `size_bytes` is about what its log takes."""

    view: PartitionView
    cut: PartitionCut
    target: TopicPartition
    size_bytes: int
    batches: BatchesSeen = field(default_factory=BatchesSeen)
    aborted: tuple[AbortedPart, ...] = ()


@dataclass(frozen=True, slots=True)
class RestorePlan:
    """The partitions in their order, and the time of markers and records that are added."""

    partitions: tuple[PlannedPartition, ...]
    moment_ms: int

    @property
    def size_bytes(self) -> int:
        """About the size of all logs."""
        return sum(each.size_bytes for each in self.partitions)


def rule_of(view: PartitionView, moment: Moment) -> EndRule:
    """Where a partition ends by time. Raises `UsageError` for an offset that the backup does not have."""
    given = moment.offsets.get(view.partition)
    if given is not None:
        last = max(end for end in (view.known_end, view.next_end) if end is not None)
        if not view.log_start_offset <= given <= last:
            raise UsageError(
                f"{view.partition}: the backup has the offsets from {view.log_start_offset} to {last}, not"
                f" {given}"
            )
        return EndRule(given, given, is_given=True)
    if moment.at_ms is None:
        return EndRule(view.known_end or 0, view.known_end)
    return EndRule(view.known_end or 0, view.next_end, moment.at_ms)


def plan_restore(
    source: PieceSource,
    views: Sequence[PartitionView],
    moment: Moment,
    moment_ms: int,
    *,
    wanted: Callable[[str], bool],
    names: Mapping[str, str],
    jobs: int = 1,
    on_bytes: OnBytes = ignore_bytes,
    detail: Detail = Detail.BATCHES,
) -> RestorePlan:
    """What comes back of `views`: the topics that are `wanted`, under new `names`.

    Partitions of other topics take part in finding the cut, as a transaction may be in them. `moment_ms` is
    the moment in ms. `jobs` partitions are read at a time; `on_bytes` may be called by several threads.
    What is beyond the `detail` is not known: sizes and formats of batches, aborted transactions.
    """
    rules = [(view, rule_of(view, moment)) for view in views]
    settled_ms = settled_before_ms(views, moment_ms)
    while True:
        found = _read(PlanReading(source, detail, settled_ms, on_bytes), rules, jobs)
        histories = {partition: each.history for partition, each in found.items()}
        ends = ConsistentEnds(histories, _decisions(found))
        open_since_ms = ends.open_since_ms() if detail is Detail.CUT else None
        if open_since_ms is None or open_since_ms > settled_ms:
            break
        settled_ms = open_since_ms - SETTLED_MS  # their markers may be in other partitions
        on_bytes = ignore_bytes
    fenced: dict[int, int] = {}
    for view in views:
        if view.partition.topic == TRANSACTION_TOPIC and wanted(TRANSACTION_TOPIC):
            states = transaction_states(read_batches(source, view.parts, ends.ends[view.partition]))
            fenced |= fenced_epochs(states.values())
    cuts = ends.cut(moment_ms, fenced)
    planned = [
        PlannedPartition(
            view,
            cuts[view.partition],
            TopicPartition(names.get(view.partition.topic, view.partition.topic), view.partition.partition),
            found[view.partition].size_bytes,
            found[view.partition].batches,
            () if detail is Detail.CUT else aborted_parts(histories[view.partition], cuts[view.partition]),
        )
        for view in sorted(views, key=lambda each: each.partition)
        if wanted(view.partition.topic)
    ]
    return RestorePlan(tuple(planned), moment_ms)


def _read(
    reading: PlanReading, rules: Sequence[tuple[PartitionView, EndRule]], jobs: int
) -> dict[TopicPartition, Read]:
    found = side_by_side(jobs, lambda each: reading.read(*each), rules)
    return {view.partition: read for (view, _), read in zip(rules, found, strict=True)}


def _decisions(found: Mapping[TopicPartition, Read]) -> Decisions:
    decisions = Decisions()
    for partition, read in found.items():
        for decided in read.records:
            decisions.add(partition, *decided)
    return decisions
