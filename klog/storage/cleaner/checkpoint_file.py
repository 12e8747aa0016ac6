"""`cleaner-offset-checkpoint` of a log directory: up to where each of its compacted logs is clean.

Rules: Kafka's `LogCleanerManager.updateCheckpoints`: the file says nothing of logs that are no more.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping

from klog.formats.names import FileKind, TopicPartition
from klog.storage.checkpoint_files import read_offsets, write_offsets


class CleanerCheckpointFile:
    """The file of one log directory. Methods raise `StorageError`; reading also `FormatError`."""

    def __init__(self, log_directory: str) -> None:
        self.path = os.path.join(log_directory, FileKind.CLEANER_CHECKPOINT)

    def read(self) -> dict[TopicPartition, int]:
        """First dirty offset by partition; nothing where there is no file."""
        return read_offsets(self.path)

    def write(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Replace the file."""
        write_offsets(self.path, offsets)

    def update(
        self,
        changes: Mapping[TopicPartition, int],
        *,
        existing: Collection[TopicPartition] | None = None,
        removed: Collection[TopicPartition] = (),
    ) -> None:
        """Set some offsets, drop some, and with `existing` all of logs that are no more."""
        offsets = {
            partition: offset
            for partition, offset in self.read().items()
            if partition not in removed and (existing is None or partition in existing)
        }
        self.write(offsets | dict(changes))

    def lower(self, partition: TopicPartition, offset: int) -> None:
        """The log was truncated to `offset`: what comes after it is dirty."""
        offsets = self.read()
        if offsets.get(partition, 0) > offset:
            self.write(offsets | {partition: offset})
