"""What a check or rebuild of indexes is given and what it finds, as values."""

from __future__ import annotations

import os
from dataclasses import dataclass
from enum import StrEnum

from klog.formats.errors import StorageError
from klog.formats.names import FileKind, segment_file
from klog.storage.files.files import GZIP_SUFFIX, write_atomically
from klog.storage.reading.producer_history import DEFAULT_PRODUCER_EXPIRATION_MS
from klog.storage.repair.segment_scan import IndexSettings


class IndexStatus(StrEnum):
    """The state of a file before the rebuild. `absent` files are optional: Kafka replays the log instead."""

    VALID = "valid"
    MISSING = "missing"
    BROKEN = "broken"
    ABSENT = "absent"


@dataclass(frozen=True, slots=True)
class RebuildOptions:
    """`check` writes nothing; `force` rebuilds valid indexes too; `snapshots` includes producer snapshots.

    `now_ms` decides which producers in snapshots have expired.
    """

    now_ms: int
    settings: IndexSettings
    check: bool = False
    force: bool = False
    snapshots: bool = False
    producer_expiration_ms: int = DEFAULT_PRODUCER_EXPIRATION_MS


@dataclass(frozen=True, slots=True)
class IndexReport:
    """One file: its state, the problem and its position (None: no problem), and whether it was written.

    A valid index may be allocated in full, after a stop that was not clean or while a broker runs.
    """

    path: str
    status: IndexStatus
    what: str | None = None
    position_bytes: int | None = None
    rebuilt: bool = False
    size_bytes: int | None = None
    is_allocated_in_full: bool = False


@dataclass(frozen=True, slots=True)
class SegmentReport:
    """The indexes of one segment, and the problem of its `.log` with its position, if there is one.

    `unreadable` says why the segment could not be read or its indexes not written.
    """

    path: str
    size_bytes: int
    indexes: tuple[IndexReport, ...]
    problem: str | None = None
    problem_bytes: int | None = None
    unreadable: StorageError | None = None


@dataclass(frozen=True, slots=True)
class SegmentTask:
    """One segment to check or rebuild. `is_gzipped` means a `.log.gz`, which is only read, and `is_held` that
    a process holds the log directory.
    """

    directory: str
    base_offset: int
    active: bool
    size_bytes: int
    is_gzipped: bool = False
    is_held: bool = False

    @property
    def path(self) -> str:
        """The file with the batches."""
        suffix = GZIP_SUFFIX if self.is_gzipped else ""
        return os.path.join(self.directory, f"{segment_file(FileKind.LOG, self.base_offset)}{suffix}")


def write_index(path: str, report: IndexReport, data: bytes, options: RebuildOptions) -> IndexReport:
    """Write an index or a snapshot, unless it is valid; returns its report. Raises `StorageError`."""
    if report.status is IndexStatus.VALID and not options.force:
        return report
    write_atomically(path, data)
    return IndexReport(
        path, report.status, report.what, report.position_bytes, rebuilt=True, size_bytes=len(data)
    )
