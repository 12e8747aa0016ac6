"""Sums up what a follower has to know of the batches that it has fetched, in pure Python.

The compiled twin is in `_follow.pxi`. One call looks at a whole fetch, so that no Python runs for each batch.
"""

from __future__ import annotations

from typing import Final

from klog.formats.constants import CONTROL_BIT, MAGIC_V2, TRANSACTIONAL_BIT
from klog.formats.errors import UsageError
from klog.kernel.columns import BatchTable, FollowedBatches

_PRODUCERS_SEEN: Final = 64  # beyond that, every batch counts
_BATCHES_REMEMBERED: Final = 5


def follow(table: BatchTable, end_offset: int, leader_epoch: int, found: FollowedBatches) -> None:
    """Fill `found` for a verified `table` of batches that are to continue a log that ends at `end_offset`.

    Batches of a higher epoch than `leader_epoch` are not taken, and none after them.
    """
    if len(table.valid) != len(table):
        raise UsageError("follow of a table that was not verified")
    del found.epochs[:], found.producers[:]
    found.rows, found.is_plain, found.max_timestamp = 0, True, -1
    last, before = end_offset - 1, (0, 0)
    for row in range(len(table)):
        epoch, first_offset = table.leader_epoch[row], table.base_offset[row]
        if epoch > leader_epoch:
            break
        if (
            not table.valid[row]
            or table.magic[row] < MAGIC_V2
            or table.last_offset[row] <= last
            or (row == 0 and first_offset < end_offset)
        ):
            found.is_plain = False
            break
        last = table.last_offset[row]
        if row == 0 or table.max_timestamp[row] > found.max_timestamp:
            found.max_timestamp = table.max_timestamp[row]
        if row == 0 or epoch != before[0] or first_offset < before[1]:
            before = epoch, first_offset
            found.epochs.extend(before)
        found.rows += 1
    found.producers.extend(sorted(_that_matter(table, found.rows)))


def _that_matter(table: BatchTable, rows: int) -> set[int]:
    """The rows that matter to the state of producers."""
    marks: set[int] = set()
    in_transaction: dict[int, bool] = {}
    written = [row for row in range(rows) if table.producer_id[row] >= 0]
    for row in written:
        producer_id, attributes = table.producer_id[row], table.attributes[row]
        is_full = len(in_transaction) == _PRODUCERS_SEEN
        if producer_id not in in_transaction:
            marks.add(row)
            if is_full:
                continue
            in_transaction[producer_id] = False
        if attributes & CONTROL_BIT:
            marks.add(row)
            in_transaction[producer_id] = False
        elif attributes & TRANSACTIONAL_BIT and not in_transaction[producer_id]:
            marks.add(row)
            in_transaction[producer_id] = True
    last: dict[tuple[int, int], int] = {}
    for row in reversed(written):
        if table.attributes[row] & CONTROL_BIT:
            continue
        producer = table.producer_id[row], table.producer_epoch[row]
        if producer not in last and len(last) == _PRODUCERS_SEEN:
            marks.add(row)
        elif last.get(producer, 0) < _BATCHES_REMEMBERED:
            marks.add(row)
            last[producer] = last.get(producer, 0) + 1
    return marks
