"""Finds the offset at which the logs of two replicas diverge, by their leader epochs and a few batches.

Rules: KIP-101 and KIP-279. Logs agree up to the end of the largest epoch that both know. Followers copy
batches byte for byte, so that offset is checked with the last common batch. If it differs, a binary search
finds the first batch that does. Cleaned replicas may lack records and still agree.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from enum import Enum
from typing import Final, NamedTuple

from klog.formats.checkpoints import EpochEntry
from klog.formats.constants import INT64_MAX
from klog.formats.errors import placed
from klog.kernel.columns import COUNT_UNKNOWN, OFFSET_UNKNOWN, BatchTable
from klog.replicas.open_segment import OpenSegment
from klog.replicas.replica_contents import ReplicaContents

_FIRST_MAGIC_WITH_EPOCHS: Final = 2


def common_end(chosen: Sequence[EpochEntry], other: Sequence[EpochEntry]) -> int:
    """The offset up to which logs with these leader epochs agree; 2^63-1 if the epochs show no difference."""
    if not chosen or not other:
        return INT64_MAX
    ends = {entry.epoch: _end_of(chosen, row) for row, entry in enumerate(chosen)}
    for row in range(len(other) - 1, -1, -1):
        if other[row].epoch in ends:
            return min(ends[other[row].epoch], _end_of(other, row))
    return min(chosen[0].start_offset, INT64_MAX)


def _end_of(entries: Sequence[EpochEntry], row: int) -> int:
    return entries[row + 1].start_offset if row + 1 < len(entries) else INT64_MAX


class _Batch(NamedTuple):
    base_offset: int
    last_offset: int
    crc: int
    leader_epoch: int
    record_count: int

    @property
    def whole(self) -> bool:
        """Whether it has all its records, by its header: none was removed by the cleaner."""
        return self.record_count in (COUNT_UNKNOWN, self.last_offset - self.base_offset + 1)


class _Agreement(Enum):
    SAME = "same"
    OTHER = "other"
    UNKNOWN = "unknown"


def first_difference(chosen: ReplicaContents, other: ReplicaContents, end_offset: int) -> int:
    """The first offset before `end_offset` at which two replicas differ; `end_offset` if they agree.

    Raises `StorageError` if one cannot be read.
    """
    cleaned = max(chosen.replica.cleaned_to or 0, other.replica.cleaned_to or 0)
    low = max(chosen.first_offset, other.first_offset, cleaned)
    high = min(end_offset, chosen.end_offset, other.end_offset)
    if low >= high or _compare(chosen, other, high - 1)[0] is not _Agreement.OTHER:
        return end_offset
    # From the first difference on all batches differ, so a binary search finds it.
    while low < high:
        middle = (low + high) // 2
        agreement, first, last = _compare(chosen, other, middle)
        if agreement is _Agreement.OTHER:
            high = max(min(middle, first), low)
        else:
            low = max(middle, last) + 1
    return min(low, end_offset)


def _compare(chosen: ReplicaContents, other: ReplicaContents, offset: int) -> tuple[_Agreement, int, int]:
    """Whether the batches at an offset agree, and the first and last offset of the chosen replica's."""
    ours, theirs = _batch_at(chosen, offset), _batch_at(other, offset)
    if ours is None or theirs is None:
        return _Agreement.UNKNOWN, offset, offset
    if ours == theirs:
        return _Agreement.SAME, ours.base_offset, ours.last_offset
    same_place = (ours.base_offset, ours.last_offset) == (theirs.base_offset, theirs.last_offset)
    if ours.leader_epoch == theirs.leader_epoch and same_place and not (ours.whole and theirs.whole):
        return _Agreement.UNKNOWN, ours.base_offset, ours.last_offset
    return _Agreement.OTHER, min(ours.base_offset, theirs.base_offset), ours.last_offset


def _batch_at(contents: ReplicaContents, offset: int) -> _Batch | None:
    """The batch that holds an offset, None if there is none."""
    row = bisect_right(contents.extents, offset, key=lambda extent: extent.first_offset) - 1
    if row < 0 or offset >= contents.extents[row].end_offset:
        return None
    extent = contents.extents[row]
    with placed(extent.segment.log), OpenSegment(extent.segment) as opened:
        table = opened.batch_at(offset, extent.end.end_bytes)
        return None if table is None else _batch(table)


def _batch(table: BatchTable) -> _Batch:
    base, last = table.base_offset[0], table.last_offset[0]
    # Magic 0 and 1 have no epoch, and a compressed set does not say its base offset.
    epoch = table.leader_epoch[0] if table.magic[0] >= _FIRST_MAGIC_WITH_EPOCHS else -1
    first = min(base, last) if base != OFFSET_UNKNOWN else 0
    return _Batch(first, last, table.crc[0], epoch, table.count[0])
