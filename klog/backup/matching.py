"""Finds what a replica has of the state that was read from another one, without reading it.

Replicas with the same leader epochs up to an offset have the same batches below it (KIP-101). The batch
before that offset is compared by its header, which has the checksum of its records. Each piece of the state
must begin with its first batch at its distance from there, so a replica that was compacted otherwise has
nothing in common. Topics with different ids have nothing in common either.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from itertools import accumulate
from typing import BinaryIO

from klog.backup.model import PartitionState, Piece
from klog.formats.checkpoints import EpochEntry
from klog.formats.constants import BATCH_HEADER_BYTES
from klog.replicas.files import open_input
from klog.replicas.open_segment import OpenSegment, SegmentEnd
from klog.replicas.replica_files import Replica, SegmentFile
from klog.storage.files.files import read_at
from klog.storage.reading.batch_search import header_at


@dataclass(frozen=True, slots=True)
class Kept:
    """The pieces of a state that a replica has, too, and where its log goes on: in `segment`, at `end_bytes`.
    The batch before that is at `last_batch_bytes`, and has this header (hex).
    """

    pieces: tuple[Piece, ...]
    segment: SegmentFile
    end_bytes: int
    last_batch_bytes: int
    last_batch_header: str


@dataclass(frozen=True, slots=True)
class Behind:
    """A replica whose log ends at `end_offset`, and that would follow the one that `state` was read from. It
    has `diverged` at an offset if it would have to truncate its log to it.
    """

    state: PartitionState
    end_offset: int
    diverged: int | None


@dataclass(frozen=True, slots=True)
class Anew:
    """A replica of which no piece of a state holds a part: it is read from `log_start_offset` on, or from its
    own start if that is higher. Another replica of the same log has deleted what is before; 0 if it is not
    known to be the same log.
    """

    log_start_offset: int


class NothingCommon(Enum):
    """Why two logs have no offset up to which they are the same by their leader epochs."""

    DIFFERENT = "their epochs differ where both have begun"
    UNKNOWN = "one of them has no epochs"


@dataclass(frozen=True)
class LogFiles:
    """The segments of a log, and where it ends."""

    segments: tuple[SegmentFile, ...]

    @cached_property
    def end(self) -> SegmentEnd:
        """Where its valid batches end; the last segment is opened for it once. Raises `StorageError`."""
        if not self.segments:
            return SegmentEnd(0, 0, 0)
        with OpenSegment(self.segments[-1]) as last:
            return last.end()


def compared(
    state: PartitionState, replica: Replica, log: LogFiles, log_start: int, bound: int
) -> Kept | Behind | Anew:
    """What a replica with these files, of whose log what is below `bound` is wanted, has of a state.

    Both are of one topic. Raises `StorageError`.
    """
    end, segments = log.end, log.segments
    end_offset = min(bound, end.end_offset)
    start_offset = max(log_start, state.log_start_offset)
    common = common_end((state.epochs, state.end_offset), (replica.epochs, end_offset), start_offset)
    epoch = end.leader_epoch if end.end_offset <= bound else -1
    is_behind = _rank(replica.epochs, end_offset, epoch) < _rank(state.epochs, state.end_offset)
    # Without ids a topic that was created again cannot be told from an old replica.
    if is_behind and state.topic_id is not None:
        same_to = start_offset if common is NothingCommon.DIFFERENT else common
        diverged = same_to if isinstance(same_to, int) and same_to < end_offset else None
        return Behind(state, end.end_offset, diverged)
    is_same_log = state.topic_id is not None and isinstance(common, int)
    anew = Anew(start_offset if is_same_log else 0)
    is_readable = not state.damage and not any(segment.gzipped for segment in segments)
    if is_behind or not isinstance(common, int) or not is_readable:
        return anew
    first = [piece.segment_base_offset for piece in state.pieces if piece.end_offset > start_offset][:1]
    pieces = [
        piece
        for piece in state.pieces
        if first and piece.segment_base_offset >= first[0] and piece.end_offset <= common
    ]
    return (_kept(state, pieces, segments) if pieces else None) or anew


def common_end(
    one: tuple[Sequence[EpochEntry], int], other: tuple[Sequence[EpochEntry], int], start_offset: int
) -> int | NothingCommon:
    """The offset up to which two logs are the same by their leader epochs, given with the ends of the logs.

    Both begin at or below `start_offset`.
    """
    # A broker writes down at once where the first epoch begins, and the log start offset later.
    start_offset = max(
        [start_offset, *(each.start_offset for epochs, _ in (one, other) for each in epochs[:1])]
    )
    (ours, our_end), (theirs, their_end) = (
        (_clipped(epochs, start_offset), end) for epochs, end in (one, other)
    )
    if not ours or not theirs:
        return NothingCommon.UNKNOWN
    equal = 0
    while equal < min(len(ours), len(theirs)) and ours[equal] == theirs[equal]:
        equal += 1
    if not equal:
        return NothingCommon.DIFFERENT
    return min(
        ours[equal].start_offset if equal < len(ours) else our_end,
        theirs[equal].start_offset if equal < len(theirs) else their_end,
    )


def _clipped(epochs: Sequence[EpochEntry], start_offset: int) -> list[EpochEntry]:
    """The epochs that reach beyond an offset: the start of the first one was moved when records were
    deleted."""
    below = [entry for entry in epochs if entry.start_offset <= start_offset]
    above = [entry for entry in epochs if entry.start_offset > start_offset]
    return [*(EpochEntry(entry.epoch, start_offset) for entry in below[-1:]), *above]


def _rank(epochs: Sequence[EpochEntry], end_offset: int, last_epoch: int = -1) -> tuple[int, int]:
    """Of two replicas the one with the higher rank is followed (`klog.replicas.replicas`). The epoch of a
    leader that has written nothing yet counts, too."""
    begun = [entry.epoch for entry in epochs if entry.start_offset <= end_offset]
    return max([*begun, last_epoch]), end_offset


def _kept(state: PartitionState, pieces: Sequence[Piece], segments: Sequence[SegmentFile]) -> Kept | None:
    end_offset = pieces[-1].end_offset
    at = bisect_right([segment.base_offset for segment in segments], end_offset - 1) - 1
    if at < 0:
        return None
    with OpenSegment(segments[at]) as opened:
        found = opened.batch_at(end_offset - 1, segments[at].size_bytes)
        if found is None or found.last_offset[0] != end_offset - 1:
            return None
        position, end_bytes = found.position[0], found.position[0] + found.size[0]
        header = read_at(opened.file, position, BATCH_HEADER_BYTES).hex()
    is_whole = pieces[-1] == state.pieces[-1]
    last_headers = [each.last_batch_header for each in state.seen if each.last_batch_header]
    if is_whole and last_headers[-1:] != [header]:
        return None
    if not is_whole and state.topic_id is None:
        return None
    if not _begin_alike(pieces, segments, at, end_bytes):
        return None
    return Kept(tuple(pieces), segments[at], end_bytes, position, header)


def _begin_alike(pieces: Sequence[Piece], segments: Sequence[SegmentFile], at: int, end_bytes: int) -> bool:
    """Whether each piece begins where the sizes of those after it say, before a position in a segment."""
    starts = [0, *accumulate(segment.size_bytes for segment in segments)]
    position = starts[at] + end_bytes
    with ExitStack() as stack:
        files: dict[int, BinaryIO] = {}
        for piece in reversed(pieces):
            position -= piece.size_bytes
            if position < 0:  # either the replica has deleted the beginning, or it was compacted
                return segments[0].base_offset > piece.first_offset
            index = bisect_right(starts, position) - 1
            if index not in files:
                files[index] = stack.enter_context(open_input(segments[index].log))
            found = header_at(files[index], position - starts[index])
            if not len(found) or found.base_offset[0] != piece.first_offset:
                return False
    return True
