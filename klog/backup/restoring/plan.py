"""Plans what comes back: for each partition the exact end, and the markers that are added there.

The plan reads the headers of all batches of the partitions, and the records of `__transaction_state`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from klog.backup.model import Piece
from klog.backup.moment.aborted import AbortedPart, aborted_parts
from klog.backup.moment.corrections import fenced_epochs
from klog.backup.moment.cut import ConsistentEnds
from klog.backup.moment.decisions import TRANSACTION_TOPIC, Decisions
from klog.backup.moment.history import HistoryReader
from klog.backup.moment.values import EndRule, PartitionCut, PartitionHistory
from klog.backup.moment.view import Part, PartitionView
from klog.backup.restoring.batches import PieceSource, read_batches
from klog.backup.restoring.state_records import transaction_records, transaction_states
from klog.coordinator.transactions.records import TransactionRecord
from klog.formats.constants import MAGIC_V2
from klog.formats.errors import UsageError
from klog.formats.names import TopicPartition
from klog.jobs.threads import side_by_side

OnBytes = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Moment:
    """The moment to go back to. `at_ms` is None for the end of a run; `offsets` are ends that are given."""

    at_ms: int | None = None
    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PlannedPartition:
    """A partition that comes back. `size_bytes` is about what its log takes, `largest_batch_bytes` the size
    of the largest batch in it, `oldest_magic` the oldest message format.
    """

    view: PartitionView
    cut: PartitionCut
    target: TopicPartition
    size_bytes: int
    largest_batch_bytes: int = 0
    oldest_magic: int = MAGIC_V2
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
    on_bytes: OnBytes | None = None,
    reads_all: bool = True,
) -> RestorePlan:
    """What comes back of `views`: the topics that are `wanted`, under new `names`.

    Partitions of other topics take part in finding the cut, as a transaction may be in them. `moment_ms` is
    the moment in ms. `jobs` partitions are read at a time; `on_bytes` may be called by several threads.
    Unless it `reads_all`, pieces are not read that do not matter for the cut, and the sizes of the largest
    batches are not known.
    """
    decisions = Decisions()
    histories: dict[TopicPartition, PartitionHistory] = {}
    sizes: dict[TopicPartition, tuple[int, int, int]] = {}
    rules = [(view, rule_of(view, moment)) for view in views]
    read = side_by_side(jobs, lambda each: _read(source, *each, on_bytes, reads_all=reads_all), rules)
    for view, found in zip(views, read, strict=True):
        histories[view.partition] = found.history
        sizes[view.partition] = (found.size_bytes, found.largest_batch_bytes, found.oldest_magic)
        for decided in found.records:
            decisions.add(view.partition, *decided)
    ends = ConsistentEnds(histories, decisions)
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
            *sizes[view.partition],
            aborted_parts(histories[view.partition], cuts[view.partition]),
        )
        for view in sorted(views, key=lambda each: each.partition)
        if wanted(view.partition.topic)
    ]
    return RestorePlan(tuple(planned), moment_ms)


@dataclass(slots=True)
class _Read:
    """The history of a partition, about how many bytes lie before its end by time, its largest batch and
    oldest format there, and the records of a partition of `__transaction_state` with the offsets of their
    batches and their times. If some of those are lost, markers say what was decided, as if the topic was not
    there.
    """

    history: PartitionHistory
    size_bytes: int
    largest_batch_bytes: int
    oldest_magic: int
    records: list[tuple[int, int, int, TransactionRecord]]


def _read(
    source: PieceSource,
    view: PartitionView,
    rule: EndRule,
    on_bytes: OnBytes | None,
    *,
    reads_all: bool,
) -> _Read:
    reader = HistoryReader(rule, view.gaps)
    records = []
    size_bytes = largest_batch_bytes = 0
    oldest_magic = MAGIC_V2

    def due() -> Iterator[Part]:
        """The parts to read; the others are passed over when it is their turn."""
        nonlocal size_bytes
        for part in view.parts:
            if (
                reads_all
                or view.gaps
                or view.partition.topic == TRANSACTION_TOPIC
                or part.piece.has_transactions
                or _may_hold_end(part.piece, rule, reader)
            ):
                yield part
                continue
            size_bytes += 0 if reader.has_ended else part.piece.size_bytes
            if on_bytes is not None:
                on_bytes(part.piece.size_bytes)
            reader.skip(
                part.piece.end_offset,
                by_time=part.piece.end_offset > rule.lowest and not reader.has_ended,
            )

    for rows in read_batches(source, due()):
        try:
            reader.follow(rows.data, rows.table, rows.first, rows.last)
        except UsageError as error:
            raise error.at(str(view.partition)) from None
        if not reader.has_ended:
            size_bytes += len(rows.span())
            largest_batch_bytes = max(largest_batch_bytes, *rows.table.size[rows.first : rows.last])
            oldest_magic = min(oldest_magic, *rows.table.magic[rows.first : rows.last])
        if view.partition.topic == TRANSACTION_TOPIC and not view.gaps:
            records += [
                (offset, end, written_ms, record)
                for offset, end, written_ms, _, record in transaction_records(rows)
                if record is not None
            ]
        if on_bytes is not None:
            on_bytes(len(rows.span()))
    history = reader.finish(view.complete_ms, view.log_start_offset)
    return _Read(history, size_bytes, largest_batch_bytes, oldest_magic, records)


def _may_hold_end(piece: Piece, rule: EndRule, reader: HistoryReader) -> bool:
    """Whether the end of a partition by a rule may lie in a piece, or before its first batch."""
    if reader.has_ended or piece.end_offset <= rule.lowest:
        return False
    is_within = rule.highest is None or piece.end_offset <= rule.highest
    return not is_within or (rule.moment_ms is not None and piece.max_timestamp_ms > rule.moment_ms)
