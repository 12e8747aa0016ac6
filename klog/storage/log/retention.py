"""Decides what retention deletes of a log, by log start offset, size and time, and deletes it.

Rules: Kafka's `UnifiedLog.deleteOldSegments`. The oldest segments are deleted first, never beyond the high
watermark, and never the last segment while it is empty. Of a log that is only compacted, only the segments
below its log start offset are deleted. The decisions are pure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from klog.config.topic import TopicConfig
from klog.storage.log.partition_log import PartitionLog


class Extent(NamedTuple):
    """What decides about one segment; `end_offset` is where the next one starts or the log ends."""

    base_offset: int
    end_offset: int
    size: int
    largest_timestamp: int


def deletable(
    extents: Sequence[Extent], config: TopicConfig, *, log_start_offset: int, high_watermark: int, now_ms: int
) -> int:
    """How many of the oldest segments to delete."""
    count = _below_start(extents, log_start_offset, high_watermark)
    if config.delete:
        # Each rule applies to the segments that the rules before it have left.
        count += _above_size(extents[count:], config.retention_bytes, high_watermark)
        count += _too_old(extents[count:], config.retention_ms, high_watermark, now_ms)
    return count


def _leading(extents: Sequence[Extent], high_watermark: int, is_old: Callable[[int], bool]) -> int:
    for number, extent in enumerate(extents):
        last_and_empty = number == len(extents) - 1 and not extent.size
        if last_and_empty or extent.end_offset > high_watermark or not is_old(number):
            return number
    return len(extents)


def _below_start(extents: Sequence[Extent], log_start_offset: int, high_watermark: int) -> int:
    last = len(extents) - 1
    return _leading(
        extents,
        high_watermark,
        lambda number: number < last and extents[number].end_offset <= log_start_offset,
    )


def _above_size(extents: Sequence[Extent], retention_bytes: int, high_watermark: int) -> int:
    excess = sum(extent.size for extent in extents) - retention_bytes
    if retention_bytes < 0 or excess < 0:
        return 0

    def exceeds(number: int) -> bool:
        nonlocal excess
        if excess < extents[number].size:
            return False
        excess -= extents[number].size
        return True

    return _leading(extents, high_watermark, exceeds)


def _too_old(extents: Sequence[Extent], retention_ms: int, high_watermark: int, now_ms: int) -> int:
    if retention_ms < 0:
        return 0
    return _leading(
        extents, high_watermark, lambda number: now_ms - extents[number].largest_timestamp > retention_ms
    )


def apply_retention(log: PartitionLog, now_ms: int) -> int:
    """Delete old segments of a log; returns how many. Raises `OSError`, `StorageError`."""
    with log.lock:
        end = log.log_end_offset
        extents = [
            Extent(
                segment.base_offset,
                log.segments.end_of(number, end),
                segment.size,
                segment.largest_timestamp(),
            )
            for number, segment in enumerate(log.segments)
        ]
        count = deletable(
            extents,
            log.config,
            log_start_offset=log.log_start_offset,
            high_watermark=log.high_watermark,
            now_ms=now_ms,
        )
        log.delete_oldest(count)
        return count
