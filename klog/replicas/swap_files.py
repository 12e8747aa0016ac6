"""Decides which segments of a replica are current: complete `.swap` files replace the segments they cover.

Rules: the first passes of Kafka's `LogLoader`, which does this when a broker starts. A `.swap` at or above
the first `.cleaned` belongs to an unfinished split of a segment and is ignored. The segments that start in
the range of the other `.swap` files were cleaned into them and are ignored too. Only the end of a `.swap` is
read.
"""

from __future__ import annotations

from klog.formats.errors import StorageError
from klog.replicas.open_segment import OpenSegment
from klog.replicas.replica_files import Replica, SegmentFile


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
    try:
        with OpenSegment(swap) as opened:
            return opened.end().end_offset
    except StorageError as error:
        raise error.at(swap.log) from None
