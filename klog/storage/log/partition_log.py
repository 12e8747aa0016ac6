"""The log of one partition: what is appended to it, as its leader or as a follower.

Rules: Kafka's `UnifiedLog` and `LocalLog`. Reads are in `readable_log`, rolls, flushes and truncations in
`segmented_log`, loading and recovery in `loading`, retention in `retention`, lookups by time in
`time_lookup`. All public methods are safe for threads unless they say that the caller holds the lock. Time
comes from the caller or from `clock_ms`. Work for later (fsync after a roll, deleting files) goes to
`background`.

Every method that touches the disk raises `OSError` or `StorageError` if the disk fails. The log in memory
cannot be trusted then: it is closed, and `background` is notified, which takes the log directory offline. If
only descriptors or memory are missing, the log is as it was, and open.
"""

from __future__ import annotations

from collections.abc import Callable

from klog.config.topic import TopicConfig
from klog.formats.constants import INT64_MAX
from klog.formats.errors import ChecksumCodeError, StorageError
from klog.formats.names import TopicPartition
from klog.kernel.markers import marker_of_batch
from klog.storage.log.append_values import AppendError, BatchInfo, Origin, Validated
from klog.storage.log.batch_run import BatchRun, has_producers
from klog.storage.log.disk_guard import kept_for_markers, on_disk, require_open, unusable
from klog.storage.log.follower_batches import FollowedRun, followed_batch, followed_run, follower_batches
from klog.storage.log.log_values import AppendInfo, Background, LogState
from klog.storage.log.run_limits import RunLimits
from klog.storage.log.segment import LogSegment
from klog.storage.log.segmented_log import SegmentedLog
from klog.storage.log.validation import validate
from klog.storage.log.verification import UNCHECKED

__all__ = ["AppendInfo", "PartitionLog"]


class PartitionLog(SegmentedLog):
    """One replica's log as its leader or follower changes it."""

    def __init__(
        self,
        partition: TopicPartition,
        directory: str,
        config: TopicConfig,
        state: LogState,
        *,
        clock_ms: Callable[[], int],
        background: Background,
        jitter: Callable[[int], int] = lambda limit: 0,  # noqa: ARG005
    ) -> None:
        """`jitter(limit)` draws a number from 0 up to, not including, `limit`."""
        super().__init__(partition, directory, config, state, clock_ms, background, jitter)
        self.topic_id: str | None = None
        # False from the start of a broker until the controller has named this replica. Until then nothing
        # may delete its records: it may belong to a topic whose metadata was lost.
        self.is_confirmed = True
        self._run_limits = RunLimits(config)

    def reconfigure(self, config: TopicConfig) -> None:
        """The topic's configs have changed."""
        with self.lock:
            super().reconfigure(config)
            self._run_limits = RunLimits(config)

    @on_disk
    def assign_epoch(self, epoch: int, start_offset: int) -> None:
        """This broker leads from `start_offset` on in `epoch`; written before anything is appended in it."""
        # The first epoch of a log without records is forced to disk with its first records.
        if not self.epochs.entries and self.log_end_offset == self.log_start_offset:
            self.epochs.assign_first(epoch, start_offset)
        else:
            self.epochs.assign(epoch, start_offset)

    # -- appending -------------------------------------------------------------------------------------------

    def append_as_leader(
        self,
        data: memoryview,
        leader_epoch: int,
        now_ms: int,
        origin: Origin = Origin.CLIENT,
        guard: object | None = UNCHECKED,
    ) -> AppendInfo:
        """Check records, give them offsets and write them. `data` must be writable and is changed.

        `guard` is what `Producers.begin_verification` has returned for records of a transaction. The caller
        holds the lock. Raises `AppendError` if they may not enter.
        """
        # What `on_disk` does, without the cost of a wrapper and of another entry into the lock.
        require_open(self)
        try:
            return self._append_as_leader(data, leader_epoch, now_ms, origin, guard)
        except ChecksumCodeError as wrong:
            raise unusable(self, wrong) from wrong
        except (OSError, StorageError) as error:
            self.fail(error)
            raise

    def _append_as_leader(
        self, data: memoryview, leader_epoch: int, now_ms: int, origin: Origin, guard: object | None
    ) -> AppendInfo:
        config = self.config
        valid = validate(
            data, config, self.log_end_offset, leader_epoch, now_ms, origin, self._background.opinions
        )
        if valid is None:
            return AppendInfo(-1, -1, -1, self.log_start_offset)
        size = len(valid.data)
        if size > config.segment_bytes:
            what = f"{size} bytes in one append, a segment holds {config.segment_bytes}"
            raise AppendError("RECORD_LIST_TOO_LARGE", what)
        batch = valid.batches[0]
        if batch.producer_id >= 0:
            if batch.is_control:
                marker = marker_of_batch(valid.data)
                if marker is not None:
                    self.producers.check_marker(batch, marker)
            else:
                sent = self.producers.check(batch, origin, guard)
                if sent is not None:
                    return AppendInfo(
                        sent.first_offset,
                        sent.last_offset,
                        sent.timestamp,
                        self.log_start_offset,
                        0,
                        True,
                    )
        self.epochs.assign(leader_epoch, valid.first_offset)
        self._write_valid(valid, now_ms)
        return AppendInfo(
            valid.first_offset,
            valid.last_offset,
            valid.log_append_time_ms,
            self.log_start_offset,
            size,
            False,
            valid.converted,
        )

    def append_run(self, run: BatchRun, leader_epoch: int, now_ms: int, guard: object = UNCHECKED) -> bool:
        """Append the batches of a run as `append_as_leader` would one after the other, with one write.

        False if that might have done anything but write them, or for a marker that aborts: then no record is
        written. The run is cut before the first batch of a producer that is not simply new. The caller holds
        the lock. Raises `OSError`, `StorageError`.
        """
        first_offset, limits, segment = self.log_end_offset, self._run_limits, self.segments.active
        records = run.records
        if (
            self.closed
            or first_offset > INT64_MAX - records
            or not limits.allow(run, now_ms)
            or self._unflushed_records + records >= limits.flush_messages
            or not segment.takes_run(run, first_offset + records - 1, self._roll_ms)
        ):
            return False
        try:
            self.epochs.assign(leader_epoch, first_offset)
            if has_producers(run):
                segment.reserve(run.frames, run.size_bytes)
                if not self.producers.follow_run(run, first_offset, leader_epoch, guard):
                    return False
                records = run.records
            segment.append_run(run, first_offset, leader_epoch)
        except (OSError, StorageError) as error:
            self.fail(error)
            raise
        self._unflushed_records += records
        self.producers.end_offset = self.log_end_offset = first_offset + records
        return True

    def append_as_follower(self, data: memoryview, leader_epoch: int, now_ms: int) -> AppendInfo:
        """Write batches that the leader has checked, as they are, without a partial last one.

        Batches of a higher epoch than `leader_epoch`, in which they were fetched, are left out (KAFKA-18723).
        Raises `AppendError` if one is damaged, `UnexpectedOffsetError` if they do not continue the log.
        """
        # What `on_disk` does, without the cost of a wrapper.
        with self.lock:
            require_open(self)
            try:
                batch = followed_batch(data, leader_epoch, self.log_end_offset)
                if batch is not None:
                    return self._append_batch(data, batch, now_ms)
                return self._append_batches(data, leader_epoch, now_ms)
            except ChecksumCodeError as wrong:
                raise unusable(self, wrong) from wrong
            except (OSError, StorageError) as error:
                self.fail(error)
                raise

    def _append_batch(self, data: memoryview, batch: BatchInfo, now_ms: int) -> AppendInfo:
        first_offset, last_offset = batch.first_offset, batch.last_offset
        self.epochs.assign(batch.leader_epoch, self.log_end_offset)
        self._write(data, (batch,), last_offset, batch.max_timestamp, first_offset, now_ms)
        return AppendInfo(first_offset, last_offset, -1, self.log_start_offset, batch.size)

    def _append_batches(self, data: memoryview, leader_epoch: int, now_ms: int) -> AppendInfo:
        run = followed_run(data, leader_epoch, self.log_end_offset)
        if run is not None:
            return self._append_followed(run, now_ms)
        valid = follower_batches(data, leader_epoch, self.log_end_offset)
        if valid is None:
            return AppendInfo(-1, -1, -1, self.log_start_offset)
        ends = (self.log_end_offset, *(batch.last_offset + 1 for batch in valid.batches))
        self.epochs.follow((batch.leader_epoch, end) for batch, end in zip(valid.batches, ends, strict=False))
        self._write_valid(valid, now_ms)
        return AppendInfo(valid.first_offset, valid.last_offset, -1, self.log_start_offset, len(valid.data))

    def _append_followed(self, run: FollowedRun, now_ms: int) -> AppendInfo:
        """Write a whole answer of a leader; what is done for each batch is done by the kernel."""
        data, found = run.data, run.found
        self.epochs.follow(run.epoch_starts(self.log_end_offset))
        first_offset, last_offset = run.first_offset, run.last_offset
        segment = self._segment_for(len(data), last_offset, found.max_timestamp, first_offset, now_ms)
        batches = list(run.producer_batches())
        kept = kept_for_markers(batches)
        segment.append_scanned(data, run.table)
        self._extended_to(last_offset)
        for batch in batches:
            aborted = self.producers.follow(batch, data)
            if aborted is not None:
                kept.clear()
                segment.append_aborted(aborted)
        self._written()
        return AppendInfo(first_offset, last_offset, -1, self.log_start_offset, len(data))

    def _write_valid(self, valid: Validated, now_ms: int) -> None:
        self._write(
            valid.data, valid.batches, valid.last_offset, valid.max_timestamp, valid.roll_offset, now_ms
        )

    def _write(
        self,
        data: memoryview | bytearray,
        batches: tuple[BatchInfo, ...],
        last_offset: int,
        max_timestamp: int,
        roll_offset: int,
        now_ms: int,
    ) -> None:
        segment = self._segment_for(len(data), last_offset, max_timestamp, roll_offset, now_ms)
        kept = kept_for_markers(batches)
        segment.append(data, batches)
        self._extended_to(last_offset)
        for batch in batches:
            if batch.producer_id >= 0:
                aborted = self.producers.follow(batch, data)
                if aborted is not None:
                    kept.clear()
                    segment.append_aborted(aborted)
        self._written()

    def _segment_for(
        self, size_bytes: int, last_offset: int, max_timestamp: int, roll_offset: int, now_ms: int
    ) -> LogSegment:
        """The segment for the next batches, a new one if the active one cannot take them."""
        if last_offset >= INT64_MAX:
            raise AppendError("UNKNOWN_SERVER_ERROR", f"no offset is left after {INT64_MAX}")
        segment = self.segments.active
        if segment.should_roll(size_bytes, last_offset, max_timestamp, now_ms, self._roll_ms):
            segment = self.roll(roll_offset)
        return segment

    def _extended_to(self, last_offset: int) -> None:
        self._unflushed_records += last_offset + 1 - self.log_end_offset
        self.log_end_offset = last_offset + 1

    def _written(self) -> None:
        self.producers.end_offset = self.log_end_offset
        if self._unflushed_records >= self.config.flush_messages:
            self.flush(self.log_end_offset)
