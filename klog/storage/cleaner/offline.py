"""Cleans partition directories that no broker has open: decides what to do and does it.

Rules: the same as in a broker, once: what the cleaner would do to the log now, then what retention would
delete. Nothing at or above the high watermark (`replication-offset-checkpoint`) is changed.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from klog.config.topic import TopicConfig
from klog.formats.errors import StorageError
from klog.formats.names import FileKind, TopicPartition, segment_file
from klog.storage.cleaner.checkpoint_file import CleanerCheckpointFile
from klog.storage.cleaner.cleaning import OnBytes, clean
from klog.storage.cleaner.closed_log import ClosedLog, open_closed_log
from klog.storage.cleaner.output import KINDS
from klog.storage.cleaner.selection import DirtyLog, dirty_log
from klog.storage.cleaner.swap import DirectoryChanges, mark_deleted, remove, swap_in
from klog.storage.cleaner.task import CleanerSettings, CleanResult, CleanTask
from klog.storage.cleaner.view import SegmentView
from klog.storage.files.checkpoint_files import offsets_if_any, read_leader_epochs, write_offsets
from klog.storage.files.files import storage_errors
from klog.storage.files.kafka_files import partition_of
from klog.storage.log.epoch_file import EpochFile
from klog.storage.log.retention import Extent, deletable
from klog.storage.repair.leader_epochs import LeaderEpochs


@dataclass(frozen=True, slots=True)
class CleaningPlan:
    """A closed log and what its topic's configs say about it now. `high_watermark` is as far as it is
    known.
    """

    log: ClosedLog
    dirty: DirtyLog
    deletable: tuple[SegmentView, ...]
    high_watermark: int

    @property
    def compacts(self) -> bool:
        """Whether there is something to compact."""
        return self.dirty.reason is None

    @property
    def changes(self) -> bool:
        """Whether there is anything to do."""
        return self.compacts or bool(self.deletable)


@dataclass(frozen=True, slots=True)
class CleanedLog:
    """What was done to a log: the cleaning (None: none was necessary), the segments deleted, the new size."""

    cleaned: CleanResult | None
    deleted: tuple[SegmentView, ...]
    size_bytes: int


class OfflineDirectory:
    """One log directory. Methods raise `StorageError` and other `KlogError`s.

    The caller holds its lock; if a broker has it `in_use`, the caller only judges.
    """

    def __init__(
        self,
        path: str,
        config: TopicConfig,
        *,
        now_ms: int,
        settings: CleanerSettings | None = None,
        in_use: bool = False,
    ) -> None:
        self.path = path
        self._config = config
        self._now_ms = now_ms
        self._settings = settings or CleanerSettings()
        self._in_use = in_use
        self._changes = DirectoryChanges()
        self._cleaned = CleanerCheckpointFile(path)
        self._starts = offsets_if_any(os.path.join(path, FileKind.LOG_START_CHECKPOINT)) or {}
        self._watermarks = offsets_if_any(os.path.join(path, FileKind.REPLICATION_CHECKPOINT))

    @property
    def stopped_cleanly(self) -> bool:
        """Whether the broker that used the directory stopped cleanly; True if none used it or one runs."""
        if self._in_use or not os.path.exists(os.path.join(self.path, FileKind.META_PROPERTIES)):
            return True
        return os.path.exists(os.path.join(self.path, FileKind.CLEAN_SHUTDOWN))

    def judge(self, directory: str) -> CleaningPlan | None:
        """What to do with a partition directory; None if it has no segment."""
        partition = partition_of(directory) or TopicPartition(os.path.basename(os.path.abspath(directory)), 0)
        # If the file exists without an entry for a log, nothing of that log is known to be committed.
        watermark = None if self._watermarks is None else self._watermarks.get(partition, 0)
        log = open_closed_log(
            directory,
            partition,
            self._config,
            log_start_offset=self._starts.get(partition, 0),
            now_ms=self._now_ms,
            high_watermark=watermark,
            in_use=self._in_use,
        )
        if log is None:
            return None
        view = log.view
        committed = view.log_end_offset if watermark is None else min(watermark, view.log_end_offset)
        dirty = dirty_log(view, self._cleaned.read().get(partition), self._now_ms)
        ends = [*(segment.base_offset for segment in view.segments[1:]), view.log_end_offset]
        extents = [
            Extent(segment.base_offset, end, segment.size_bytes, segment.largest_timestamp_ms)
            for segment, end in zip(view.segments, ends, strict=True)
        ]
        count = deletable(
            extents,
            self._config,
            log_start_offset=view.log_start_offset,
            high_watermark=committed,
            now_ms=self._now_ms,
        )
        return CleaningPlan(log, dirty, view.segments[:count], committed)

    def carry_out(self, directory: str, plan: CleaningPlan, on_bytes: OnBytes = lambda _: None) -> CleanedLog:
        """Compact the log, then delete what retention allows, as a cleaner thread does."""
        partition = plan.log.view.partition
        cleaned = None
        if plan.compacts:
            cleaned = self._compact(directory, plan, on_bytes)
            self._cleaned.update({partition: cleaned.end_offset})
        # Compaction has merged segments, so the deletable ones are determined again.
        after = self.judge(directory) if cleaned is not None else plan
        if after is None:
            raise StorageError("all segments are gone", file=directory)
        if after.deletable:
            self._delete(directory, after)
        gone = {segment.base_offset for segment in after.deletable}
        left = [segment for segment in after.log.view.segments if segment.base_offset not in gone]
        return CleanedLog(cleaned, after.deletable, sum(segment.size_bytes for segment in left))

    def _compact(self, directory: str, plan: CleaningPlan, on_bytes: OnBytes) -> CleanResult:
        task = CleanTask.of(plan.dirty, self._now_ms, plan.log.last_records, self._settings)
        return clean(
            task,
            lambda group: remove(swap_in(directory, group, self._changes), self._changes),
            on_bytes,
        )

    def _delete(self, directory: str, plan: CleaningPlan) -> None:
        """The log start moves first, then segments are deleted, oldest first. So a crash leaves no gap."""
        view = plan.log.view
        kept = view.segments[len(plan.deletable) :]
        start = kept[0].base_offset if kept else view.log_end_offset
        with storage_errors("segments cannot be deleted", directory):
            if not kept:
                self._make_segment(directory, start)
            self._raise_log_start(view.partition, start)
            _forget_epochs(directory, start)
            gone = mark_deleted(directory, [segment.base_offset for segment in plan.deletable], self._changes)
            self._changes.sync(directory)
        remove(gone, self._changes)

    def _make_segment(self, directory: str, base_offset: int) -> None:
        """Create an empty segment, because a log always has one."""
        for kind in KINDS[:3]:
            with open(os.path.join(directory, segment_file(kind, base_offset)), "xb"):
                pass
        self._changes.sync(directory)

    def _raise_log_start(self, partition: TopicPartition, offset: int) -> None:
        path = os.path.join(self.path, FileKind.LOG_START_CHECKPOINT)
        if offset <= self._starts.get(partition, 0) or not os.path.exists(path):
            return
        self._starts[partition] = offset
        write_offsets(path, self._starts)


def _forget_epochs(directory: str, start_offset: int) -> None:
    """Remove leader epochs below the log's start. Raises `FormatError`, `StorageError`."""
    entries = read_leader_epochs(directory)
    if entries:
        EpochFile(directory, LeaderEpochs(entries)).truncate_from_start(start_offset)
