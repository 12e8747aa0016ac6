"""Reads and writes `cleaner-offset-checkpoint`: the offset up to which each compacted log is clean.

Rules: Kafka's `LogCleanerManager.updateCheckpoints`: entries of logs that no longer exist are removed.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping

from klog.formats.names import FileKind, TopicPartition
from klog.storage.files.checkpoint_files import offsets_if_any, write_offsets


class CleanerCheckpointFile:
    """The file of one log directory. Methods raise `StorageError`."""

    def __init__(self, log_directory: str) -> None:
        self.path = os.path.join(log_directory, FileKind.CLEANER_CHECKPOINT)

    def read(self) -> dict[TopicPartition, int]:
        """First dirty offset by partition; empty if there is no file, or it is damaged: all is dirty then."""
        return offsets_if_any(self.path) or {}

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
        """Set some offsets and remove others; with `existing` remove those of all logs that no longer
        exist.
        """
        offsets = {
            partition: offset
            for partition, offset in self.read().items()
            if partition not in removed and (existing is None or partition in existing)
        }
        self.write(offsets | dict(changes))

    def lower(self, partition: TopicPartition, offset: int) -> None:
        """The log was truncated to `offset`: everything after it is dirty."""
        offsets = self.read()
        if offsets.get(partition, 0) > offset:
            self.write(offsets | {partition: offset})
