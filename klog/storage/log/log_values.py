"""What a partition's log is made of, what an append tells, and what a log leaves to others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

from klog.formats.errors import StorageError
from klog.storage.log.epoch_file import EpochFile
from klog.storage.log.producers import Producers
from klog.storage.log.segment import LogSegment
from klog.storage.log.snapshot_files import SnapshotFiles

if TYPE_CHECKING:
    from klog.storage.log.partition_log import PartitionLog


class Background(Protocol):
    """What a log leaves to others to do soon, in another thread."""

    def flush(self, log: PartitionLog, up_to_offset: int) -> None:
        """Force everything below the offset to disk."""

    def delete_later(self, log: PartitionLog, paths: Sequence[str], delay_ms: int) -> None:
        """Unlink files (already renamed to `.deleted`) after a while."""

    def failed(self, log: PartitionLog, error: OSError | StorageError) -> None:
        """The disk has failed under the log. Called with the log's lock held: it may not wait for others."""


class AppendInfo(NamedTuple):
    """What an append did. `duplicate` says that the records were in the log already."""

    first_offset: int
    last_offset: int
    log_append_time_ms: int
    log_start_offset: int
    size_bytes: int = 0
    duplicate: bool = False


@dataclass(frozen=True, slots=True)
class LogState:
    """What loading found: the parts that a `PartitionLog` is made of. The last segment is active."""

    segments: tuple[LogSegment, ...]
    producers: Producers
    snapshots: SnapshotFiles
    epochs: EpochFile
    log_start_offset: int
    log_end_offset: int
    recovery_point: int
