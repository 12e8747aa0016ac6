"""Reads the damaged offsets of a split from other replicas.

The planner knows which replicas agree about a split's offsets. Damage in the chosen one shows only when it is
read. Then the missing offsets are read from the other replicas, and only those that none of them has are
lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from klog.export.open_segment import OpenSegment
from klog.export.replica_files import SegmentFile
from klog.export.splits import FallbackSegment, LostRange, Split
from klog.formats.constants import INT64_MAX
from klog.formats.errors import CorruptRecordError, KlogError

if TYPE_CHECKING:
    import pyarrow as pa

ReadSplit = Callable[[Split, Callable[[LostRange], None]], "Iterator[pa.RecordBatch]"]
"""Reads one split without its fallbacks, and reports the ranges that it cannot read."""


def read_with_fallbacks(
    read: ReadSplit,
    split: Split,
    on_lost: Callable[[LostRange], None],
    on_repaired: Callable[[LostRange], None],
    *,
    fail: bool,
) -> Iterator[pa.RecordBatch]:
    """Yield what `read` yields for a split, then the missing offsets from its fallbacks.

    Ranges that no fallback has go to `on_lost`, or with `fail` are raised as `CorruptRecordError`. Ranges
    that a fallback has, at least in part, go to `on_repaired`.
    """
    lost: list[LostRange] = []
    yield from read(split, lost.append)
    for one in lost:
        left = [one]
        for fallback in split.fallbacks:
            missing: list[LostRange] = []
            for part in left:
                yield from _from_fallback(read, split, fallback, part, missing.append)
            left = missing
        if left != [one]:
            on_repaired(one)
        for part in left:
            if fail:
                raise CorruptRecordError(part.reason, file=part.file, position_bytes=part.start_bytes)
            on_lost(part)


def _from_fallback(
    read: ReadSplit,
    split: Split,
    fallback: FallbackSegment,
    lost: LostRange,
    on_lost: Callable[[LostRange], None],
) -> Iterator[pa.RecordBatch]:
    """Yield the records of a lost range that a fallback has; offsets that it lacks go to `on_lost`."""
    first = split.first_offset if lost.first_offset is None else lost.first_offset
    end = split.end_offset if lost.end_offset is None else lost.end_offset
    low, high = max(first, fallback.first_offset), min(end, fallback.end_offset)
    if low >= high:
        on_lost(lost)
        return
    for gap_first, gap_end in ((first, low), (high, end)):
        if gap_first < gap_end:
            on_lost(replace(lost, first_offset=gap_first, end_offset=gap_end))

    def report_missing(other: LostRange) -> None:
        # It is reported with the file and position of the chosen replica.
        on_lost(replace(lost, first_offset=other.first_offset, end_offset=other.end_offset))

    yield from read(_narrowed(split, fallback, low, high), report_missing)


def _narrowed(split: Split, fallback: FallbackSegment, first_offset: int, end_offset: int) -> Split:
    """The part of a fallback segment that holds these offsets, as a split."""
    start_bytes, end_bytes = 0, fallback.end_bytes
    index = fallback.file.removesuffix(".log") + ".index" if fallback.file.endswith(".log") else None
    try:
        with OpenSegment(
            SegmentFile(fallback.base_offset, fallback.file, fallback.end_bytes, index)
        ) as opened:
            start_bytes = opened.search.at_or_before_offset(first_offset).position_bytes
            following = opened.search.at_or_after_offset(min(end_offset, INT64_MAX))
    except KlogError:
        following = None  # whoever reads it reports the error
    if following is not None:
        end_bytes = min(end_bytes, following.position_bytes)
    return replace(
        split,
        file=fallback.file,
        base_offset=fallback.base_offset,
        start_bytes=start_bytes,
        end_bytes=end_bytes,
        first_offset=first_offset,
        end_offset=end_offset,
        fallbacks=(),
    )
