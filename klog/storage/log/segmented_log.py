"""The segments of a partition's log: rolled, forced to disk, deleted and cut.

Rules: Kafka's `UnifiedLog` and `LocalLog`. `partition_log` adds what is appended, and says what holds for all
methods: which threads may call them, and what happens if the disk fails.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable

from klog.config.topic import TopicConfig
from klog.formats.constants import INT64_MAX
from klog.formats.errors import KlogError, StorageError
from klog.formats.names import FileKind, TopicPartition
from klog.storage.log.descriptors import are_exhausted
from klog.storage.log.disk_guard import NoSegmentError, all_or_nothing, on_disk
from klog.storage.log.log_values import Background, LogState
from klog.storage.log.open_file import sync_file
from klog.storage.log.readable_log import ReadableLog
from klog.storage.log.reading import OffsetOutOfRangeError
from klog.storage.log.segment import LogSegment
from klog.storage.log.segments import discard, new_segment, unlink


class SegmentedLog(ReadableLog):
    """One replica's log whose segments come and go."""

    def __init__(
        self,
        partition: TopicPartition,
        directory: str,
        config: TopicConfig,
        state: LogState,
        clock_ms: Callable[[], int],
        background: Background,
        jitter: Callable[[int], int],
    ) -> None:
        super().__init__(partition, directory, config, state)
        self._clock_ms = clock_ms
        self._background = background
        self._jitter = jitter
        self._snapshots = state.snapshots
        self.recovery_point = state.recovery_point
        self.last_flush_ms = clock_ms()
        self._unflushed_records = 0
        # How many times the log was truncated: what was read of it before may not be in it any more.
        self.cuts = 0
        self._cut_to = INT64_MAX
        self._roll_ms = self._next_roll_ms()

    def _notify_failure(self, error: OSError | StorageError) -> None:
        self._background.failed(self, error)

    def reconfigure(self, config: TopicConfig) -> None:
        """The topic's configs have changed."""
        with self.lock:
            self.config = config
            for segment in self.segments:
                segment.reconfigure(config)
            self._roll_ms = self._next_roll_ms()

    def _next_roll_ms(self) -> int:
        # Jitter is drawn for each segment, so that partitions made together do not roll together.
        limit = min(self.config.segment_jitter_ms, self.config.roll_ms)
        return self.config.roll_ms - (self._jitter(limit) if limit > 0 else 0)

    # -- rolling and flushing --------------------------------------------------------------------------------

    @on_disk
    def roll(self, base_offset: int = 0) -> LogSegment:
        """Start a new active segment at the log's end, or at `base_offset` beyond it; returns it.

        Raises `NoSegmentError` if only descriptors or memory are missing: that is no failure of the disk.
        """
        base = max(base_offset, self.log_end_offset)
        old = self.segments.active
        if old.base_offset == base:
            if old.size:
                raise KlogError(f"cannot roll to offset {base}: a segment with records starts there")
            # Empty, but full, because an index is too small for one entry. Like Kafka, create it again.
            with all_or_nothing(self.directory):
                self.segments.remove([old])
                unlink(old)
                self._new_segment(base)
                self._take_snapshot(base)
        else:
            self._follow_with_new(old, base)
        self._background.flush(self, base)
        return self.segments.active

    def _follow_with_new(self, old: LogSegment, base_offset: int) -> None:
        new = None
        try:
            new = new_segment(self.directory, base_offset, self.config, self._clock_ms())
            old.finish()
            self._take_snapshot(base_offset)
        except OSError as error:
            self.producers.end_offset = self.log_end_offset
            if new is not None:
                unlink(new)
            if not are_exhausted(error):
                raise
            if new is not None:
                old.activate()
            raise NoSegmentError(
                f"no new segment can be begun: {error.strerror}", file=self.directory
            ) from error
        self.segments.add(new)
        self._roll_ms = self._next_roll_ms()

    def _take_snapshot(self, base_offset: int) -> None:
        self.producers.end_offset = base_offset
        self._snapshots.take(base_offset, self.producers)

    def _new_segment(self, base_offset: int) -> None:
        self.segments.add(new_segment(self.directory, base_offset, self.config, self._clock_ms()))
        self._roll_ms = self._next_roll_ms()

    def flush(self, up_to_offset: int | None = None) -> None:
        """Force everything below the offset (default: all) to disk and move the recovery point."""
        with self.lock:
            end = self.log_end_offset if up_to_offset is None else min(up_to_offset, self.log_end_offset)
            recovery_point = self.recovery_point
            if end <= recovery_point or self.closed:
                return
            numbers = range(self.segments.floor(recovery_point), len(self.segments))
            segments = [self.segments[n] for n in numbers if self.segments.bases[n] < end]
            is_first = self.segments.bases[0] >= recovery_point
            unflushed = self._unflushed_records
            epochs = self.epochs.take_unsynced()
        try:
            # Without the lock: others go on reading and appending meanwhile.
            if epochs is not None:
                sync_file(epochs)
            for segment in segments:
                segment.flush()
                self._snapshots.flush(segment.base_offset)
            self._snapshots.flush(end)
            if any(segment.base_offset >= recovery_point for segment in segments):
                sync_file(self.directory)
            if is_first:
                sync_file(os.path.dirname(self.directory))
        except OSError as error:
            with self.lock:
                if epochs is not None:
                    self.epochs.not_synced()
            self.fail(error)
            raise
        with self.lock:
            # The log may have been cut meanwhile.
            if self.recovery_point < end <= self.log_end_offset:
                self._flushed(end, unflushed)

    def _flushed(self, end: int, records: int) -> None:
        self.recovery_point = end
        self.last_flush_ms = self._clock_ms()
        self._unflushed_records -= min(records, self._unflushed_records)

    # -- cutting ---------------------------------------------------------------------------------------------

    @on_disk
    def delete_oldest(self, count: int) -> None:
        """Remove the oldest segments from the log, at most all of them; their files are unlinked later."""
        going = list(self.segments)[:count]
        if going and len(going) == len(self.segments):
            if self.segments.active.size:
                self.roll()
            else:
                going.pop()
        if going:
            self.advance_log_start(self.segments.bases[len(going)])
            self._delete(going, newest_first=False)

    def _delete(self, segments: Iterable[LogSegment], *, newest_first: bool) -> None:
        gone = list(segments)
        self.segments.remove(gone)
        renamed = discard(gone, newest_first=newest_first)
        for segment in gone:
            snapshot = self._snapshots.discard(segment.base_offset)
            if snapshot is not None:
                renamed.append(snapshot)
        if renamed:
            self._background.delete_later(self, renamed, self.config.file_delete_delay_ms)

    @on_disk
    def advance_log_start(self, offset: int) -> bool:
        """Move the log start offset up to at most the high watermark; whether it moved.

        Raises `OffsetOutOfRangeError` above the high watermark.
        """
        if offset > self.high_watermark:
            raise OffsetOutOfRangeError(
                f"log start offset {offset} would be above the high watermark {self.high_watermark}"
            )
        if offset <= self.log_start_offset:
            return False
        self.epochs.truncate_from_start(offset)
        self.log_start_offset = offset
        self.recovery_point = max(self.recovery_point, offset)
        self.producers.high_watermark_moved(offset)
        return True

    @on_disk
    def truncate_to(self, offset: int) -> bool:
        """Drop everything at and above `offset`; whether anything was dropped."""
        if offset >= self.log_end_offset:
            # An epoch that starts at the end and has no records may contradict the leader's epochs.
            self.epochs.truncate_from_end(self.log_end_offset)
            return False
        if self.segments.bases[0] > offset:
            self.restart_at(offset)
            return True
        with all_or_nothing(self.directory):
            self._delete([s for s in self.segments if s.base_offset > offset], newest_first=True)
            self.segments.active.truncate_to(offset, self._clock_ms())
            self.log_start_offset = min(self.log_start_offset, offset)
            self._ends_at(offset)
        return True

    @on_disk
    def restart_at(self, offset: int, log_start_offset: int | None = None) -> None:
        """Drop everything and start an empty log at `offset`; the log start offset may differ."""
        with all_or_nothing(self.directory):
            self._delete(self.segments, newest_first=True)
            self._new_segment(offset)
            self.epochs.clear()
            self._snapshots.delete_all()
            self.log_start_offset = offset if log_start_offset is None else log_start_offset
            self._ends_at(offset)
            self._cut_to = -1

    def _ends_at(self, offset: int) -> None:
        self.log_end_offset = offset
        self.cuts += 1
        self._cut_to = min(self._cut_to, offset)
        self.recovery_point = min(self.recovery_point, offset)
        self.high_watermark = max(self.log_start_offset, min(self.high_watermark, offset))
        self.epochs.truncate_from_end(offset)
        # If the log had no producers, a part of it has none, so nothing is replayed.
        replayed = () if self.producers.is_empty else self.segments
        self.producers = self._snapshots.load(
            offset,
            log_start_offset=self.log_start_offset,
            segments={segment.base_offset: segment.path(FileKind.LOG) for segment in replayed},
            now_ms=self._clock_ms(),
        )
        self.producers.high_watermark_moved(self.high_watermark)
        self._roll_ms = self._next_roll_ms()

    def take_cut(self) -> int | None:
        """The lowest offset to which the log was truncated since the last call; None if it was not.

        It is -1 if the log was restarted. A copy has to be cut likewise. The caller holds the lock.
        """
        if self._cut_to == INT64_MAX:
            return None
        cut, self._cut_to = self._cut_to, INT64_MAX
        return cut

    # -- moving and closing ----------------------------------------------------------------------------------

    @on_disk
    def rename_directory(self, directory: str) -> None:
        """Rename the log's directory."""
        with all_or_nothing(self.directory):
            os.rename(self.directory, directory)
            sync_file(os.path.dirname(directory))
        self.directory = directory
        for segment in self.segments:
            segment.move_to(directory)
        self._snapshots.directory = directory
        self.epochs.move_to(directory)

    def close(self, on_disk_to: int | None = None) -> None:
        """Close as at a clean stop: a snapshot at the end, indexes trimmed, everything on disk.

        `on_disk_to` is what `finish` has returned if all was forced to disk since then.
        """
        with self.lock:
            if self.closed:
                return
            if on_disk_to == self.log_end_offset:
                self._flushed(on_disk_to, self._unflushed_records)
            else:
                self._flush_finished()
            self.release()

    @on_disk
    def finish(self) -> int:
        """Write all that belongs to a clean stop, without forcing it to disk; returns the log's end."""
        self.segments.active.finish()
        self._snapshots.take(self.log_end_offset, self.producers)
        return self.log_end_offset

    @on_disk
    def _flush_finished(self) -> None:
        is_flushed = self.finish() <= self.recovery_point
        self.flush()
        if is_flushed:
            self._snapshots.flush(self.log_end_offset)
