"""Reads the histories of partitions for a plan: no more pieces than what is asked for depends on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from klog.backup.model import Piece
from klog.backup.moment.decisions import TRANSACTION_TOPIC
from klog.backup.moment.history import HistoryBuilder
from klog.backup.moment.values import EndRule, PartitionHistory
from klog.backup.moment.view import Part, PartitionView
from klog.backup.restoring.batches import PieceSource, Rows, read_batches
from klog.backup.restoring.state_records import transaction_records
from klog.coordinator.transactions.records import TransactionRecord
from klog.formats.constants import CODEC_MASK, MAGIC_V2, NO_TIMESTAMP
from klog.formats.errors import UsageError
from klog.kernel.columns import BatchTable

OnBytes = Callable[[int], object]


def ignore_bytes(_size_bytes: int) -> None:
    """Takes how much was read, for those that show no progress."""


@dataclass(frozen=True, slots=True)
class BatchesSeen:
    """What is known of the batches of a partition before its end by time: the size of the largest, the oldest
    message format, the codecs, and of the batches' latest times the earliest and the latest (None if no
    record has a time). `records` says whether there are any.
    """

    largest_bytes: int = 0
    oldest_magic: int = MAGIC_V2
    codecs: frozenset[int] = frozenset()
    oldest_ms: int | None = None
    newest_ms: int | None = None

    @property
    def records(self) -> bool:
        """Whether there are batches at all."""
        return self.largest_bytes > 0

    def and_also(self, table: BatchTable, first: int, last: int) -> BatchesSeen:
        """With some rows of a table."""
        times = [each for each in table.max_timestamp[first:last] if each != NO_TIMESTAMP]
        oldest = [each for each in (self.oldest_ms, *times) if each is not None]
        newest = [each for each in (self.newest_ms, *times) if each is not None]
        codecs = {each & CODEC_MASK for each in set(table.attributes[first:last])}
        return BatchesSeen(
            max(self.largest_bytes, *table.size[first:last]),
            min(self.oldest_magic, *table.magic[first:last]),
            self.codecs | codecs,
            min(oldest, default=None),
            max(newest, default=None),
        )


SETTLED_MS: Final = 600_000
"""Transactions that have ended so long before a moment do not matter for the cut there: their markers are in
all partitions, whatever the clocks of brokers say."""


class Detail(IntEnum):
    """What a plan is to know: the cut; which transactions were aborted, too; or the sizes and formats of
    batches; or also whether all objects have their checksums. Each needs more than the one before.
    """

    CUT = 0
    ABORTED = 1
    BATCHES = 2
    CHECKED = 3


@dataclass(slots=True)
class Read:
    """The history of a partition, about how many bytes lie before its end by time, its batches there, and the
    records of a partition of `__transaction_state` with the offsets of their batches and their times. If some
    of those are lost, markers say what was decided, as if the topic was not there.
    """

    history: PartitionHistory
    size_bytes: int
    batches: BatchesSeen
    records: list[tuple[int, int, int, TransactionRecord]]


def settled_before_ms(views: Sequence[PartitionView], moment_ms: int) -> int:
    """Transactions that ended before this time are known in all partitions: one that is not whole in a
    partition that was read early moves the ends of the others back, too.
    """
    return min([moment_ms, *(view.complete_ms for view in views)]) - SETTLED_MS


@dataclass(frozen=True, slots=True)
class PlanReading:
    """Reads the partitions of a plan. If only the cut is asked for, the transactions that ended before
    `settled_ms` are left out.
    """

    source: PieceSource
    detail: Detail
    settled_ms: int
    on_bytes: OnBytes = ignore_bytes

    def read(self, view: PartitionView, rule: EndRule) -> Read:
        """The history of a partition. Raises `KlogError`."""
        return _PartitionReading(self, view, rule).read()


class _PartitionReading:
    def __init__(self, asked: PlanReading, view: PartitionView, rule: EndRule) -> None:
        self._source, self._on_bytes = asked.source, asked.on_bytes
        self._view = view
        self._rule = rule
        is_deciding = view.partition.topic == TRANSACTION_TOPIC
        self._is_checked = asked.detail is Detail.CHECKED
        self._needs_all = asked.detail >= Detail.BATCHES or bool(view.gaps) or is_deciding
        self._needs_transactions = asked.detail is not Detail.CUT
        self._settled_ms = asked.settled_ms
        self._reader = HistoryBuilder(rule, view.gaps)
        self._found = Read(self._reader.finish(0), 0, BatchesSeen(), [])

    def read(self) -> Read:
        for rows in read_batches(self._source, self._due(), checked=self._is_checked):
            try:
                self._reader.follow(rows.data, rows.table, rows.first, rows.last)
            except UsageError as error:
                raise error.at(str(self._view.partition)) from None
            self._note(rows)
            self._on_bytes(len(rows.span()))
        self._found.history = self._reader.finish(self._view.complete_ms, self._view.log_start_offset)
        return self._found

    def _due(self) -> Iterator[Part]:
        """The parts to read; the others are passed over when it is their turn."""
        for part in self._view.parts:
            piece = part.piece
            if self._is_needed(part):
                yield part
                continue
            has_ended = self._reader.has_ended
            self._found.size_bytes += 0 if has_ended else piece.size_bytes
            self._on_bytes(piece.size_bytes)
            self._reader.skip(piece, by_time=piece.end_offset > self._rule.lowest and not has_ended)

    def _is_needed(self, part: Part) -> bool:
        piece = part.piece
        is_whole = part.first_offset <= piece.first_offset
        is_settled = piece.producers is not None and is_whole and piece.max_timestamp_ms < self._settled_ms
        if self._may_hold_end(piece) or (piece.has_transactions and not is_settled):
            # What ends in later pieces may be open at the cut.
            self._needs_transactions = True
            return True
        return self._needs_all or (piece.has_transactions and self._needs_transactions)

    def _may_hold_end(self, piece: Piece) -> bool:
        """Whether the end of the partition by the rule may lie in a piece, or before its first batch."""
        rule = self._rule
        if self._reader.has_ended or piece.end_offset <= rule.lowest:
            return False
        is_within = rule.highest is None or piece.end_offset <= rule.highest
        return not is_within or (rule.moment_ms is not None and piece.max_timestamp_ms > rule.moment_ms)

    def _note(self, rows: Rows) -> None:
        found, table = self._found, rows.table
        if not self._reader.has_ended:
            found.size_bytes += len(rows.span())
            found.batches = found.batches.and_also(table, rows.first, rows.last)
        if self._view.partition.topic == TRANSACTION_TOPIC and not self._view.gaps:
            found.records += [
                (offset, end, written_ms, record)
                for offset, end, written_ms, _, record in transaction_records(rows)
                if record is not None
            ]
