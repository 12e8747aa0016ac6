"""Divides extents of segments into splits of about the target size, at the starts of valid batches.

The batches are found through the offset index. Without a usable index, the headers of a segment are walked,
but only if segments are local and few; otherwise the segment becomes one split.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from klog.formats.errors import KlogError
from klog.formats.names import TopicPartition
from klog.replicas.files import is_remote
from klog.replicas.open_segment import OpenSegment
from klog.replicas.replica_contents import Extent, map_segments
from klog.replicas.replica_files import SegmentFile
from klog.replicas.splits import FallbackSegment, Split
from klog.replicas.transactions import Transactions
from klog.storage.reading.position_search import BatchPosition

MAX_WALKED_SEGMENTS: Final = 64
"""If more segments than this are to be divided, those without an index stay whole: there are enough
splits."""


class Piece(NamedTuple):
    """The requested offsets of one extent, from `first_offset` to before `end_offset`, and their position.

    `transactions` is None with read_uncommitted. `fallbacks` are extents of other replicas with the same
    offsets.
    """

    partition: TopicPartition
    extent: Extent
    first_offset: int
    end_offset: int
    transactions: Transactions | None
    fallbacks: tuple[Extent, ...] = ()
    start: BatchPosition = BatchPosition(0, 0)
    end_bytes: int = 0

    @property
    def segment(self) -> SegmentFile:
        """The segment of the extent."""
        return self.extent.segment

    @property
    def length_bytes(self) -> int:
        """Bytes to read; of a gzipped copy its plain bytes."""
        return self.end_bytes - self.start.position_bytes


class _Cut(NamedTuple):
    piece: Piece
    parts: int
    may_walk: bool

    @property
    def segment(self) -> SegmentFile:
        return self.piece.segment


def make_splits(
    pieces: Sequence[Piece], target_bytes: int, min_partitions: int | None, problems: list[KlogError]
) -> list[Split]:
    """The splits of all pieces, numbered in order of topic, partition and offset; the longest come first.

    There are at least `min_partitions` splits if there are that many batches to divide at. A segment that
    cannot be read is added to `problems` and becomes one split; the reader of that split reports it.
    """
    placed = map_segments(narrowed, pieces)
    total_bytes = max(1, sum(piece.length_bytes for piece in placed))
    wanted = [_parts(piece, target_bytes, (min_partitions or 1) / total_bytes) for piece in placed]
    few = sum(parts > 1 for parts in wanted) <= MAX_WALKED_SEGMENTS
    cuts = [
        _Cut(piece, parts, may_walk=few and not is_remote(piece.segment.log))
        for piece, parts in zip(placed, wanted, strict=True)
    ]
    splits: list[Split] = []
    for cut, positions in zip(cuts, map_segments(_cut_positions, cuts), strict=True):
        if isinstance(positions, KlogError):
            problems.append(positions)
        splits += _splits(cut.piece, () if isinstance(positions, KlogError) else positions)
    numbered = [replace(split, number=number) for number, split in enumerate(splits)]
    return sorted(numbered, key=lambda split: (-split.length_bytes, split.number))


def _parts(piece: Piece, target_bytes: int, splits_per_byte: float) -> int:
    if piece.segment.gzipped:
        return 1
    least = piece.length_bytes * splits_per_byte
    return max(1, round(piece.length_bytes / target_bytes), int(least) + (least > int(least)))


def narrowed(piece: Piece) -> Piece:
    """The piece with its position in the segment, as narrow as the index allows."""
    start = BatchPosition(0, piece.segment.base_offset)
    end_bytes = piece.extent.end.end_bytes
    past_start = piece.first_offset > piece.segment.base_offset
    before_end = piece.end_offset < piece.extent.end.end_offset
    if not piece.segment.gzipped and (past_start or before_end):
        try:
            with OpenSegment(piece.segment) as opened:
                start = opened.search.at_or_before_offset(piece.first_offset) if past_start else start
                following = opened.search.at_or_after_offset(piece.end_offset) if before_end else None
        except KlogError:
            following = None  # the whole segment is read instead, and its reader reports the error
        end_bytes = end_bytes if following is None else min(end_bytes, following.position_bytes)
    return piece._replace(start=start, end_bytes=max(end_bytes, start.position_bytes))


def _cut_positions(cut: _Cut) -> list[BatchPosition] | KlogError:
    """The batches at which a piece is divided."""
    piece = cut.piece
    if cut.parts < 2:
        return []
    try:
        with OpenSegment(piece.segment) as opened:
            if not opened.search.has_offset_index and not cut.may_walk:
                return []
            positions = opened.cuts(piece.start, piece.end_bytes, cut.parts)
    except KlogError as error:
        return error.at(piece.segment.log)
    return [place for place in positions if piece.first_offset < place.offset < piece.end_offset]


def _splits(piece: Piece, positions: Sequence[BatchPosition]) -> list[Split]:
    starts = [BatchPosition(piece.start.position_bytes, piece.first_offset), *positions]
    ends = [*starts[1:], BatchPosition(piece.end_bytes, piece.end_offset)]
    return [
        Split(
            number=0,
            topic=piece.partition.topic,
            partition=piece.partition.partition,
            file=piece.segment.log,
            base_offset=piece.segment.base_offset,
            start_bytes=start.position_bytes,
            end_bytes=end.position_bytes,
            first_offset=start.offset,
            end_offset=end.offset,
            aborted=()
            if piece.transactions is None
            else piece.transactions.aborted_in(start.offset, end.offset),
            fallbacks=tuple(_fallbacks(piece, start.offset, end.offset)),
        )
        for start, end in zip(starts, ends, strict=True)
    ]


def _fallbacks(piece: Piece, first_offset: int, end_offset: int) -> Iterator[FallbackSegment]:
    """Yield the segments of other replicas that hold some of these offsets."""
    for extent in piece.fallbacks:
        overlaps = extent.first_offset < end_offset and first_offset < extent.end_offset
        if overlaps and extent.segment.log != piece.segment.log:
            yield FallbackSegment(
                extent.segment.log,
                extent.segment.base_offset,
                extent.end.end_bytes,
                extent.first_offset,
                extent.end_offset,
            )
