"""Puts the log of a partition together: what is kept of the state before, and the batches that are fetched.

A cluster does not say where its segments begin. So a new one begins when the last one would become larger
than `SEGMENT_BYTES`, which is the default of `segment.bytes`.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from klog.backup.model import Damage, PartitionState, Piece, SegmentSeen
from klog.backup.pieces import PieceWriter, SegmentPieces
from klog.formats.checkpoints import EpochEntry
from klog.formats.constants import INT32_MAX
from klog.formats.names import TopicPartition
from klog.kernel import kernel
from klog.kernel.columns import OFFSET_UNKNOWN, BatchTable
from klog.storage.repair.leader_epochs import LeaderEpochs
from klog.storage.repair.recovery_epochs import note_epochs

SEGMENT_BYTES: Final = 1 << 30


@dataclass(frozen=True, slots=True)
class Origin:
    """What does not follow from batches: see `PartitionState`."""

    topic_id: str | None
    source: str
    broker_id: int | None
    high_watermark: int
    read_time_ms: int


class Log:
    """The log of a partition that grows. Batches are added in the order in which they are fetched.

    `has_gaps` says that offsets are missing between batches that were added: the topic is compacted.
    """

    def __init__(
        self,
        writer: PieceWriter,
        partition: TopicPartition,
        kept: PartitionState | None,
        start_offset: int,
        segment_bytes: int = SEGMENT_BYTES,
    ) -> None:
        self._writer = writer
        self._partition = partition
        self._segment_bytes = segment_bytes
        self._base_offset = self.end_offset = start_offset
        self._pieces: list[Piece] = []
        self._epochs: list[EpochEntry] = []
        self._damage: list[Damage] = []
        self._current: SegmentPieces | None = None
        self._seen: tuple[SegmentSeen, ...] = ()
        self.has_gaps = False
        if kept is not None:
            self._pieces += kept.pieces
            self._epochs += kept.epochs
            self._damage += kept.damage
            self._seen = kept.seen
        if self._pieces:
            last = self._pieces[-1]
            self._base_offset = last.segment_base_offset
            self._current = SegmentPieces(
                writer, partition, self._base_offset, start_offset, last.start_bytes + last.size_bytes
            )

    def add(self, data: memoryview, table: BatchTable, place: str, high_watermark: int) -> None:
        """Add the valid batches of a table from `end_offset` on; `place` is where the others are damaged."""
        first = 0
        while first < len(table) and table.last_offset[first] < self.end_offset:
            first += 1
        if self._current is None and first < len(table):
            self.end_offset = min(self.end_offset, _first(table, first))  # records may be deleted in a batch
        bad = kernel.verify(data, table)
        while first < len(table):
            end = len(table) if not bad and self._ascends(table, first) else self._end_of_valid(table, first)
            if end > first:
                self._add_rows(data, table, first, end)
            if end < len(table):
                end = self._skip_damage(table, end, place, high_watermark)
            first = end

    def state(self, origin: Origin, log_start_offset: int) -> PartitionState:
        """The state of what was added, without what lies below the start of the log."""
        self.finish_piece()
        epochs = LeaderEpochs(self._epochs)
        epochs.truncate_from_start(log_start_offset)
        pieces = _above(self._pieces, log_start_offset)
        end_offset = max(self.end_offset, log_start_offset)
        return PartitionState(
            partition=self._partition,
            topic_id=origin.topic_id,
            pieces=tuple(pieces),
            log_start_offset=log_start_offset,
            end_offset=end_offset,
            high_watermark=origin.high_watermark,
            epochs=epochs.entries,
            snapshot=None,
            source=origin.source,
            broker_id=origin.broker_id,
            read_time_ms=origin.read_time_ms,
            empty_segments=() if pieces else (end_offset,),
            damage=tuple(
                each for each in self._damage if each.end_offset is None or each.end_offset > log_start_offset
            ),
            seen=self._seen if pieces else (),
        )

    def finish_piece(self) -> None:
        """Store the piece that was begun."""
        current = self._current
        if current is None:
            return
        current.finish_piece()
        self._pieces += current.pieces
        current.pieces.clear()
        if current.last[1]:
            self._seen = (SegmentSeen(self._base_offset, (), current.end_bytes, True, *current.last),)

    def discard(self) -> None:
        """Remove a piece that was begun."""
        if self._current is not None:
            self._current.discard()

    def _ascends(self, table: BatchTable, first: int) -> bool:
        """Whether the offsets of all batches from a row on are known, and ascend."""
        bases, lasts = table.base_offset[first:], table.last_offset[first:]
        return (
            OFFSET_UNKNOWN not in bases
            and bases[0] >= self.end_offset
            and all(map(operator.le, bases, lasts))
            and all(map(operator.lt, lasts, bases[1:]))
        )

    def _end_of_valid(self, table: BatchTable, first: int) -> int:
        """The row of the first batch that is not valid."""
        due = self.end_offset
        for row in range(first, len(table)):
            last = table.last_offset[row]
            if not table.valid[row] or _first(table, row) < due or last < due:
                return row
            due = last + 1
        return len(table)

    def _skip_damage(self, table: BatchTable, row: int, place: str, high_watermark: int) -> int:
        """Note the damage that begins at a row; the row after it."""
        following = row + 1
        due = self.end_offset
        while following < len(table) and not (table.valid[following] and _first(table, following) >= due):
            following += 1
        if following < len(table):
            end = _first(table, following)
        else:
            end = max(due, min(table.last_offset[following - 1], high_watermark - 1)) + 1
        what = (
            f"the batch has offset {table.last_offset[row]}, at least {due} is expected"
            if table.valid[row]
            else f"the batch fails its checksum (stored {table.crc[row]}, computed {table.computed_crc[row]})"
        )
        self._damage.append(Damage(place, None, due, end, what))
        self.finish_piece()
        if self._current is not None:
            self._current.end_bytes += sum(table.size[row:following])
            self._current.next_offset = end
        self.end_offset = end
        return following

    def _add_rows(self, data: memoryview, table: BatchTable, first: int, end: int) -> None:
        expected = [self.end_offset, *(last + 1 for last in table.last_offset[first : end - 1])]
        self.has_gaps = self.has_gaps or any(map(operator.lt, expected, table.base_offset[first:end]))
        note_epochs(table, end, self._epochs, first)
        while first < end:
            following = self._end_of_segment(table, first, end)
            if self._current is None or following == first:
                self._roll(table, first)
                continue
            self._current.add(data, table, first, following)
            self.end_offset = self._current.next_offset
            first = following

    def _end_of_segment(self, table: BatchTable, first: int, end: int) -> int:
        """The row up to which batches fit into the current segment."""
        if self._current is None:
            return first
        start = table.position[first]
        room = self._segment_bytes - self._current.end_bytes
        most_offset = self._base_offset + INT32_MAX
        while end > first and (
            table.position[end - 1] + table.size[end - 1] - start > room
            or table.last_offset[end - 1] > most_offset
        ):
            end -= 1
        if end == first and self._current.end_bytes == 0:
            return first + 1  # a batch that is larger than a segment
        return end

    def _roll(self, table: BatchTable, row: int) -> None:
        is_first = self._current is None
        self.finish_piece()
        base = table.base_offset[row]
        if base == OFFSET_UNKNOWN:
            base = self.end_offset
        self._base_offset = min(base, self.end_offset) if is_first else base
        self._current = SegmentPieces(self._writer, self._partition, self._base_offset, self.end_offset, 0)


def _first(table: BatchTable, row: int) -> int:
    """The base offset; of a compressed set of magic 0 or 1 the only one in its header, the last."""
    first = table.base_offset[row]
    return table.last_offset[row] if first == OFFSET_UNKNOWN else first


def _above(pieces: Sequence[Piece], log_start_offset: int) -> list[Piece]:
    """The pieces without segments that end at or below the start of the log."""
    bases = sorted({piece.segment_base_offset for piece in pieces})
    below = [base for base, following in itertools.pairwise(bases) if following <= log_start_offset]
    kept = [piece for piece in pieces if piece.segment_base_offset not in below]
    return kept if kept and kept[-1].end_offset > log_start_offset else []
