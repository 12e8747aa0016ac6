"""Reads of a log as stretches of its segment files, which the network sends without looking at them.

Rules: Kafka's `LocalLog.read`, `LogSegment.read` and KIP-98 (aborted transactions). Works on a log's segments
while the caller holds the log's lock.
"""

from __future__ import annotations

from typing import NamedTuple

from klog.formats.errors import KlogError
from klog.storage.log.segment import OpenFile
from klog.storage.log.segments import Segments
from klog.storage.producer_state import AbortedTxn


class OffsetOutOfRangeError(KlogError):
    """An offset that the log does not hold (OFFSET_OUT_OF_RANGE)."""


class Read(NamedTuple):
    """Batches as a stretch of a file, from the batch that holds the offset on; a size limit may cut the last.

    `file` is None where there is nothing to read. `segment_base` and `position` say where the read starts.
    """

    file: OpenFile | None
    position: int
    size: int
    segment_base: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    log_end_offset: int
    aborted: tuple[AbortedTxn, ...] = ()


class Stretch(NamedTuple):
    """Where a read finds its bytes. `number` is the segment's."""

    number: int
    position: int
    size: int


def find_stretch(
    segments: Segments,
    offset: int,
    limit_offset: int,
    log_end_offset: int,
    max_bytes: int,
    at_least_one: bool,
) -> Stretch | None:
    """Bytes from the batch that holds `offset` (or the next one) up to `limit_offset`; None without any."""
    for number in range(segments.floor(offset), len(segments)):
        segment = segments[number]
        if segment.base_offset >= limit_offset:
            return None
        place = segment.find(offset)
        if place is None:
            continue
        end = segment.size
        if limit_offset < segments.end_of(number, log_end_offset):
            limit = segment.find(limit_offset)
            end = segment.size if limit is None else limit.position
        available = end - place.position
        if max_bytes < place.size:
            # Less than a batch helps nobody: all of it, or nothing.
            size = min(place.size, available) if at_least_one else 0
        else:
            size = min(max_bytes, available)
        return Stretch(number, place.position, size) if size > 0 else None
    return None


def aborted_in(
    segments: Segments, stretch: Stretch, offset: int, log_end_offset: int
) -> tuple[AbortedTxn, ...]:
    """The aborted transactions that overlap what is read from `offset` on."""
    segment = segments[stretch.number]
    upper = segment.offset_index.upper_bound(stretch.position + stretch.size)
    if upper is None:
        upper = segments.end_of(stretch.number, log_end_offset)
    found: list[AbortedTxn] = []
    for number in range(stretch.number, len(segments)):
        for txn in segments[number].aborted():
            if txn.last_offset >= offset and txn.first_offset < upper:
                found.append(txn)
            if txn.last_stable_offset >= upper:
                return tuple(found)
    return tuple(found)
