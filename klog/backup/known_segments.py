"""What a backup has of the segments of a replica, so that only the rest is read: of those that it has seen
itself, or of those of another replica.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from klog.backup.matching import Anew, Behind, Kept, LogFiles, compared
from klog.backup.model import Damage, PartitionState, Piece, SegmentSeen, fits_segment
from klog.backup.scanning import Listed
from klog.replicas.files import base_name
from klog.replicas.replica_files import Replica, SegmentFile

_MOST_JOINED_BYTES: Final = 1 << 30


@dataclass(frozen=True, slots=True)
class KnownSegment:
    """What the backup has of one segment."""

    pieces: tuple[Piece, ...]
    seen: SegmentSeen
    damage: tuple[Damage, ...] = ()


@dataclass(frozen=True, slots=True)
class Known:
    """What the backup has of the segments of a replica, by base offset.

    If `kept` is not None, its pieces are in segments of another replica, and only those from `kept.segment`
    on are looked at. The log begins at `log_start_offset` or later.
    """

    segments: Mapping[int, KnownSegment] = field(default_factory=dict)
    kept: Kept | None = None
    log_start_offset: int = 0

    def pieces(self) -> tuple[Piece, ...]:
        """Those before the segments."""
        return () if self.kept is None else self.kept.pieces


def known_segments(
    listed: Listed,
    replica: Replica,
    log: LogFiles,
    previous: PartitionState | None,
    log_start: int,
    bound: int,
) -> Known | Behind:
    """What a state has of the log of a replica. Raises `StorageError`."""
    if previous is None or previous.topic_id != replica.topic_id:
        return Known()
    is_own = listed.log_directory.source.has(previous) and _has_files_of(previous)
    if is_own and (previous.topic_id is None or _goes_on(listed, previous, bound)):
        return Known(_segments_before(previous))
    found = compared(previous, replica, log, log_start, bound)
    if isinstance(found, Behind):
        return found
    if is_own:
        return Known(_segments_before(previous))
    if isinstance(found, Anew):
        return Known(log_start_offset=found.log_start_offset)
    stats = {file.entry.path: file.stat for file in listed.files}
    before = _in_own_segments(found, log.segments, stats)
    if before is not None:
        return Known(before, None, previous.log_start_offset)
    own = KnownSegment((), _seen_up_to(found, stats[found.segment.log]))
    return Known({found.segment.base_offset: own}, found, previous.log_start_offset)


def _goes_on(listed: Listed, state: PartitionState, bound: int) -> bool:
    """Whether the last segment of a state is there still, and no shorter: the log has not lost its end."""
    sizes: dict[tuple[int, ...], int] = {file.stat[3:]: file.stat[0] for file in listed.segments()}
    last = state.seen[-1] if state.seen else None
    return (
        last is not None
        and bound >= state.end_offset
        and sizes.get(tuple(last.stat[3:]), -1) >= last.end_bytes
    )


def _has_files_of(state: PartitionState) -> bool:
    """Whether all segments of a state are files of the replica that it was read from."""
    return {piece.segment_base_offset for piece in state.pieces} <= {
        seen.base_offset for seen in state.seen if seen.end_bytes
    }


def _in_own_segments(
    kept: Kept, segments: Sequence[SegmentFile], stats: Mapping[str, tuple[int, ...]]
) -> dict[int, KnownSegment] | None:
    """The pieces by segments of the replica, None if its segments have other bounds."""
    by_base: dict[int, list[Piece]] = {}
    for piece in kept.pieces:
        by_base.setdefault(piece.segment_base_offset, []).append(piece)
    last = kept.segment.base_offset
    own = [segment for segment in segments if min(by_base) <= segment.base_offset <= last]
    found = {}
    for segment in own:
        pieces = tuple(by_base.pop(segment.base_offset, ()))
        end_bytes = kept.end_bytes if segment == kept.segment else segment.size_bytes
        if not pieces or pieces[-1].start_bytes + pieces[-1].size_bytes != end_bytes:
            return None
        stat = stats[segment.log]
        seen = SegmentSeen(segment.base_offset, stat, end_bytes, True)
        found[segment.base_offset] = KnownSegment(
            pieces, _seen_up_to(kept, stat) if segment == kept.segment else seen
        )
    return None if by_base else found


def _seen_up_to(kept: Kept, stat: tuple[int, ...]) -> SegmentSeen:
    """The segment in which the log goes on: what follows in it is to be read."""
    same_file = (0, 0, 0, *stat[3:])
    return SegmentSeen(
        kept.segment.base_offset,
        same_file,
        kept.end_bytes,
        False,
        kept.last_batch_bytes,
        kept.last_batch_header,
    )


def place_after(kept: Kept, segment: SegmentFile, end_offset: int) -> tuple[int, int]:
    """The segment of the pieces that follow the kept ones, and how far their positions are from those in the
    replica's file, whose log ends at `end_offset` at most. A segment that would become too large ends.
    """
    last = kept.pieces[-1]
    end_bytes = last.start_bytes + last.size_bytes
    size_bytes = end_bytes + segment.size_bytes - kept.end_bytes
    if size_bytes <= _MOST_JOINED_BYTES and fits_segment(last.segment_base_offset, end_offset):
        return last.segment_base_offset, end_bytes - kept.end_bytes
    return last.end_offset, -kept.end_bytes


def last_seen(pieces: Sequence[Piece], copied: Mapping[int, KnownSegment]) -> tuple[SegmentSeen, ...]:
    """The last batch, of a state whose segments are not those of the replica."""
    last = [each.seen for each in copied.values() if each.seen.last_batch_header][-1:]
    base = pieces[-1].segment_base_offset
    return tuple(SegmentSeen(base, (), 0, False, 0, each.last_batch_header) for each in last)


def _segments_before(previous: PartitionState) -> dict[int, KnownSegment]:
    pieces = previous.segments()
    return {
        seen.base_offset: KnownSegment(
            pieces.get(seen.base_offset, ()),
            seen,
            tuple(each for each in previous.damage if _is_of(each, seen.base_offset)),
        )
        for seen in previous.seen
    }


def _is_of(damage: Damage, base_offset: int) -> bool:
    """Whether damage is in a segment. What is missing at the end of the log is found out anew each time."""
    return damage.position_bytes is not None and base_name(damage.file).startswith(f"{base_offset:020d}.")
