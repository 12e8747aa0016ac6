"""The answer to ListOffsets version 0: the base offsets of segments, by the time of their last write.

Rules: Kafka's `KafkaApis.handleListOffsetRequestV0`, `UnifiedLog.legacyFetchOffsetsBefore`. librdkafka before
1.9 asks so for a partition's watermarks.
"""

from __future__ import annotations

from collections.abc import Sequence

from klog.protocol.offset_times import EARLIEST, LATEST
from klog.storage.log.partition_log import PartitionLog


def newest_starts(log: PartitionLog, timestamp: int, count: int, now_ms: int) -> tuple[int, ...]:
    """Where the newest segments start that were last written to by `timestamp`: `count`, largest first.

    The log's end counts as the start of one more, written to now, unless the last segment is empty. The
    caller holds the log's lock. Raises `OSError`.
    """
    starts = [(max(each.base_offset, log.log_start_offset), each.modified_ms()) for each in log.segments]
    if log.segments[-1].size:
        starts.append((log.log_end_offset, now_ms))
    if timestamp == LATEST:
        known = len(starts)
    elif timestamp == EARLIEST:
        known = 1
    else:
        known = max(
            (n for n, (_, modified_ms) in enumerate(starts, 1) if modified_ms <= timestamp), default=0
        )
    return tuple(sorted((offset for offset, _ in starts[max(known - count, 0) : known]), reverse=True))


def as_consumers_see(starts: Sequence[int], high_watermark: int) -> tuple[int, ...]:
    """`starts` (largest first) with the high watermark in the place of all that lie beyond it."""
    visible = tuple(offset for offset in starts if offset <= high_watermark)
    return visible if len(visible) == len(starts) else (high_watermark, *visible)
