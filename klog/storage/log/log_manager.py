"""All logs of a broker, in one or more log directories, from start to stop.

Rules: Kafka's `LogManager`. A new log is created in the directory that has the fewest. A directory whose disk
fails goes offline with its logs, and the others serve on; if none is left the broker has to stop. Periodic
tasks are `upkeep`'s.

Locks: the manager's, then a log's; never the other way round. A log that fails under its own lock only hands
a task to the scheduler.
"""

from __future__ import annotations

import logging
import os
import secrets
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from klog.config.topic import TopicConfig
from klog.formats.errors import KlogError, StorageError
from klog.formats.meta_properties import MetaProperties
from klog.formats.names import DirectoryName, DirectoryState, FileKind, TopicPartition
from klog.jobs.threads import side_by_side
from klog.storage.log.background import BackgroundTasks
from klog.storage.log.checkpoints import ALL_CHECKPOINTS, write_checkpoints
from klog.storage.log.closing import close_logs
from klog.storage.log.descriptors import (
    STAYS_ONLINE,
    are_exhausted,
    exhausted,
    only_spare_left,
    require_descriptors,
)
from klog.storage.log.directory_loading import (
    OUT_OF_USE,
    LoadedLog,
    UnknownDirectoryError,
    load_directory,
    partition_directories,
    report_recovery,
    require_distinct,
    write_topic_id,
)
from klog.storage.log.disk_guard import LogClosedError
from klog.storage.log.earlier_records import EarlierRecords
from klog.storage.log.future_logs import FutureLogs
from klog.storage.log.log_directories import LogDirectories
from klog.storage.log.log_factory import LogFactory, set_aside
from klog.storage.log.log_map import HeldLog, LogMap, parent_of
from klog.storage.log.manager_values import Listener, ManagerSettings, Progress
from klog.storage.log.new_logs import force_to_disk
from klog.storage.log.partition_log import PartitionLog
from klog.storage.log.scheduler import Scheduler

_log = logging.getLogger(__name__)


class LogManager:
    """The logs of one broker. Safe for threads."""

    def __init__(
        self,
        settings: ManagerSettings,
        topic_config: Callable[[str], TopicConfig],
        scheduler: Scheduler,
        listener: Listener,
        *,
        clock_ms: Callable[[], int],
        jitter: Callable[[int], int] = secrets.randbelow,
        earlier: Callable[[TopicPartition], EarlierRecords | None] = lambda partition: None,  # noqa: ARG005
    ) -> None:
        """`topic_config` gives the configs of a topic; `clock_ms` is the wall clock. `earlier` gives records
        that are not in the log directories.
        """
        self.settings = settings
        self.scheduler = scheduler
        self._topic_config = topic_config
        self._listener = listener
        self._clock_ms = clock_ms
        # Held while a log is created and while a directory goes offline: no log is added to an offline one.
        self._lock = threading.RLock()
        self.background = BackgroundTasks(scheduler, self.directory_failed)
        self._directories = LogDirectories(self._go_offline)
        self._logs = LogMap()
        self._factory = LogFactory(
            lambda: self.settings, topic_config, self.background, clock_ms, jitter, earlier
        )
        self.futures = FutureLogs(
            self._lock,
            self._logs,
            self._factory,
            lambda: self.online,
            self._remove_later,
            self.background.fails_soon,
            self.checkpoint,
        )
        # The log directories that were chosen for replicas that have no log yet.
        self._preferred: dict[TopicPartition, str] = {}
        self._loaded_directories: set[str] = set()
        # In `creating`: the partition directories to force to disk, by log directory.
        self._unforced: dict[str, list[str]] | None = None

    # -- starting --------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Create and lock the log directories; those that fail go offline.

        Raises `DirectoryLockedError` if another broker has locked one, `StorageError` if none is left.
        """
        self._directories.open(self.settings.directories)

    def identities(self) -> dict[str, MetaProperties | None]:
        """The `meta.properties` of each directory that is online (None: a new directory).

        Directories in which the file cannot be read go offline. Raises `StorageError` if none is left.
        """
        return self._directories.identities()

    def claim(self, broker_id: int, cluster_id: str) -> None:
        """Write `meta.properties` into the directories that have none. Directories that fail go offline.

        Raises `StorageError` if none is left.
        """
        self._directories.claim(broker_id, cluster_id)

    def load(self) -> None:
        """Load all logs, with the directories side by side.

        Raises `UnknownDirectoryError` if the broker may not start, `DescriptorsError` if it may not open so
        many files, `StorageError` if no directory is left.
        """
        found = self._partition_directories()
        require_descriptors(sum(name.state not in OUT_OF_USE for names in found.values() for name in names))
        for _ in side_by_side(len(found), lambda each: self._load_directory(*each), tuple(found.items())):
            pass
        self._directories.require_one()

    def _partition_directories(self) -> dict[str, list[DirectoryName]]:
        """The partition directories to load. All names are checked before anything is changed: a broker that
        may not start leaves everything as it is, the markers of a clean stop included.
        """
        found = {}
        for path in self.online:
            try:
                found[path] = partition_directories(path)
            except UnknownDirectoryError:
                raise
            except (OSError, StorageError) as error:
                self._go_offline(path, error)
        require_distinct(found)
        return found

    def _load_directory(self, path: str, names: Sequence[DirectoryName]) -> None:
        directory = self._directories.get(path)
        if directory is None:
            return

        def progress(log: LoadedLog, done: int, total: int) -> None:
            self._add_loaded(log)
            self._listener.loaded(Progress(path, log.name.partition, done, total, log.recovered))

        try:
            load_directory(
                directory,
                [name for name in names if name.state not in OUT_OF_USE],
                self._topic_config,
                now_ms=self._clock_ms(),
                producer_expiration_ms=self.settings.producer_expiration_ms,
                threads=self.settings.recovery_threads_per_directory,
                progress=progress,
            )
        except (OSError, KlogError) as error:
            if are_exhausted(error):
                raise exhausted(len(names), error) from error
            self.directory_failed(path, error)
            return
        self._loaded_directories.add(path)
        for name in names:
            if name.state is DirectoryState.DELETE:
                self._remove_later(os.path.join(path, str(name)))

    def _add_loaded(self, found: LoadedLog) -> None:
        loaded = found.loaded
        report_recovery(found.path, loaded)
        log = self._factory.log(found.name.partition, found.path, loaded.state, found.topic_id)
        log.set_high_watermark(found.high_watermark)
        self._logs.put(log, is_future=found.name.state is DirectoryState.FUTURE)

    # -- what there is ---------------------------------------------------------------------------------------

    def get(self, partition: TopicPartition) -> PartitionLog | None:
        """The log that serves a replica, if there is one."""
        return self._logs.get(partition)

    def logs(self) -> list[PartitionLog]:
        """All logs that serve; future ones are left out."""
        return self._logs.current()

    def in_directory(self, directory: str) -> list[HeldLog]:
        """All logs of one log directory, future ones included."""
        return self._logs.in_directory(directory)

    @property
    def online(self) -> tuple[str, ...]:
        """The log directories in use."""
        return self._directories.online

    @property
    def offline(self) -> Mapping[str, str]:
        """The log directories that have failed, and why."""
        return self._directories.offline

    def reconfigure(self, topic: str) -> None:
        """Apply a topic's configs, which have changed, or the broker's configs that they default to."""
        for log, _ in self._logs.all():
            if log.partition.topic == topic:
                log.reconfigure(self._topic_config(topic))

    # -- creating --------------------------------------------------------------------------------------------

    def get_or_create(self, partition: TopicPartition, topic_id: str | None, *, is_new: bool) -> PartitionLog:
        """The log of a replica; if there is none it is created in the directory that has the fewest.

        A log without a topic id is given this one. Raises `StorageError` if no directory can take it, or if
        it may already be in one that is offline (it is not `is_new`).
        """
        with self._lock:
            log = self._logs.get(partition)
            if log is None:
                if not is_new and self.offline:
                    raise StorageError(
                        f"{partition} may be in a log directory that is offline: {', '.join(self.offline)}"
                    )
                log = self._create(partition, topic_id)
                self._logs.put(log)
            elif log.topic_id is None and topic_id is not None:
                try:
                    write_topic_id(log.directory, topic_id)
                except (OSError, StorageError) as error:
                    self.background.fails_soon(parent_of(log), error)
                    raise
                log.topic_id = topic_id
            return log

    @contextmanager
    def creating(self) -> Iterator[None]:
        """The logs that are created inside are forced to disk together at its end. One thread uses it.

        If that fails, their log directory goes offline.
        """
        self._unforced = {}
        try:
            yield
        finally:
            unforced, self._unforced = self._unforced, None
            for directory, paths in unforced.items():
                try:
                    force_to_disk(directory, paths)
                except OSError as error:
                    # At once: whoever has asked for the logs must not say that they are there.
                    self._go_offline(directory, error)

    def _create(self, partition: TopicPartition, topic_id: str | None) -> PartitionLog:
        if only_spare_left():
            raise exhausted(len(self._logs.all()) + 1)
        online = self.online
        counts = self._logs.counts(online)
        wanted = self._preferred.pop(partition, None)
        for directory in sorted(online, key=lambda path: (path != wanted, counts[path])):
            try:
                path = os.path.join(directory, str(partition))
                log = self._factory.create(path, partition, topic_id, sync=self._unforced is None)
            except (OSError, StorageError) as error:
                if are_exhausted(error):
                    raise exhausted(len(self._logs.all()) + 1, error) from error
                self.background.fails_soon(directory, error)
                continue
            if self._unforced is not None:
                self._unforced.setdefault(directory, []).append(path)
            return log
        raise StorageError(f"no log directory can take {partition}", cure="see above why each of them failed")

    def prefer(self, partition: TopicPartition, directory: str) -> None:
        """Create the log of a replica in this log directory, if it is online then."""
        with self._lock:
            self._preferred[partition] = directory

    # -- changing many logs at once --------------------------------------------------------------------------

    def delete(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Exception]:
        """Delete logs: renamed now, removed later. Returns the errors of those that failed."""
        return self._change(partitions, lambda each: self._set_aside(each, DirectoryState.DELETE))

    def set_aside_strays(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Exception]:
        """Rename logs that are no longer assigned to this broker, and keep them out of use.

        Returns the errors of those that failed.
        """
        return self._change(partitions, lambda each: self._set_aside(each, DirectoryState.STRAY))

    def truncate_to(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, Exception]:
        """Drop the records at and above each offset. Returns the errors of those logs that failed.

        Rule: Kafka's `LogManager.truncateTo`.
        """

        def truncate(partition: TopicPartition) -> set[str]:
            log = self._require(partition)
            return {parent_of(log)} if log.truncate_to(offsets[partition]) else set()

        return self._change(offsets, truncate)

    def restart_at(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, Exception]:
        """Drop all records and begin again, empty, at each offset. Returns the errors of those that failed.

        Rule: Kafka's `LogManager.truncateFullyAndStartAt`.
        """

        def restart(partition: TopicPartition) -> set[str]:
            log = self._require(partition)
            log.restart_at(offsets[partition])
            return {parent_of(log)}

        return self._change(offsets, restart)

    def _change(
        self, partitions: Iterable[TopicPartition], change: Callable[[TopicPartition], set[str]]
    ) -> dict[TopicPartition, Exception]:
        """Change logs, then write the checkpoints of each log directory that `change` returned, once."""
        directories: set[str] = set()
        failed: dict[TopicPartition, Exception] = {}
        for partition in partitions:
            try:
                directories |= change(partition)
            except (OSError, StorageError) as error:
                failed[partition] = error
        for directory in directories:
            self.checkpoint(directory)
        return failed

    def _require(self, partition: TopicPartition) -> PartitionLog:
        log = self._logs.get(partition)
        if log is None:
            raise StorageError(f"{partition} has no log")
        return log

    def _set_aside(self, partition: TopicPartition, state: DirectoryState) -> set[str]:
        """Rename a replica's logs, the future one too; returns their log directories."""
        directories: set[str] = set()
        for log in self._logs.remove(partition):
            directories.add(parent_of(log))
            path = set_aside(log, state)
            if state is DirectoryState.DELETE:
                self._remove_later(path)
        return directories

    def _remove_later(self, path: str) -> None:
        self.background.remove_later(path, self.settings.directory_delete_delay_ms)

    def checkpoint(self, directory: str | None = None, kinds: Sequence[FileKind] = ALL_CHECKPOINTS) -> None:
        """Write the offset checkpoints of one log directory, or of all that are online."""
        for path in self.online if directory is None else (directory,):
            try:
                self._checkpoint(path, kinds)
            except (OSError, StorageError) as error:
                self.directory_failed(path, error)

    def _checkpoint(self, path: str, kinds: Sequence[FileKind]) -> None:
        directory = self._directories.get(path)
        if directory is not None:
            write_checkpoints(directory, lambda: [held.log for held in self._logs.in_directory(path)], kinds)

    # -- failing and stopping --------------------------------------------------------------------------------

    def directory_failed(self, path: str, error: OSError | KlogError) -> None:
        """Take a log directory offline, with all its logs. Nothing happens if it is offline already.

        A lack of descriptors or memory is no fault of the disk: it is logged, and what was to be done is done
        at the next occasion.
        """
        if are_exhausted(error):
            _log.error("%s: %s; %s", path, error, STAYS_ONLINE)
        else:
            self._go_offline(path, error)

    def _go_offline(self, path: str, error: OSError | KlogError) -> None:
        with self._lock:
            directory = self._directories.remove(path)
            if directory is None:
                return
            gone = self._logs.remove_directory(path)
            all_failed = not self.online
            # A log that is asked for from now on may be in this directory.
            self._directories.set_offline(path, error, len(gone))
        for log, _ in gone:
            log.release()
        directory.release_lock()
        # A replica whose future log is gone is served by its log in another directory.
        served = tuple(log.partition for log, is_future in gone if not is_future)
        self._listener.directory_failed(path, served, str(error))
        if all_failed:
            _log.critical("no log directory is left")
            self._listener.all_directories_failed()

    def stop(self) -> None:
        """Close all logs, write the checkpoints, and mark each directory as cleanly stopped."""
        for path in self.online:
            logs = [held.log for held in self._logs.in_directory(path)]
            # A log that is closed already has failed, and its directory is about to go offline.
            has_failed = any(log.closed for log in logs)
            try:
                close_logs(path, logs, self.settings.recovery_threads_per_directory)
                if has_failed:
                    continue
                self._checkpoint(path, ALL_CHECKPOINTS)
                directory = self._directories.get(path)
                if path in self._loaded_directories and directory is not None:
                    directory.write_clean_marker()
            except LogClosedError:
                continue
            except (OSError, KlogError) as error:
                self.directory_failed(path, error)
        self.release()

    def release(self) -> None:
        """Close all files and release all locks without writing: after `stop`, or if the start failed."""
        for held in self._logs.all():
            held.log.release()
        self._directories.release()
