"""The part of a partition's log that readers use: its segments, offsets and epochs.

Rules: Kafka's `UnifiedLog.read` and `LocalLog.read`. All public methods are safe for threads unless they say
that the caller holds the lock. `segmented_log` and `partition_log` add what changes the log.
"""

from __future__ import annotations

import logging
import threading

from klog.config.topic import TopicConfig
from klog.formats.epochs import EpochEnd
from klog.formats.errors import StorageError
from klog.formats.names import TopicPartition
from klog.storage.log.descriptors import STAYS_ONLINE, are_exhausted
from klog.storage.log.disk_guard import require_open
from klog.storage.log.earlier_records import EarlierRecords, UnreadableRecordsError
from klog.storage.log.log_values import LogState
from klog.storage.log.reading import OffsetOutOfRangeError, Read, aborted_in, find_range
from klog.storage.log.segments import Segments

_log = logging.getLogger(__name__)


class ReadableLog:
    """One replica's log. Every method that looks at segments or changes anything holds `lock`."""

    def __init__(
        self, partition: TopicPartition, directory: str, config: TopicConfig, state: LogState
    ) -> None:
        self.partition = partition
        self.directory = directory
        self.config = config
        self.lock = threading.RLock()
        self.segments = Segments(state.segments)
        self.producers = state.producers
        self.epochs = state.epochs
        self.log_start_offset = state.log_start_offset
        self.log_end_offset = state.log_end_offset
        self.high_watermark = state.log_start_offset
        self.earlier: EarlierRecords | None = None
        self.closed = False

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.partition}, {self.log_start_offset}..{self.log_end_offset})"

    # -- state -----------------------------------------------------------------------------------------------

    @property
    def size_bytes(self) -> int:
        """Bytes of all segments."""
        with self.lock:
            earlier_bytes = 0 if self.earlier is None else self.earlier.size_bytes
            return earlier_bytes + sum(segment.size for segment in self.segments)

    @property
    def last_stable_offset(self) -> int:
        """The first offset that read_committed consumers may not see yet."""
        unstable = self.producers.first_unstable_offset
        if unstable is None:
            return self.high_watermark
        return min(max(unstable, self.log_start_offset), self.high_watermark)

    def set_high_watermark(self, offset: int) -> int:
        """Move the high watermark (within the log); returns where it is now."""
        with self.lock:
            self.high_watermark = max(self.log_start_offset, min(offset, self.log_end_offset))
            self.producers.high_watermark_moved(self.high_watermark)
            return self.high_watermark

    def raise_high_watermark(self, offset: int) -> bool:
        """Move the high watermark up to an offset within the log; whether it moved. The caller holds the
        lock.
        """
        if offset <= self.high_watermark:
            return False
        self.high_watermark = offset
        self.producers.high_watermark_moved(offset)
        return True

    def end_of_epoch(self, epoch: int) -> EpochEnd:
        """The largest epoch at or below `epoch` and its end offset; (-1, -1) if they are not known."""
        with self.lock:
            return self.epochs.end_of(epoch, self.log_end_offset)

    def start_after(self, earlier: EarlierRecords) -> None:
        """Let the log start with records that are elsewhere: its own segments follow them."""
        with self.lock:
            self.earlier = earlier
            self.log_start_offset = earlier.start_offset

    # -- reading ---------------------------------------------------------------------------------------------

    def read(
        self,
        offset: int,
        max_bytes: int,
        limit_offset: int,
        *,
        at_least_one: bool = False,
        committed: bool = False,
        may_wait: bool = True,
    ) -> Read:
        """Batches from the one that holds `offset` on, up to `limit_offset` (exclusive) and `max_bytes`.

        `at_least_one` gives the first batch whole even if it is larger than `max_bytes`; `committed` adds the
        aborted transactions of what is read. Raises `OffsetOutOfRangeError`, and `ColdReadError` if the disk
        is needed and the caller may not wait for it.
        """
        with self.lock:
            return self.read_locked(offset, max_bytes, limit_offset, at_least_one, committed, may_wait)

    def read_locked(
        self,
        offset: int,
        max_bytes: int,
        limit_offset: int,
        at_least_one: bool,
        committed: bool,
        may_wait: bool,
    ) -> Read:
        """As `read`. The caller holds the lock."""
        require_open(self)
        try:
            return self._read(offset, max_bytes, limit_offset, at_least_one, committed, may_wait)
        except UnreadableRecordsError:
            raise
        except (OSError, StorageError) as error:
            self.fail(error)
            raise

    def _read(
        self,
        offset: int,
        max_bytes: int,
        limit_offset: int,
        at_least_one: bool,
        committed: bool,
        may_wait: bool,
    ) -> Read:
        end = self.log_end_offset
        if not self.log_start_offset <= offset <= end:
            raise OffsetOutOfRangeError(f"offset {offset} is outside of {self.log_start_offset} to {end}")
        if self.earlier is not None and max_bytes >= 0 and offset < min(limit_offset, self.segments.bases[0]):
            earlier = self.earlier.read(
                offset,
                max_bytes,
                limit_offset,
                at_least_one=at_least_one,
                committed=committed,
                may_wait=may_wait,
            )
            if earlier is not None:
                file, position, size, base_offset, aborted = earlier
                return self.nothing()._replace(
                    file=file, position=position, size=size, segment_base=base_offset, aborted=aborted
                )
        found = None
        if offset < limit_offset:
            found = find_range(self.segments, offset, limit_offset, end, max_bytes, at_least_one, may_wait)
        if found is None:
            return self.nothing()._replace(position=self.segments.active.size)
        segment = self.segments[found.number]
        aborted = aborted_in(self.segments, found, offset, end) if committed else ()
        return Read(
            segment.file,
            found.position,
            found.size,
            segment.base_offset,
            self.high_watermark,
            self.last_stable_offset,
            self.log_start_offset,
            end,
            aborted,
        )

    def nothing(self) -> Read:
        """A read without records, at the start of the active segment."""
        return Read(
            None,
            0,
            0,
            self.segments.active.base_offset,
            self.high_watermark,
            self.last_stable_offset,
            self.log_start_offset,
            self.log_end_offset,
        )

    # -- failing and closing ---------------------------------------------------------------------------------

    def fail(self, error: OSError | StorageError) -> None:
        """Close the log because its disk has failed, and report the error.

        A lack of descriptors or memory is no fault of the disk: the log stays open.
        """
        if are_exhausted(error):
            _log.error("%s: %s; %s", self.directory, error, STAYS_ONLINE)
            return
        with self.lock:
            if not self.closed:
                self.release()
                self._notify_failure(error)

    def _notify_failure(self, error: OSError | StorageError) -> None:
        """The log has been closed because of this error. Called with the lock held."""

    def release(self) -> None:
        """Close all files without changing them: the directory has failed or is deleted."""
        with self.lock:
            self.closed = True
            for segment in self.segments:
                segment.release()
