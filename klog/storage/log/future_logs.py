"""Future logs: copies of replicas that are being moved to another log directory of the same broker.

Rules: Kafka's `LogManager.getOrCreateLog(isFuture)` and `replaceCurrentWithFutureLog`; KIP-113. A future log
is in a directory `<topic>-<partition>.<id>-future`. When it holds what the replica's log holds it takes that
log's place and name.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from klog.formats.errors import StorageError
from klog.formats.names import DirectoryState, TopicPartition
from klog.storage.log.descriptors import are_exhausted
from klog.storage.log.log_factory import LogFactory, marked_path, set_aside
from klog.storage.log.log_map import LogMap, parent_of
from klog.storage.log.partition_log import PartitionLog


@dataclass(frozen=True, slots=True)
class FutureLogs:
    """The future logs of a broker. Safe for threads.

    `lock` is the log manager's: it is held while a log is created, and while a directory goes offline.
    `online` gives the log directories in use. `remove_later` deletes a directory after a while.
    `failed` takes a log directory offline. `checkpoint` writes the checkpoints of one.
    """

    lock: threading.RLock
    logs: LogMap
    factory: LogFactory
    online: Callable[[], Sequence[str]]
    remove_later: Callable[[str], None]
    failed: Callable[[str, OSError | StorageError], None]
    checkpoint: Callable[[str], None]

    def get(self, partition: TopicPartition) -> PartitionLog | None:
        """The log that is to take the place of the one that serves a replica, if there is one."""
        return self.logs.future(partition)

    def create(self, current: PartitionLog, directory: str) -> PartitionLog:
        """An empty log for a replica, in another log directory. Raises `StorageError`, `OSError`.

        The caller has seen that the replica has no future log.
        """
        path = marked_path(current.partition, directory, DirectoryState.FUTURE)
        with self.lock:
            if directory not in self.online():
                raise StorageError("the log directory is offline", file=directory)
            try:
                log = self.factory.create(path, current.partition, current.topic_id)
            except (OSError, StorageError) as error:
                if not are_exhausted(error):
                    self.failed(directory, error)
                raise
            self.logs.put(log, is_future=True)
        return log

    def delete(self, partition: TopicPartition) -> None:
        """Delete a replica's future log, if there is one. Raises `StorageError`, `OSError`."""
        log = self.logs.remove_future(partition)
        if log is not None:
            self.remove_later(set_aside(log, DirectoryState.DELETE))

    def promote(self, future: PartitionLog) -> PartitionLog:
        """Let a future log serve its replica from now on; returns the log that has served so far.

        The caller holds the locks of both logs, and has seen that they hold the same records. It gives the
        replaced log to `discard`. The future log is renamed first: a crash between the two leaves two copies,
        never none. Raises `StorageError`, `OSError`.
        """
        future.rename_directory(os.path.join(parent_of(future), str(future.partition)))
        replaced = self.logs.promote(future)
        if replaced is None:
            raise StorageError(f"{future.partition} has no log any more", file=future.directory)
        return replaced

    def discard(self, replaced: PartitionLog) -> None:
        """Delete a log that `promote` has replaced. Raises `StorageError`, `OSError`."""
        directory = parent_of(replaced)
        self.remove_later(set_aside(replaced, DirectoryState.DELETE))
        self.checkpoint(directory)
