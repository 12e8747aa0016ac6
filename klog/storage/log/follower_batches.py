"""Checks batches that a follower has fetched from its leader before they are written as they are.

Rules: Kafka's `UnifiedLog.appendAsFollower`. The leader has validated the records; a follower checks that the
batches are whole, undamaged and continue its log. A batch that the fetch cut at the end is left out.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import NamedTuple

from klog.formats.checksums import crc32c
from klog.formats.constants import (
    BATCH_CRC_FROM,
    BATCH_HEADER_BYTES,
    ENTRY_PREFIX_BYTES,
    INT32_MAX,
    INT64_MAX,
    MAGIC_V2,
)
from klog.formats.packed import BATCH_HEADER
from klog.kernel import kernel
from klog.kernel.columns import OFFSET_UNKNOWN, BatchTable, FollowedBatches
from klog.storage.log.append_values import AppendError, BatchInfo, UnexpectedOffsetError, Validated
from klog.storage.log.validation import require_possible_tail


class FollowedRun(NamedTuple):
    """Batches of magic 2 that continue the log, in `data`; `table` has exactly these."""

    data: memoryview
    table: BatchTable
    found: FollowedBatches

    @property
    def first_offset(self) -> int:
        """The first offset of the first batch."""
        return self.table.base_offset[0]

    @property
    def last_offset(self) -> int:
        """The last offset of the last batch."""
        return self.table.last_offset[-1]

    def epoch_starts(self, log_end_offset: int) -> Iterator[tuple[int, int]]:
        """The leader epochs of the batches, and where the batches before each of them end.

        Cleaning may have left out the first records of an epoch. Kafka's follower lets the epoch start at the
        first batch that is left, and takes what is below for a part of the epoch before. If it leads then, a
        replica that has other records there, which were never committed, keeps them.
        """
        table = self.table
        for epoch, first_offset in zip(self.found.epochs[::2], self.found.epochs[1::2], strict=True):
            row = bisect_left(table.base_offset, first_offset)
            yield epoch, table.last_offset[row - 1] + 1 if row else log_end_offset

    def producer_batches(self) -> Iterator[BatchInfo]:
        """The batches that matter to the state of producers."""
        return (_batch(self.table, row) for row in self.found.producers)


def followed_batch(data: memoryview, leader_epoch: int, log_end_offset: int) -> BatchInfo | None:
    """The batch of fetched `data` that is one batch of magic 2, as usual in a partition with little traffic,
    and continues the log; None if `followed_run` has to look.
    """
    if len(data) < BATCH_HEADER_BYTES:
        return None
    (
        first_offset,
        follows,
        epoch,
        magic,
        crc,
        attributes,
        delta,
        _,
        max_timestamp,
        producer_id,
        producer_epoch,
        sequence,
        _,
    ) = BATCH_HEADER.unpack_from(data)
    if (
        follows + ENTRY_PREFIX_BYTES != len(data)
        or magic != MAGIC_V2
        or not 0 <= epoch <= leader_epoch
        or not log_end_offset <= first_offset <= first_offset + delta <= INT64_MAX
        or crc32c(data[BATCH_CRC_FROM:]) != crc
    ):
        return None
    return BatchInfo(
        first_offset,
        first_offset + delta,
        max_timestamp,
        producer_id,
        producer_epoch,
        sequence,
        attributes,
        len(data),
        epoch,
    )


def followed_run(data: memoryview, leader_epoch: int, log_end_offset: int) -> FollowedRun | None:
    """The batches of fetched `data`, if nothing about them is unusual; None if `follower_batches` has to look
    at each of them. No Python runs for each batch here.
    """
    table, found = BatchTable(), FollowedBatches()
    kernel.scan(data, 0, True, table)
    kernel.verify(data, table)
    kernel.follow(table, log_end_offset, leader_epoch, found)
    if not found.is_plain or not found.rows or found.rows != len(table):
        return None
    if table.consumed_bytes < len(data):
        require_possible_tail(data[table.consumed_bytes :])
        data = data[: table.consumed_bytes]
    return FollowedRun(data, table, found)


def follower_batches(data: memoryview, leader_epoch: int, log_end_offset: int) -> Validated | None:
    """The whole batches of fetched `data`, up to the first of a higher epoch; None if there are none.

    A leader of `leader_epoch` may have been replaced and read records that its follower must not have yet.

    Raises `AppendError` if one is damaged, `UnexpectedOffsetError` if they do not continue the log at
    `log_end_offset`. A gap is no error: compaction and transactions leave some.
    """
    table = BatchTable()
    kernel.scan(data, 0, True, table)
    kernel.verify(data, table)
    count = next((row for row, epoch in enumerate(table.leader_epoch) if epoch > leader_epoch), len(table))
    if 0 in table.valid[:count]:
        raise AppendError("CORRUPT_MESSAGE", "a fetched batch fails its checksum")
    require_possible_tail(data[table.consumed_bytes :])
    if not count:
        return None
    batches = tuple(_batch(table, row) for row in range(count))
    first_or_last = batches[0].first_offset
    last_offset = log_end_offset - 1
    for batch in batches:
        if batch.last_offset <= last_offset or first_or_last < log_end_offset:
            raise UnexpectedOffsetError(
                f"fetched offsets {first_or_last} to {batch.last_offset} do not continue a log"
                f" that ends at {log_end_offset}",
                first_or_last,
                batches[-1].last_offset,
            )
        last_offset = batch.last_offset
    # The wrapper of magic 0 and 1 has its last offset only; its first one is lower.
    first_known = table.magic[0] >= MAGIC_V2
    return Validated(
        data[: batches[-1].position + batches[-1].size],
        batches,
        first_or_last,
        last_offset,
        max(batch.max_timestamp for batch in batches),
        -1,
        first_or_last if first_known else last_offset - INT32_MAX,
    )


def _batch(table: BatchTable, row: int) -> BatchInfo:
    legacy = table.magic[row] < MAGIC_V2
    last_offset, first_offset = table.last_offset[row], table.base_offset[row]
    return BatchInfo(
        last_offset if first_offset == OFFSET_UNKNOWN else first_offset,
        last_offset,
        table.max_timestamp[row],
        table.producer_id[row],
        table.producer_epoch[row],
        table.base_sequence[row],
        0 if legacy else table.attributes[row],
        table.size[row],
        -1 if legacy else table.leader_epoch[row],
        table.position[row],
    )
