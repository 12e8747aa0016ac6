"""The producer snapshots of a log that a broker serves: written, removed, and read back after a truncation.

Rules: Kafka's `ProducerStateManager` (`takeSnapshot`, `truncateAndReload`, `removeStraySnapshots`) and
`UnifiedLog.rebuildProducerState`. `klog.storage.repair.producer_snapshots` decides which snapshot to start
from and what to replay; recovery uses it, too.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Mapping

from klog.formats.names import FileKind, FileState, segment_file
from klog.storage.files.partition_files import list_partition
from klog.storage.log.open_file import sync_file
from klog.storage.log.producers import Producers
from klog.storage.reading.producer_state import pack_snapshot
from klog.storage.repair.producer_snapshots import Snapshots

_log = logging.getLogger(__name__)


class SnapshotFiles:
    """The `.snapshot` files of one partition directory. Guarded by the log's lock.

    `latest` is the offset of the newest snapshot that describes no more than the log holds. No snapshot is
    taken at or below it.
    """

    def __init__(self, directory: str, *, expiration_ms: int, latest: int = 0) -> None:
        self.directory = directory
        self.latest = latest
        self._expiration_ms = expiration_ms

    def path(self, offset: int) -> str:
        """The path of the snapshot at an offset."""
        return os.path.join(self.directory, segment_file(FileKind.PRODUCER_SNAPSHOT, offset))

    def take(self, offset: int, producers: Producers) -> None:
        """Write a snapshot of the producers at `offset`, unless there is one. Raises `OSError`."""
        if offset <= self.latest:
            return
        # Not forced to disk here: the flush after a roll does that, and recovery can do without it.
        with open(self.path(offset), "wb") as file:
            file.write(pack_snapshot(producers.entries(), producers.batches))
        self.latest = offset

    def flush(self, offset: int) -> None:
        """Force the snapshot at an offset to disk, if there is one. Raises `OSError`."""
        sync_file(self.path(offset))

    def delete_all(self) -> None:
        """Remove all snapshots. Raises `OSError`, `StorageError`."""
        for offset in list_partition(self.directory).snapshots:
            os.unlink(self.path(offset))
        self.latest = 0

    def drop_strays(self, base_offsets: Collection[int]) -> None:
        """Remove the snapshots that belong to no segment; the last one stays if it is above all segments."""
        present = list_partition(self.directory).snapshots
        snapshots = Snapshots(dict.fromkeys(present, ""), now_ms=0, expiration_ms=self._expiration_ms)
        snapshots.drop_strays(base_offsets)
        for offset in set(present) - set(snapshots.offsets):
            os.unlink(self.path(offset))

    def load(
        self,
        end_offset: int,
        *,
        log_start_offset: int,
        segments: Mapping[int, str],
        now_ms: int,
        replay: bool = True,
    ) -> Producers:
        """The producers at `end_offset`, from the newest valid snapshot and the `segments` (paths) after it.

        Snapshots outside of the log are removed. Those that Kafka takes during a replay are taken. Without
        `replay` (after a clean stop), a log that has no snapshot has no producers.
        Raises `OSError`, `StorageError`.
        """
        present = list_partition(self.directory).snapshots
        snapshots = Snapshots(
            {offset: self.path(offset) for offset in present},
            now_ms=now_ms,
            expiration_ms=self._expiration_ms,
            on_bad=lambda offset, error: _log.warning("%s: %s; it is removed", self.path(offset), error.what),
        )
        if not replay and not present:
            producers = Producers((), end_offset)
            for offset in [*sorted(segments)[-2:], end_offset]:
                self.take(offset, producers)
            return producers
        state = snapshots.state_at(end_offset, log_start_offset=log_start_offset, segments=segments)
        for offset in set(present) - set(snapshots.offsets):
            os.unlink(self.path(offset))
        for offset, data in snapshots.taken.items():
            with open(self.path(offset), "wb") as file:
                file.write(data)
        self.latest = state.snapshot_offset
        return Producers(state.producers.values(), end_offset, state.history)

    def discard(self, offset: int) -> str | None:
        """Rename the snapshot of a deleted segment to `.deleted`; its new path, None if there is none."""
        path = self.path(offset)
        try:
            os.rename(path, path + FileState.DELETED)
        except FileNotFoundError:
            return None
        return path + FileState.DELETED
