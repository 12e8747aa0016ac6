"""Moves one replica to another log directory: copies its log into a future log, which then takes its place.

Rules: Kafka's `ReplicaAlterLogDirsThread` and `Partition.maybeReplaceCurrentWithFutureReplica`; KIP-113. The
source is the log on this broker, so nothing is asked of the leader, and leaders and followers move alike.
There are no threads here: somebody calls `copy` until the copy is complete, then `promote`.
"""

from __future__ import annotations

import os
from typing import Final

from klog.formats.constants import INT32_MAX
from klog.formats.epochs import UNDEFINED_EPOCH
from klog.formats.errors import KlogError
from klog.replication.fetching.following import append_copied
from klog.replication.fetching.truncation import truncation
from klog.replication.partition import Partition
from klog.storage.log.future_logs import FutureLogs
from klog.storage.log.partition_log import PartitionLog
from klog.storage.log.reading import Read

COPIED_AT_ONCE_BYTES: Final = 1 << 20


class LogDirMove:
    """The move of one replica. One thread calls its methods."""

    def __init__(self, partition: Partition, future: PartitionLog, futures: FutureLogs) -> None:
        self.partition = partition
        self.future = future
        self._futures = futures
        self._is_prefix = False

    def copy(self, buffer: bytearray, now_ms: int) -> int:
        """Copy the next batches, about as many as `buffer` holds; returns their bytes, 0 if none are left.

        A batch that was not read whole is no part of that. `now_ms` is the wall clock's. Raises `KlogError`,
        `OSError`.
        """
        read = self._next()
        if read is None or read.file is None:
            return 0
        # Larger than the buffer only if one batch is.
        chunk = buffer if read.size <= len(buffer) else bytearray(read.size)
        data = memoryview(chunk)[: read.size]
        count = os.preadv(read.file.fileno(), [data], read.position)
        # Every batch is in an epoch that this broker knows already.
        copied = append_copied(self.future, data[:count], INT32_MAX, now_ms)
        self.future.set_high_watermark(read.high_watermark)
        return copied

    def _next(self) -> Read | None:
        """What the future log lacks next; None if it lacks nothing."""
        log = self.partition.lock_log()
        try:
            self._follow(log)
            offset, end = self.future.log_end_offset, log.log_end_offset
            if offset == end:
                return None
            return log.read(offset, COPIED_AT_ONCE_BYTES, end, at_least_one=True)
        finally:
            log.lock.release()

    def _follow(self, log: PartitionLog) -> None:
        """Make the future log a prefix of the log, which was cut or has lost its beginning since the last
        time. The caller holds the log's lock.
        """
        future, cut = self.future, log.take_cut()
        if not self._is_prefix:
            # The future log is new, or older than this process.
            _cut_where_epochs_part(future, log)
            future.truncate_to(log.log_end_offset)
            self._is_prefix = True
        elif cut is not None:
            future.truncate_to(max(cut, future.log_start_offset))
        if future.log_end_offset < log.log_start_offset or cut == -1:
            future.restart_at(log.log_start_offset)
        future.set_high_watermark(log.high_watermark)
        if future.log_start_offset < log.log_start_offset:
            future.advance_log_start(min(log.log_start_offset, future.high_watermark))

    def promote(self, buffer: bytearray, now_ms: int) -> PartitionLog | None:
        """Let the future log serve, if little is left to copy; returns the log that it replaces.

        The caller gives that log to `FutureLogs.discard`. None if there is more to copy first. What was
        copied is forced to disk before: the old log's files, which may be, go. What is written meanwhile is
        copied while nobody can write. Raises `KlogError`, `OSError`.
        """
        partition, future = self.partition, self.future
        future.flush()
        with partition.lock:
            log = partition.lock_log()
            try:
                self.copy(buffer, now_ms)
                if future.log_end_offset != log.log_end_offset:
                    return None
                with future.lock:
                    _take_epochs(future, log)
                    future.producers.verifying = log.producers.verifying
                    replaced = self._futures.promote(future)
                    if not partition.replace_log(future):
                        raise KlogError(f"{partition.topic_partition} changed while its log was locked")
                return replaced
            finally:
                log.lock.release()


def _take_epochs(future: PartitionLog, log: PartitionLog) -> None:
    """Give a copy the epochs of its log. They may differ where there are no records: a leader that has
    written nothing yet has an epoch without a batch.
    """
    if future.epochs.entries != log.epochs.entries:
        future.epochs.clear()
        for entry in log.epochs.entries:
            future.epochs.assign(entry.epoch, entry.start_offset)


def _cut_where_epochs_part(copy: PartitionLog, log: PartitionLog) -> None:
    """Drop what a copy has of leader epochs that its log does not have, as a follower does."""
    is_complete = copy.epochs.latest == UNDEFINED_EPOCH
    while not is_complete:
        log_end = log.end_of_epoch(copy.epochs.latest)
        cut = truncation(log_end, copy.end_of_epoch, copy.log_end_offset, copy.high_watermark)
        copy.truncate_to(cut.offset)
        is_complete = cut.is_complete or copy.epochs.latest == UNDEFINED_EPOCH
