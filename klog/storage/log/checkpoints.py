"""The offset checkpoints of a log directory: recovery points, log start offsets, high watermarks.

Rules: Kafka's `LogManager.checkpointLogRecoveryOffsets` and `checkpointLogStartOffsets`, and
`ReplicaManager.checkpointHighWatermarks`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from klog.formats.names import FileKind
from klog.storage.log.data_directory import DataDirectory
from klog.storage.log.partition_log import PartitionLog

ALL_CHECKPOINTS: Final = (
    FileKind.RECOVERY_POINT_CHECKPOINT,
    FileKind.LOG_START_CHECKPOINT,
    FileKind.REPLICATION_CHECKPOINT,
)


def write_checkpoints(
    directory: DataDirectory, logs: Callable[[], Iterable[PartitionLog]], kinds: Sequence[FileKind]
) -> None:
    """Write checkpoints of these kinds for `logs`, the logs of the directory at the time of writing.

    Raises `OSError`, `StorageError`.
    """
    # The offsets are read under the lock, too: the last writer of a file must have the newest ones.
    with directory.checkpoint_lock:
        found = list(logs())
        for kind in kinds:
            directory.write_offsets(
                kind, {log.partition: offset for log in found for offset in _offsets(kind, log)}
            )


def _offsets(kind: FileKind, log: PartitionLog) -> tuple[int, ...]:
    """The offset of a log in a checkpoint, if it has an entry there."""
    if kind is FileKind.RECOVERY_POINT_CHECKPOINT:
        return (log.recovery_point,)
    if kind is FileKind.LOG_START_CHECKPOINT:
        # The first segment's name says the rest.
        return (log.log_start_offset,) if log.log_start_offset > log.segments.bases[0] else ()
    return (log.high_watermark,)
