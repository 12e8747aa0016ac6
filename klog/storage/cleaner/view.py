"""What the cleaner needs to know of a log: values that the owner of the log takes at one time."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from klog.config.topic import TopicConfig
from klog.formats.names import TopicPartition

NO_TIMESTAMP: Final = -1


class SegmentView(NamedTuple):
    """One segment. The sizes are without pre-allocated parts.

    `largest_timestamp_ms` is the modification time of the file if records have no timestamps.
    `first_timestamp_ms` is the largest timestamp of the first batch (-1: none).
    """

    base_offset: int
    size_bytes: int
    modified_ms: int
    largest_timestamp_ms: int
    first_timestamp_ms: int = NO_TIMESTAMP
    offset_index_bytes: int = 0
    time_index_bytes: int = 0


class LastRecord(NamedTuple):
    """The last record of a producer in a log: the offset of its last data (-1: only markers) and its
    epoch.
    """

    data_offset: int
    producer_epoch: int


@dataclass(frozen=True, slots=True)
class LogView:
    """One log with its segments in order; the last one is active. End offsets are exclusive, as in Kafka."""

    partition: TopicPartition
    directory: str
    config: TopicConfig
    segments: tuple[SegmentView, ...]
    log_start_offset: int
    log_end_offset: int
    last_stable_offset: int

    @property
    def active(self) -> SegmentView:
        """The segment that is appended to. It is never cleaned."""
        return self.segments[-1]

    @property
    def size_bytes(self) -> int:
        """Bytes of all segments."""
        return sum(segment.size_bytes for segment in self.segments)

    def between(self, start_offset: int, end_offset: int) -> tuple[SegmentView, ...]:
        """The segments of [start, end), from the one that contains `start_offset` (or the first) on."""
        if start_offset >= end_offset:
            return ()
        bases = [segment.base_offset for segment in self.segments]
        first = max(bisect_right(bases, start_offset) - 1, 0)
        return tuple(segment for segment in self.segments[first:] if segment.base_offset < end_offset)

    def inactive_from(self, offset: int) -> tuple[SegmentView, ...]:
        """The segments from the one that contains `offset` to the last one before the active segment."""
        return self.between(offset, self.active.base_offset)


LastRecords = Mapping[int, LastRecord]
"""By producer id: the active producers of a log."""
