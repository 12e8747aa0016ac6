"""Decides which part of a log can be cleaned, which log to clean next, and why others must wait.

Rules: Kafka's `LogCleanerManager` (`cleanableOffsets`, `calculateCleanableBytes`, `maxCompactionDelay`,
`grabFilthiestCompactedLog`) and `Cleaner.groupSegmentsBySize`; KIP-354 (maximum compaction lag).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from klog.formats.constants import INT32_MAX
from klog.storage.cleaner.view import LogView, SegmentView


class Limit(StrEnum):
    """The reason why the cleaner cannot clean beyond an offset."""

    ACTIVE_SEGMENT = "active segment"
    LAST_STABLE_OFFSET = "last stable offset"
    MIN_COMPACTION_LAG = "min.compaction.lag.ms"


class Reason(StrEnum):
    """Why a log is not cleaned now."""

    NOT_COMPACTED = "cleanup.policy has no compact"
    EMPTY = "log is empty"
    NOTHING_DIRTY = "nothing dirty below the active segment"
    HELD_BACK = "dirty part is held back"
    BELOW_RATIO = "dirty ratio is not above min.cleanable.dirty.ratio"
    BUSY = "cleaning is in progress or paused"
    UNCLEANABLE = "an earlier cleaning failed"


@dataclass(frozen=True, slots=True)
class DirtyLog:
    """The state of one compacted log. `first_uncleanable_offset` is the base offset of a segment.

    `reset_checkpoint` means that the checkpoint was outside of the log and must be set to
    `first_dirty_offset`. `compaction_delay_ms` is the time by which the maximum compaction lag is exceeded.
    """

    log: LogView
    first_dirty_offset: int
    first_uncleanable_offset: int
    clean_bytes: int
    cleanable_bytes: int
    limit: Limit
    compaction_delay_ms: int = 0
    reset_checkpoint: bool = False

    @property
    def total_bytes(self) -> int:
        """Clean and cleanable bytes; bytes above the limit are neither."""
        return self.clean_bytes + self.cleanable_bytes

    @property
    def ratio(self) -> float:
        """The dirty part of the log, from 0 to 1."""
        return self.cleanable_bytes / self.total_bytes if self.total_bytes else 0.0

    @property
    def overdue(self) -> bool:
        """Whether the maximum compaction lag requires a cleaning at any ratio."""
        return self.compaction_delay_ms > 0 and self.cleanable_bytes > 0

    @property
    def reason(self) -> Reason | None:
        """Why it is not cleaned now, None if it can be."""
        config = self.log.config
        if not config.compact:
            return Reason.NOT_COMPACTED
        if not self.log.size_bytes:
            return Reason.EMPTY
        if not self.cleanable_bytes:
            held_back = self.limit is not Limit.ACTIVE_SEGMENT
            return Reason.HELD_BACK if held_back else Reason.NOTHING_DIRTY
        if self.overdue or self.ratio > config.min_cleanable_dirty_ratio:
            return None
        return Reason.BELOW_RATIO


def dirty_log(log: LogView, checkpoint: int | None, now_ms: int) -> DirtyLog:
    """Which parts of `log` are clean, dirty and cleanable. `checkpoint` is its cleaner offset (None: it has
    none).
    """
    start = log.log_start_offset
    first_dirty = start if checkpoint is None else checkpoint
    reset = not start <= first_dirty <= log.log_end_offset
    if reset:
        first_dirty = start
    end, limit = _first_uncleanable(log, first_dirty, now_ms)
    # The range ends with a whole segment.
    inactive = log.inactive_from(max(first_dirty, end))
    first_uncleanable = inactive[0].base_offset if inactive else log.active.base_offset
    cleanable = log.between(min(first_dirty, first_uncleanable), first_uncleanable)
    return DirtyLog(
        log,
        first_dirty,
        first_uncleanable,
        clean_bytes=sum(one.size_bytes for one in log.segments if one.base_offset < first_dirty),
        cleanable_bytes=sum(one.size_bytes for one in cleanable),
        limit=limit,
        compaction_delay_ms=_compaction_delay_ms(log, first_dirty, now_ms),
        reset_checkpoint=reset,
    )


def _first_uncleanable(log: LogView, first_dirty_offset: int, now_ms: int) -> tuple[int, Limit]:
    limits = [
        (log.active.base_offset, Limit.ACTIVE_SEGMENT),
        (log.last_stable_offset, Limit.LAST_STABLE_OFFSET),
    ]
    lag_ms = log.config.min_compaction_lag_ms
    if lag_ms > 0:
        limits += [
            (segment.base_offset, Limit.MIN_COMPACTION_LAG)
            for segment in log.inactive_from(first_dirty_offset)
            if segment.largest_timestamp_ms > now_ms - lag_ms
        ][:1]
    return min(limits, key=lambda limit: limit[0])


def _compaction_delay_ms(log: LogView, first_dirty_offset: int, now_ms: int) -> int:
    dirty = log.inactive_from(first_dirty_offset)
    oldest = min((one.first_timestamp_ms for one in dirty if one.first_timestamp_ms > 0), default=None)
    clean_until = now_ms - log.config.max_compaction_lag_ms
    return clean_until - oldest if oldest is not None and oldest < clean_until else 0


def dirtiest(logs: Iterable[DirtyLog]) -> DirtyLog | None:
    """The log to clean next: of those that can be cleaned, the one with the highest ratio."""
    return max((log for log in logs if log.reason is None), key=lambda log: log.ratio, default=None)


def group_segments(
    segments: Sequence[SegmentView], *, segment_bytes: int, index_bytes: int, first_uncleanable_offset: int
) -> list[tuple[SegmentView, ...]]:
    """Groups of adjacent segments that fit one segment, so that segments do not become ever smaller.

    The log and each index are limited separately, and offsets must fit the new segment's index. The last
    offset of a segment counts as the one before the next segment. Offsets of empty segments are not limited;
    else one would remain for every 2^31 offsets.
    """
    groups: list[list[SegmentView]] = []
    log_size = offset_size = time_size = 0
    for number, segment in enumerate(segments):
        following = segments[number + 1].base_offset if number + 1 < len(segments) else None
        last_offset = (first_uncleanable_offset if following is None else following) - 1
        if (
            groups
            and log_size + segment.size_bytes <= segment_bytes
            and offset_size + segment.offset_index_bytes <= index_bytes
            and time_size + segment.time_index_bytes <= index_bytes
            and (segment.size_bytes == 0 or last_offset - groups[-1][0].base_offset <= INT32_MAX)
        ):
            groups[-1].append(segment)
        else:
            groups.append([segment])
            log_size = offset_size = time_size = 0
        log_size += segment.size_bytes
        offset_size += segment.offset_index_bytes
        time_size += segment.time_index_bytes
    return [tuple(group) for group in groups]
