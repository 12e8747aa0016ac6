"""Changes the log of a partition that this broker follows, as its leader says.

Rules: Kafka's `ReplicaFetcherThread.processPartitionData`, `truncate` and `truncateFullyAndStartAt`, and
`Partition.appendRecordsToFollowerOrFutureReplica`. Every function holds the log's lock and first checks that
this broker still follows in the leader epoch in which it has asked: whatever the controller says meanwhile,
an answer of a former leader changes nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from klog.formats.constants import NO_LEADER
from klog.formats.epochs import EpochEnd
from klog.formats.errors import KlogError
from klog.replication.fetching.truncation import truncation
from klog.replication.fetching.values import FetchStart
from klog.replication.partition import Partition
from klog.storage.log.append_values import UnexpectedOffsetError
from klog.storage.log.partition_log import PartitionLog

_log = logging.getLogger(__name__)


class NotFollowingError(KlogError):
    """This broker does not follow the partition any more, or follows it in another leader epoch."""


class Followed(NamedTuple):
    """How far a partition is after an answer: the next offset to fetch, the epoch before it (-1: none known),
    whether the high watermark moved, and the bytes that were written.
    """

    next_offset: int
    last_epoch: int
    high_watermark_moved: bool
    size_bytes: int


class Cut(NamedTuple):
    """A log was truncated to `offset`, where it is fetched from now on, after a record of `last_epoch`.

    `dropped` says whether it had anything beyond that. If it is not complete, the leader is asked again.
    """

    offset: int
    last_epoch: int
    dropped: bool
    is_complete: bool = True


def _lock_followed(partition: Partition, leader_epoch: int) -> PartitionLog:
    """The log with its lock held, which the caller releases. Raises `NotFollowingError`."""
    log = partition.lock_log()
    state = partition.state
    if state.is_leader or state.leader_epoch != leader_epoch:
        log.lock.release()
        raise NotFollowingError(f"{partition} is not followed in epoch {leader_epoch}")
    return log


@contextmanager
def _followed(partition: Partition, leader_epoch: int) -> Iterator[PartitionLog]:
    """The log with its lock held. Raises `NotFollowingError`."""
    log = _lock_followed(partition, leader_epoch)
    try:
        yield log
    finally:
        log.lock.release()


def start_of(partition: Partition) -> FetchStart | None:
    """Where this follower begins to fetch; None if it leads, or if there is no leader.

    It goes on at the log's end if epochs tell whether the leader has the same records, otherwise at the high
    watermark.
    """
    log = partition.lock_log()
    try:
        state = partition.state
        if state.is_leader or state.leader == NO_LEADER:
            return None
        knows_epochs = log.epochs.latest >= 0
        return FetchStart(state.leader_epoch, log.log_end_offset if knows_epochs else log.high_watermark)
    finally:
        log.lock.release()


def follow(
    partition: Partition,
    leader_epoch: int,
    offset: int,
    records: memoryview,
    high_watermark: int,
    log_start_offset: int,
    now_ms: int,
) -> Followed:
    """Take a leader's answer to a fetch from `offset`: records, high watermark and log start offset.

    `now_ms` is the wall clock's. Raises `NotFollowingError`; `AppendError` if the records are damaged;
    `KlogError` if they do not continue the log, or if the log start offset is above the high watermark;
    `OSError`, `StorageError`.
    """
    log = _lock_followed(partition, leader_epoch)
    try:
        end_offset = log.log_end_offset
        if end_offset != offset:
            raise KlogError(f"{partition} was fetched from offset {offset}, but it ends at {end_offset}")
        size_bytes = append_copied(log, records, leader_epoch, now_ms) if len(records) else 0
        before = log.high_watermark
        if before != high_watermark:
            after = log.set_high_watermark(high_watermark)
            if after < before:
                _log.info("%s: the high watermark falls from %d to %d", log.partition, before, after)
        if log_start_offset > log.log_start_offset:
            log.advance_log_start(log_start_offset)
        return Followed(log.log_end_offset, log.epochs.latest, log.high_watermark != before, size_bytes)
    finally:
        log.lock.release()


def append_copied(log: PartitionLog, records: memoryview, leader_epoch: int, now_ms: int) -> int:
    """Append batches of another log of the replica as they are; returns their bytes.

    Nobody else changes the log meanwhile. Raises as `PartitionLog.append_as_follower`.
    """
    try:
        return log.append_as_follower(records, leader_epoch, now_ms).size_bytes
    except UnexpectedOffsetError as unexpected:
        # An empty log may begin inside a batch: the leader's log start offset does after DeleteRecords.
        start = log.log_start_offset
        if log.log_end_offset != start or not unexpected.first_offset < start <= unexpected.last_offset:
            raise
        _log.info("%s: the log begins again at %d", log.partition, unexpected.first_offset)
        log.restart_at(unexpected.first_offset, start)
        return log.append_as_follower(records, leader_epoch, now_ms).size_bytes


def truncate_by_epoch(
    partition: Partition, leader_epoch: int, leader_end: EpochEnd, fetch_offset: int
) -> Cut:
    """Drop what the leader does not have, by what it says of the end of an epoch.

    Raises `NotFollowingError`, `OSError`, `StorageError`.
    """
    with _followed(partition, leader_epoch) as log:
        decided = truncation(leader_end, log.end_of_epoch, log.log_end_offset, fetch_offset)
        return _truncate(log, decided.offset)._replace(is_complete=decided.is_complete)


def truncate_to(partition: Partition, leader_epoch: int, offset: int) -> Cut:
    """Drop the records at and above an offset. Raises `NotFollowingError`, `OSError`, `StorageError`."""
    with _followed(partition, leader_epoch) as log:
        return _truncate(log, offset)


def _truncate(log: PartitionLog, offset: int) -> Cut:
    end_offset, high_watermark = log.log_end_offset, log.high_watermark
    dropped = log.truncate_to(offset)
    if dropped:
        level = logging.WARNING if offset < high_watermark else logging.INFO
        what = "%s is truncated from %d to %d; its high watermark was %d"
        _log.log(level, what, log.partition, end_offset, offset, high_watermark)
    return Cut(offset, log.epochs.latest, dropped)


def restart_at(partition: Partition, leader_epoch: int, offset: int) -> Cut:
    """Drop all records and begin again at an offset, where the leader's log starts now.

    Raises `NotFollowingError`, `OSError`, `StorageError`.
    """
    with _followed(partition, leader_epoch) as log:
        _log.info("%s begins again at %d, where its leader's log starts", log.partition, offset)
        log.restart_at(offset)
        return Cut(offset, log.epochs.latest, dropped=True)


def position(partition: Partition, leader_epoch: int) -> Followed:
    """How far a partition is. Raises `NotFollowingError`."""
    with _followed(partition, leader_epoch) as log:
        return Followed(log.log_end_offset, log.epochs.latest, False, 0)
