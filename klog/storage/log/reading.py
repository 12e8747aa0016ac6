"""Finds what a fetch reads: ranges of a log's segment files, which the network sends without parsing them.

Rules: Kafka's `LocalLog.read`, `LogSegment.read` and KIP-98 (aborted transactions). The caller holds the
log's lock.
"""

from __future__ import annotations

from typing import NamedTuple

from klog.formats.errors import KlogError
from klog.storage.log.open_file import OpenFile
from klog.storage.log.segments import Segments
from klog.storage.reading.producer_state import AbortedTxn


class OffsetOutOfRangeError(KlogError):
    """An offset that the log does not hold (OFFSET_OUT_OF_RANGE)."""


class NegativeSizeError(KlogError):
    """A read of less than no bytes, which Kafka answers with UNKNOWN_SERVER_ERROR."""


class Read(NamedTuple):
    """Batches as a range of a file. The first one holds the offset; a size limit may cut the last one.

    `file` is None if there is nothing to read. `segment_base` (the base offset of a segment) and `position`
    say where the read starts.
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


class FileRange(NamedTuple):
    """The bytes of a read: the number of the segment, position and size in its file."""

    number: int
    position: int
    size: int


def find_range(
    segments: Segments,
    offset: int,
    limit_offset: int,
    log_end_offset: int,
    max_bytes: int,
    at_least_one: bool,
    may_wait: bool = True,
) -> FileRange | None:
    """Bytes from the batch that holds `offset` (or the next one) up to `limit_offset`; None without any.

    Raises `NegativeSizeError`.
    """
    if max_bytes < 0:
        raise NegativeSizeError(f"a read of {max_bytes} bytes was asked for")
    for number in range(segments.floor(offset), len(segments)):
        segment = segments[number]
        if segment.base_offset >= limit_offset:
            return None
        place = segment.find(offset, may_wait)
        if place is None:
            continue
        end = segment.size
        if limit_offset < segments.end_of(number, log_end_offset):
            limit = segment.find(limit_offset, may_wait)
            end = segment.size if limit is None else limit.position
        available = end - place.position
        if max_bytes < place.size:
            # A part of the first batch is useless to a reader: give it whole or not at all.
            size = min(place.size, available) if at_least_one else 0
        else:
            size = min(max_bytes, available)
        return FileRange(number, place.position, size) if size > 0 else None
    return None


def aborted_in(
    segments: Segments, file_range: FileRange, offset: int, log_end_offset: int
) -> tuple[AbortedTxn, ...]:
    """The aborted transactions that overlap what is read from `offset` on."""
    segment = segments[file_range.number]
    upper = segment.offset_index.upper_bound(file_range.position + file_range.size)
    if upper is None:
        upper = segments.end_of(file_range.number, log_end_offset)
    found: list[AbortedTxn] = []
    for number in range(file_range.number, len(segments)):
        transactions, is_complete = segments[number].aborted_between(offset, upper)
        found += transactions
        if is_complete:
            break
    return tuple(found)
