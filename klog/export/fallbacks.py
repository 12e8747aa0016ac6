"""Damage in one replica made up for by another: the offsets that a split cannot give, read from its
fallbacks.

The planner knows which replicas agree about a split's offsets, but not where the chosen one is damaged: that
turns out when it is read. Then the missing offsets are read from the others, and only what none of them can
give is lost.
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
"""Reads one split without its fallbacks, telling what it cannot give."""


def read_with_fallbacks(
    read: ReadSplit,
    split: Split,
    on_lost: Callable[[LostRange], None],
    on_repaired: Callable[[LostRange], None],
    *,
    fail: bool,
) -> Iterator[pa.RecordBatch]:
    """What `read` gives of a split, then what it could not give, from the fallbacks.

    What no fallback has is told to `on_lost`, or with `fail` raised as `CorruptRecordError`; what is damaged
    in the split and stands in a fallback, at least in part, to `on_repaired`.
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
    """The records of a lost range that a fallback has; what it has not goes to `on_lost`."""
    first = split.first_offset if lost.first_offset is None else lost.first_offset
    end = split.end_offset if lost.end_offset is None else lost.end_offset
    low, high = max(first, fallback.first_offset), min(end, fallback.end_offset)
    if low >= high:
        on_lost(lost)
        return
    for gap_first, gap_end in ((first, low), (high, end)):
        if gap_first < gap_end:
            on_lost(replace(lost, first_offset=gap_first, end_offset=gap_end))

    def not_there_either(other: LostRange) -> None:
        # Reported where it was missed first: that is the replica that counts.
        on_lost(replace(lost, first_offset=other.first_offset, end_offset=other.end_offset))

    yield from read(_narrowed(split, fallback, low, high), not_there_either)


def _narrowed(split: Split, fallback: FallbackSegment, first_offset: int, end_offset: int) -> Split:
    """The part of a fallback that holds these offsets, as a split."""
    start_bytes, end_bytes = 0, fallback.end_bytes
    index = fallback.file.removesuffix(".log") + ".index" if fallback.file.endswith(".log") else None
    try:
        with OpenSegment(
            SegmentFile(fallback.base_offset, fallback.file, fallback.end_bytes, index)
        ) as opened:
            start_bytes = opened.search.at_or_before_offset(first_offset).position_bytes
            behind = opened.search.at_or_after_offset(min(end_offset, INT64_MAX))
    except KlogError:
        behind = None  # reading it will tell
    if behind is not None:
        end_bytes = min(end_bytes, behind.position_bytes)
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
