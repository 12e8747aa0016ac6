"""The task, the progress and the result of one cleaning: values that are sent to another process and back."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from klog.formats.errors import KlogError
from klog.formats.names import FileKind, FileState, segment_file
from klog.storage.cleaner.selection import DirtyLog
from klog.storage.cleaner.view import LastRecords, SegmentView

DEFAULT_DEDUPE_BUFFER_BYTES: Final = 134_217_728
DEFAULT_IO_BUFFER_BYTES: Final = 524_288
DEFAULT_REPORT_BYTES: Final = 4 << 20


class CleaningAbortedError(KlogError):
    """The cleaning was aborted. The log is unchanged, except for the groups that were swapped in."""


class SegmentOverflowError(KlogError):
    """A segment has offsets that its index cannot hold (KAFKA-6264); Kafka splits it."""


@dataclass(frozen=True, slots=True)
class CleanerSettings:
    """The part of one cleaner thread in the broker's `log.cleaner.*`.

    Half of the I/O buffer is for reading, half for writing; it grows for a batch that is larger.
    `load_factor` is `log.cleaner.io.buffer.load.factor`. A worker process reports after each `report_bytes`
    read and written, which is rare enough to cost the broker nothing.
    """

    dedupe_buffer_bytes: int = DEFAULT_DEDUPE_BUFFER_BYTES
    load_factor: float = 0.9
    io_buffer_bytes: int = DEFAULT_IO_BUFFER_BYTES
    report_bytes: int = DEFAULT_REPORT_BYTES

    @property
    def buffer_bytes(self) -> int:
        """The bytes that are read at a time."""
        return max(self.io_buffer_bytes // 2, 1)


@dataclass(frozen=True, slots=True)
class CleanTask:
    """A log and the part of it to clean, with its configs and producers at `now_ms`.

    `segments` are those below `first_uncleanable_offset`. `later_bases` are the base offsets of the others: a
    transaction may have ended in one of them.
    """

    directory: str
    segments: tuple[SegmentView, ...]
    first_dirty_offset: int
    first_uncleanable_offset: int
    now_ms: int
    delete_retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    index_interval_bytes: int
    later_bases: tuple[int, ...] = ()
    last_records: LastRecords = field(default_factory=dict)
    settings: CleanerSettings = field(default_factory=CleanerSettings)

    @classmethod
    def of(
        cls, dirty: DirtyLog, now_ms: int, last_records: LastRecords, settings: CleanerSettings
    ) -> CleanTask:
        """The task of cleaning the cleanable part of `dirty`."""
        log, config, limit = dirty.log, dirty.log.config, dirty.first_uncleanable_offset
        return cls(
            directory=log.directory,
            segments=tuple(one for one in log.segments if one.base_offset < limit),
            first_dirty_offset=dirty.first_dirty_offset,
            first_uncleanable_offset=limit,
            now_ms=now_ms,
            delete_retention_ms=config.delete_retention_ms,
            segment_bytes=config.segment_bytes,
            segment_index_bytes=config.segment_index_bytes,
            index_interval_bytes=config.index_interval_bytes,
            later_bases=tuple(one.base_offset for one in log.segments if one.base_offset >= limit),
            last_records=last_records,
            settings=settings,
        )

    def path(self, kind: FileKind, base_offset: int) -> str:
        """A file of one of the log's segments."""
        return os.path.join(self.directory, segment_file(kind, base_offset))


class CleanedGroup(NamedTuple):
    """One finished segment. Its `.cleaned` files are on disk, ready to replace the old ones."""

    base_offset: int
    replaces: tuple[int, ...]
    size_bytes: int


@dataclass(slots=True)
class CleanStats:
    """What a cleaning read and wrote. `map_utilization` is the filled part of the offset map, from 0 to 1."""

    bytes_read: int = 0
    bytes_written: int = 0
    records_read: int = 0
    records_written: int = 0
    invalid_records: int = 0
    map_utilization: float = 0.0
    seconds: float = 0.0


class CleanResult(NamedTuple):
    """The end of the clean part of the log (its new checkpoint), and the statistics."""

    end_offset: int
    stats: CleanStats


CLEANED: Final = FileState.CLEANED
SWAP: Final = FileState.SWAP
DELETED: Final = FileState.DELETED
