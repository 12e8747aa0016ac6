"""Finds out which offsets a replica holds: those of each segment up to its last valid batch.

This takes one small read for each segment. A segment that cannot be opened is lost, and so are bytes after
the last valid batch. `klog.replicas.replicas` looks for them in other replicas.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar

from klog.formats.errors import KlogError, StorageError, placed
from klog.formats.names import TopicPartition
from klog.replicas.concurrency import map_concurrently
from klog.replicas.files import base_name, is_remote
from klog.replicas.open_segment import OpenSegment, SegmentEnd
from klog.replicas.recorded_ends import is_unchanged
from klog.replicas.replica_files import Found, Replica, SegmentFile
from klog.replicas.splits import LostRange

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


class Extent(NamedTuple):
    """Offsets from `first_offset` to before `end_offset` in one segment of the replica in `directory`."""

    segment: SegmentFile
    end: SegmentEnd
    first_offset: int
    end_offset: int
    directory: str


@dataclass(frozen=True, slots=True)
class ReplicaContents:
    """A replica and the extents of its segments, which ascend and do not overlap.

    `lost` are the ranges that are lost unless another replica has them; their `end_offset` is None for bytes
    after the log's end.
    """

    replica: Replica
    extents: tuple[Extent, ...]
    lost: tuple[LostRange, ...] = ()

    @property
    def first_offset(self) -> int:
        """Base offset of the first segment, 0 if there is none."""
        return self.extents[0].first_offset if self.extents else 0

    @property
    def end_offset(self) -> int:
        """The offset after the last record, which is the base offset of an empty last segment."""
        ends = [extent.end_offset for extent in self.extents[-1:]]
        last = (*self.replica.segments[-1:], *self.replica.without_log[-1:])
        return max([*ends, *(segment.base_offset for segment in last)], default=0)

    @property
    def leader_epoch(self) -> int:
        """The highest leader epoch that the replica knows, -1 for none.

        The epoch of a leader that wrote nothing counts too: followers truncate their logs to its end.
        """
        epochs = [entry.epoch for entry in self.replica.epochs[-1:]]
        return max([*epochs, *(extent.end.leader_epoch for extent in self.extents[-1:])], default=-1)

    @property
    def log_start_offset(self) -> int:
        """The first offset that is not deleted."""
        firsts = (*self.replica.segments[:1], *self.replica.without_log[:1])
        first = min((segment.base_offset for segment in firsts), default=0)
        return max(first, self.replica.log_start_offset or 0)


def read_contents(replica: Replica, found: Found, from_offset: int = 0) -> ReplicaContents:
    """Read which offsets the segments of a replica hold. Ignored and unreadable files are added to `found`.

    Segments that end before `from_offset` are not read: they count as complete.
    """
    try:
        segments = current_segments(replica, found.skipped)
    except StorageError as error:
        found.problems.append(error)
        segments = replica.segments
    followers = [*(segment.base_offset for segment in segments[1:]), None][: len(segments)]
    with_followers = list(map(_Listed, segments, followers))
    wanted = [one for one in with_followers if one.following is None or one.following > from_offset]
    ends = dict(zip((one.segment for one in wanted), map_segments(_end, wanted), strict=True))
    extents: list[Extent] = []
    lost: list[LostRange] = []
    cut_off: list[LostRange] = []
    for segment, following in with_followers:
        size = segment.size_bytes
        end = ends.get(segment) or SegmentEnd(following or segment.base_offset, size, size)
        base = segment.base_offset
        if isinstance(end, KlogError):
            found.problems.append(end)
            lost.append(_lost(replica.partition, segment.log, None, base, following, end.what))
            continue
        # If segments overlap, a broker reads the common offsets from the later one.
        end_offset = end.end_offset if following is None else min(end.end_offset, following)
        complete = following is not None and end_offset >= following
        if end.rest_problem and not complete:
            lost.append(_lost(replica.partition, segment.log, end, end_offset, following, end.rest_problem))
        elif end.indexed_end_offset > end_offset and not complete:
            cut_off.append(_cut_off(replica.partition, segment, end, end_offset, following))
        if base < end_offset:
            extents.append(Extent(segment, end, base, end_offset, replica.directory))
    cut_off += _without_log(replica, segments)
    if cut_off and is_unchanged(replica):
        lost = sorted([*lost, *cut_off], key=lambda one: one.first_offset or 0)
    elif cut_off:
        replica = replace(replica, without_log=())
    return ReplicaContents(replace(replica, segments=segments), tuple(extents), tuple(lost))


class _Listed(NamedTuple):
    """A segment and the base offset of the next one, None if it is the last."""

    segment: SegmentFile
    following: int | None


def _end(listed: _Listed) -> SegmentEnd | KlogError:
    segment, following = listed
    try:
        with OpenSegment(segment) as opened:
            end = opened.end()
            if end.rest_problem or following == end.end_offset or _is_dear(segment):
                return end
            return replace(end, indexed_end_offset=opened.search.indexed_end_offset())
    except KlogError as error:
        return error.at(segment.log)


def _is_dear(segment: SegmentFile) -> bool:
    """Whether looking into the indexes takes requests, and the segment has records that speak for itself."""
    return is_remote(segment.log) and segment.size_bytes > 0


def _cut_off(
    partition: TopicPartition, segment: SegmentFile, end: SegmentEnd, first_offset: int, following: int | None
) -> LostRange:
    """The records that the indexes of a segment name, after the last one that it has."""
    last = end.indexed_end_offset - 1
    what = "is empty" if not segment.size_bytes else f"ends at offset {first_offset - 1}"
    reason = f"the segment {what}, but its index goes on to offset {last}: it was cut off"
    end_offset = end.indexed_end_offset if following is None else following
    return _lost(partition, segment.log, end, first_offset, end_offset, reason)


def _without_log(replica: Replica, segments: Sequence[SegmentFile]) -> Iterator[LostRange]:
    """The segments that are missing, by their indexes."""
    bases = sorted(segment.base_offset for segment in (*segments, *replica.without_log))
    for missing in replica.without_log:
        following = next((base for base in bases if base > missing.base_offset), None)
        reason = f"a file is missing: {base_name(missing.log)} has no .log beside it"
        yield _lost(replica.partition, replica.directory, None, missing.base_offset, following, reason)


def _lost(
    partition: TopicPartition,
    file: str,
    end: SegmentEnd | None,
    first_offset: int,
    end_offset: int | None,
    reason: str,
) -> LostRange:
    start_bytes = None if end is None else end.end_bytes
    end_bytes = None if end is None else end.rest_bytes
    return LostRange(*partition, file, start_bytes, end_bytes, first_offset, end_offset, reason)


def map_segments(function: Callable[[_Item], _Result], items: Sequence[_Item]) -> list[_Result]:
    """The results of `function` for segments, or items with a segment; for remote ones concurrently."""
    return map_concurrently(function, items, remote=any(is_remote(_path(item)) for item in items))


def _path(item: object) -> str:
    segment = getattr(item, "segment", item)
    return segment.log if isinstance(segment, SegmentFile) else ""


# Decides which segments of a replica are current: complete `.swap` files replace the segments they cover.
# Rules: the first passes of Kafka's `LogLoader`, which does this when a broker starts. A `.swap` at or above
# the first `.cleaned` belongs to an unfinished split of a segment and is ignored. The segments that start in
# the range of the other `.swap` files were cleaned into them and are ignored too. Only the end of a `.swap`
# is read.


def current_segments(replica: Replica, skipped: list[tuple[str, str]]) -> tuple[SegmentFile, ...]:
    """The current segments, by base offset; the others are added to `skipped` with the reason.

    Raises `StorageError` if a `.swap` cannot be read: then it is not known which segments it replaces.
    """
    swaps = []
    for swap in replica.swaps:
        if replica.first_cleaned is not None and swap.base_offset >= replica.first_cleaned:
            skipped.append((swap.log, "part of an unfinished segment split"))
        else:
            swaps.append(swap)
    if not swaps:
        return replica.segments
    low = min(swap.base_offset for swap in swaps)
    high = max(_end_offset(swap) for swap in swaps)
    kept = {swap.base_offset: swap for swap in swaps}
    for segment in replica.segments:
        if low <= segment.base_offset < high or segment.base_offset in kept:
            skipped.append((segment.log, "is replaced by a .swap file"))
        else:
            kept[segment.base_offset] = segment
    return tuple(kept[base] for base in sorted(kept))


def _end_offset(swap: SegmentFile) -> int:
    with placed(swap.log), OpenSegment(swap) as opened:
        return opened.end().end_offset
