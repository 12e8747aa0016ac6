"""Where a batch stands in a segment, read from the beginning of its header.

Rules: the layouts of `klog.formats.record_batch` and `message_set`. Only what a search needs is read.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from klog.formats.constants import (
    BATCH_MAX_TIMESTAMP_POSITION,
    ENTRY_PREFIX_BYTES,
    MAGIC_V2,
    MESSAGE_TIMESTAMP_POSITION,
    MIN_ENTRY_BYTES,
    NO_TIMESTAMP,
)
from klog.formats.packed import BATCH_HEADER_TO_LAST_OFFSET_DELTA, INT64

HEADER_BYTES: Final = BATCH_MAX_TIMESTAMP_POSITION + INT64.size
SMALLEST_HEADER_BYTES: Final = BATCH_HEADER_TO_LAST_OFFSET_DELTA.size


class BatchPlace(NamedTuple):
    """The position of a batch in its segment, and fields of its header."""

    position: int
    size: int
    base_offset: int
    last_offset: int
    max_timestamp: int
    leader_epoch: int


def place_of(data: bytes | bytearray, at: int, position: int) -> BatchPlace | None:
    """The batch whose header is in `data` at `at`; None if the header is invalid or not complete."""
    left = len(data) - at
    if left < SMALLEST_HEADER_BYTES:
        return None
    base, follows, epoch, magic, _, _, delta = BATCH_HEADER_TO_LAST_OFFSET_DELTA.unpack_from(data, at)
    size = follows + ENTRY_PREFIX_BYTES
    if size < MIN_ENTRY_BYTES:
        return None
    if magic >= MAGIC_V2:
        if left < HEADER_BYTES:
            return None
        (timestamp,) = INT64.unpack_from(data, at + BATCH_MAX_TIMESTAMP_POSITION)
        return BatchPlace(position, size, base, base + delta, timestamp, epoch)
    timestamp = NO_TIMESTAMP
    if magic == 1:
        (timestamp,) = INT64.unpack_from(data, at + MESSAGE_TIMESTAMP_POSITION)
    return BatchPlace(position, size, base, base, timestamp, -1)
