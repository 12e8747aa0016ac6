"""The values of a partition's log: its parts, the result of an append, and work for other threads."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from klog.formats.errors import StorageError
from klog.storage.log.epoch_file import EpochFile
from klog.storage.log.producers import Producers
from klog.storage.log.second_opinions import SecondOpinions
from klog.storage.log.segment import LogSegment
from klog.storage.log.snapshot_files import SnapshotFiles


class GuardedLog(Protocol):
    """A log as those see it who close it if its disk fails, and who work for it in other threads."""

    @property
    def directory(self) -> str: ...
    @property
    def closed(self) -> bool: ...
    @property
    def lock(self) -> AbstractContextManager[object]: ...

    def fail(self, error: OSError | StorageError) -> None:
        """The disk has failed: close the log, and notify its `Background`."""


class FlushedLog(GuardedLog, Protocol):
    """A log that is forced to disk by another thread."""

    def flush(self, up_to_offset: int) -> None:
        """Force everything below the offset to disk."""


class Background(Protocol):
    """Work that a log gives to other threads, and what all logs of a broker share."""

    opinions: SecondOpinions

    def flush(self, log: FlushedLog, up_to_offset: int) -> None:
        """Force everything below the offset to disk."""

    def delete_later(self, log: GuardedLog, paths: Sequence[str], delay_ms: int) -> None:
        """Unlink files (already renamed to `.deleted`) after a while."""

    def failed(self, log: GuardedLog, error: OSError | StorageError) -> None:
        """The log's disk has failed. Called with the log's lock held, so it must not wait."""


class AppendInfo(NamedTuple):
    """The result of an append. If it is a `duplicate`, the log had the records already.

    They are `converted` if they were not written as they came.
    """

    first_offset: int
    last_offset: int
    log_append_time_ms: int
    log_start_offset: int
    size_bytes: int = 0
    duplicate: bool = False
    converted: bool = False


@dataclass(frozen=True, slots=True)
class LogState:
    """The parts of a `PartitionLog` as they were loaded. The last segment is active."""

    segments: tuple[LogSegment, ...]
    producers: Producers
    snapshots: SnapshotFiles
    epochs: EpochFile
    log_start_offset: int
    log_end_offset: int
    recovery_point: int
