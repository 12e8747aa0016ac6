"""The log of a partition as several runs know it around a moment: parts of pieces, in their order.

What the last run before the moment knew comes first. The next run may have found a log that was compacted, or
whose beginning was deleted; only what is new in it follows.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from klog.backup.model import Damage, PartitionState, Piece, SnapshotObject, fits_segment
from klog.backup.moment.values import Gap
from klog.formats.checkpoints import EpochEntry
from klog.formats.names import TopicPartition
from klog.storage.repair.leader_epochs import LeaderEpochs

CHECKPOINT_AGE_MS: Final = 6000
"""A running broker writes its high watermarks every 5 s (`replica.high.watermark.checkpoint.interval.ms`), so
what was acknowledged shortly before a run read them may be above the end that it knew."""


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of which the batches from `first_offset` on count, in the segment that they are restored to."""

    piece: Piece
    segment_base_offset: int
    first_offset: int


@dataclass(frozen=True, slots=True)
class PartitionView:
    """A partition's log. `known_end` is the end at the last run before the moment (None: there was none), and
    `next_end` at the one after it (None: none). `gaps` are where parts were left out. When these runs read
    the log, it may have been compacted up to `known_cleaned_to` and `cleaned_to`.
    """

    partition: TopicPartition
    topic_id: str | None
    parts: tuple[Part, ...]
    log_start_offset: int
    known_end: int | None
    next_end: int | None
    epochs: tuple[EpochEntry, ...]
    snapshot: SnapshotObject | None
    complete_ms: int
    empty_segments: tuple[int, ...]
    damage: tuple[Damage, ...]
    gaps: tuple[Gap, ...] = ()
    known_cleaned_to: int = 0
    cleaned_to: int = 0

    @property
    def read_ms(self) -> int:
        """When the last of both runs knew the partition."""
        return self.complete_ms + CHECKPOINT_AGE_MS

    @property
    def size_bytes(self) -> int:
        """The bytes of all pieces."""
        return sum(part.piece.size_bytes for part in self.parts)


def view_of(known: PartitionState | None, following: PartitionState | None) -> PartitionView:
    """The log that two runs know; one of both may be missing. `following` is left out if its log is not a
    continuation: the topic was created anew, or the log was truncated.
    """
    if known is None:
        if following is None:
            raise ValueError("no state")
        return _view(following, following, None, following.end_offset, _whole(following))
    if following is None or not _continues(known, following):
        return _view(known, known, known.end_offset, None, _whole(known))
    base = max((piece.segment_base_offset for piece in known.pieces), default=0)
    # The checkpoint of a broker that has crashed is older than what an earlier run has copied.
    copied_end = max((piece.end_offset for piece in known.pieces), default=known.end_offset)
    end = max(copied_end, known.end_offset)
    # The segments of another replica may begin within the last one that is known: it goes on, if it may.
    ends = {piece.segment_base_offset: piece.end_offset for piece in following.pieces}
    bases = {
        each: each if each >= end else base if fits_segment(base, last) else end
        for each, last in ends.items()
    }
    rest = [
        Part(piece, bases[piece.segment_base_offset], end)
        for piece in following.pieces
        if piece.end_offset > end
    ]
    return _view(known, following, known.end_offset, following.end_offset, [*_whole(known), *rest])


def _whole(state: PartitionState) -> list[Part]:
    return [Part(piece, piece.segment_base_offset, 0) for piece in state.pieces]


def _view(
    first: PartitionState,
    last: PartitionState,
    known_end: int | None,
    next_end: int | None,
    parts: Iterable[Part],
) -> PartitionView:
    epochs = LeaderEpochs(first.epochs)
    for entry in last.epochs:
        epochs.assign_newer(entry)
    return PartitionView(
        first.partition,
        first.topic_id,
        tuple(parts),
        first.log_start_offset,
        known_end,
        next_end,
        epochs.entries,
        first.snapshot,
        last.read_time_ms - CHECKPOINT_AGE_MS,
        first.empty_segments
        if last is first
        else tuple(
            sorted(
                {*first.empty_segments, *(each for each in last.empty_segments if each > first.end_offset)}
            )
        ),
        first.damage if last is first else (*first.damage, *_after(last.damage, first.end_offset)),
        known_cleaned_to=0 if known_end is None else _cleaned_to(first),
        cleaned_to=0 if next_end is None else _cleaned_to(last),
    )


def _cleaned_to(state: PartitionState) -> int:
    """Up to where the log of a state may have been compacted: to the active segment, if its bounds are known.
    Over the wire they are not, nor if the pieces are those of several replicas.
    """
    bases = {piece.segment_base_offset for piece in state.pieces}
    if bases <= {seen.base_offset for seen in state.seen if seen.end_bytes}:
        return max((*bases, *state.empty_segments), default=0)
    return state.end_offset


def _after(damage: Iterable[Damage], offset: int) -> list[Damage]:
    return [each for each in damage if each.end_offset is None or each.end_offset > offset]


def _continues(known: PartitionState, following: PartitionState) -> bool:
    if following.topic_id != known.topic_id or following.end_offset < known.end_offset:
        return False
    last = known.end_offset - 1
    one, other = _epoch_at(known, last), _epoch_at(following, last)
    return one is None or other is None or one == other


def _epoch_at(state: PartitionState, offset: int) -> int | None:
    """The leader epoch of a batch at an offset, None if it is not known."""
    started = [entry.epoch for entry in state.epochs if entry.start_offset <= offset]
    return started[-1] if started else None
