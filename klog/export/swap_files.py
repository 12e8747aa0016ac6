"""Segments of a replica as Kafka would have them after a start: complete `.swap` files in their places.

Rules: the first passes of Kafka's `LogLoader`. A `.swap` at or above the first `.cleaned` belongs to a split
of segments that did not end, and goes; the segments that start in the range of the other `.swap` files were
cleaned into them, and go. Decides over listings; of a `.swap` its end is looked at.
"""

from __future__ import annotations

from klog.export.open_segment import OpenSegment
from klog.export.replica_files import Replica, SegmentFile
from klog.formats.errors import StorageError


def current_segments(replica: Replica, skipped: list[tuple[str, str]]) -> tuple[SegmentFile, ...]:
    """The segments that count, by base offset; what does not is added to `skipped` with the reason.

    Raises `StorageError` where a `.swap` cannot be read: then it is unknown what it replaces.
    """
    swaps = []
    for swap in replica.swaps:
        if replica.first_cleaned is not None and swap.base_offset >= replica.first_cleaned:
            skipped.append((swap.log, "part of a segment split that did not end"))
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
    try:
        with OpenSegment(swap) as opened:
            return opened.end().end_offset
    except StorageError as error:
        raise error.at(swap.log) from None
