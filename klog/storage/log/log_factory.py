"""Makes the logs of a broker: of what was loaded, or new in an empty directory; and sets logs aside."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from klog.config.topic import TopicConfig
from klog.formats.names import DirectoryState, TopicPartition, marked_directory
from klog.storage.files.quarantine import default_root
from klog.storage.log.directory_loading import write_topic_id
from klog.storage.log.earlier_records import EarlierRecords
from klog.storage.log.loading import LoadSettings, create_log
from klog.storage.log.log_map import parent_of
from klog.storage.log.log_values import Background, LogState
from klog.storage.log.manager_values import ManagerSettings
from klog.storage.log.partition_log import PartitionLog

_UNIQUE_ID_BYTES: Final = 16


@dataclass(frozen=True, slots=True)
class LogFactory:
    """What the logs of a broker share. `clock_ms` is the wall clock. `earlier` gives the records of a log
    that are not in its directory.
    """

    settings: Callable[[], ManagerSettings]
    topic_config: Callable[[str], TopicConfig]
    background: Background
    clock_ms: Callable[[], int]
    jitter: Callable[[int], int]
    earlier: Callable[[TopicPartition], EarlierRecords | None]

    def log(
        self, partition: TopicPartition, path: str, state: LogState, topic_id: str | None
    ) -> PartitionLog:
        """A log of parts that were loaded or created."""
        log = PartitionLog(
            partition,
            path,
            self.topic_config(partition.topic),
            state,
            clock_ms=self.clock_ms,
            background=self.background,
            jitter=self.jitter,
        )
        log.topic_id = topic_id
        if (earlier := self.earlier(partition)) is not None:
            log.start_after(earlier)
        return log

    def create(
        self, path: str, partition: TopicPartition, topic_id: str | None, *, sync: bool = True
    ) -> PartitionLog:
        """An empty log in a new directory. Without `sync` the caller forces it to disk. Raises `OSError`,
        `StorageError`.
        """
        with _removed_unless_done(path):
            os.makedirs(path, exist_ok=True)
            if topic_id is not None:
                write_topic_id(path, topic_id, sync=sync)
            settings = LoadSettings(
                self.clock_ms(),
                default_root(os.path.dirname(path)),
                producer_expiration_ms=self.settings().producer_expiration_ms,
            )
            state = create_log(path, self.topic_config(partition.topic), settings)
            return self.log(partition, path, state, topic_id)


@contextmanager
def _removed_unless_done(path: str) -> Iterator[None]:
    """Remove a directory that the block has made if it fails: the next start would have to recover it."""
    is_new = not os.path.lexists(path)
    try:
        yield
    except BaseException:
        if is_new:
            shutil.rmtree(path, ignore_errors=True)
        raise


def marked_path(partition: TopicPartition, directory: str, state: DirectoryState) -> str:
    """A path in a log directory for a replica in this state, with a random id."""
    unique_id = secrets.token_bytes(_UNIQUE_ID_BYTES).hex()
    return os.path.join(directory, str(marked_directory(partition, state, unique_id)))


def set_aside(log: PartitionLog, state: DirectoryState) -> str:
    """Rename a log's directory and close the log; returns the new path. Raises `OSError`, `StorageError`."""
    path = marked_path(log.partition, parent_of(log), state)
    log.rename_directory(path)
    log.release()
    return path
