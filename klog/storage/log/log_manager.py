"""All logs of a broker, in one or more log directories, from start to stop.

Rules: Kafka's `LogManager`. A new log goes where the fewest are. A directory whose disk fails goes offline
with its logs, others serve on; when none is left the broker is to stop. What is done by the clock is
`upkeep`'s matter.

Locks: this manager's, then a log's; never the other way round. A log that fails under its own lock only
leaves a task to the scheduler.
"""

from __future__ import annotations

import logging
import os
import secrets
import shutil
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from klog.config.topic import TopicConfig
from klog.formats import partition_metadata
from klog.formats.errors import KlogError, StorageError
from klog.formats.meta_properties import MetaProperties
from klog.formats.names import DirectoryName, DirectoryState, FileKind, TopicPartition, marked_directory
from klog.formats.partition_metadata import PartitionMetadata
from klog.storage.files import write_atomically
from klog.storage.log.data_directory import DataDirectory, DirectoryLockedError
from klog.storage.log.directory_loading import (
    OUT_OF_USE,
    LoadedLog,
    UnknownDirectoryError,
    demand_distinct,
    load_directory,
    partition_directories,
)
from klog.storage.log.disk_guard import LogClosedError
from klog.storage.log.loading import LoadSettings, create_log
from klog.storage.log.log_values import LogState
from klog.storage.log.manager_values import Listener, ManagerSettings, Placement, Progress
from klog.storage.log.partition_log import PartitionLog
from klog.storage.log.scheduler import Scheduler
from klog.storage.quarantine import default_root

logger = logging.getLogger(__name__)

_UNIQUE_ID_BYTES: Final = 16
_CHECKPOINTS: Final = (
    FileKind.RECOVERY_POINT_CHECKPOINT,
    FileKind.LOG_START_CHECKPOINT,
    FileKind.REPLICATION_CHECKPOINT,
)


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
    ) -> None:
        """`topic_config` gives the configs of a topic; `clock_ms` is the wall clock."""
        self.settings = settings
        self.scheduler = scheduler
        self._topic_config = topic_config
        self._listener = listener
        self._clock_ms = clock_ms
        self._jitter = jitter
        self._lock = threading.RLock()
        self._directories: dict[str, DataDirectory] = {}
        self._offline: dict[str, str] = {}
        self._logs: dict[TopicPartition, PartitionLog] = {}
        self._future_logs: dict[TopicPartition, PartitionLog] = {}
        self._loaded_directories: set[str] = set()

    # -- starting --------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Make and lock the log directories; those that fail go offline.

        Raises `DirectoryLockedError` where another broker has one, `StorageError` where none is left.
        """
        for path in self.settings.directories:
            directory = DataDirectory(path)
            try:
                directory.prepare()
                directory.take_lock()
            except DirectoryLockedError:
                self.release()
                raise
            except StorageError as error:
                self._goes_offline(directory.path, error)
                continue
            self._directories[directory.path] = directory
        self._demand_one()

    def _demand_one(self) -> None:
        if not self._directories:
            raise StorageError("no log directory can be used", cure="see above why each of them failed")

    def identities(self) -> dict[str, MetaProperties | None]:
        """What `meta.properties` says in each directory that is online (None: a new directory).

        Directories where it cannot be read as such go offline. Raises `StorageError` where none is left.
        """
        found = {}
        for path, directory in list(self._directories.items()):
            try:
                found[path] = directory.read_identity()
            except (OSError, KlogError) as error:
                self.directory_failed(path, error)
        self._demand_one()
        return found

    def claim(self, broker_id: int, cluster_id: str) -> None:
        """Write `meta.properties` where it is not there yet. Directories that fail go offline."""
        for path, directory in list(self._directories.items()):
            try:
                directory.write_identity(broker_id, cluster_id)
            except (OSError, KlogError) as error:
                self.directory_failed(path, error)
        self._demand_one()

    def load(self) -> None:
        """Load all logs, directories side by side.

        Raises `UnknownDirectoryError` where the broker may not start, `StorageError` where none is left.
        """
        found = self._partition_directories()
        with ThreadPoolExecutor(max_workers=max(len(found), 1)) as pool:
            for _ in pool.map(self._load_directory, found, found.values()):
                pass
        self._demand_one()

    def _partition_directories(self) -> dict[str, list[DirectoryName]]:
        """What is to be loaded. A broker that may not start has touched nothing, least of all the markers of
        a clean stop.
        """
        found = {}
        for path in self.online:
            try:
                found[path] = partition_directories(path)
            except UnknownDirectoryError:
                raise
            except (OSError, StorageError) as error:
                self.directory_failed(path, error)
        demand_distinct(found)
        return found

    def _load_directory(self, path: str, names: Sequence[DirectoryName]) -> None:
        directory = self._directories[path]

        def progress(log: LoadedLog, done: int, total: int) -> None:
            self._take_in(log)
            where = log.name.partition
            self._listener.loaded(Progress(directory.path, where, done, total, log.recovered))

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
            self.directory_failed(path, error)
            return
        self._loaded_directories.add(path)
        for name in names:
            if name.state is DirectoryState.DELETE:
                self._remove_later(path, os.path.join(path, str(name)))

    def _take_in(self, found: LoadedLog) -> None:
        where = found.name.partition
        for finding in found.loaded.findings:
            logger.warning("%s/%s: %s: Kafka %s", found.path, finding.name, finding.what, finding.kafka)
        if found.loaded.quarantine is not None:
            logger.warning("%s: what recovery took away is in %s", found.path, found.loaded.quarantine)
        if found.loaded.why_lost is not None:
            logger.warning("%s: what recovery took away is lost: %s", found.path, found.loaded.why_lost)
        log = self._new(where, found.path, found.loaded.state, found.topic_id)
        log.set_high_watermark(found.high_watermark)
        logs = self._future_logs if found.name.state is DirectoryState.FUTURE else self._logs
        with self._lock:
            logs[where] = log

    def _new(self, where: TopicPartition, path: str, state: LogState, topic_id: str | None) -> PartitionLog:
        log = PartitionLog(
            where,
            path,
            self._topic_config(where.topic),
            state,
            clock_ms=self._clock_ms,
            background=self,
            jitter=self._jitter,
        )
        log.topic_id = topic_id
        return log

    # -- what there is ---------------------------------------------------------------------------------------

    def get(self, where: TopicPartition) -> PartitionLog | None:
        """The log of a replica, if it is there."""
        return self._logs.get(where)

    def logs(self) -> list[PartitionLog]:
        """All logs that serve, future ones left out."""
        with self._lock:
            return list(self._logs.values())

    @property
    def online(self) -> tuple[str, ...]:
        """The log directories in use."""
        with self._lock:
            return tuple(self._directories)

    @property
    def offline(self) -> Mapping[str, str]:
        """The log directories that have failed, and why."""
        with self._lock:
            return dict(self._offline)

    def placements(self, directory: str) -> list[Placement]:
        """The logs of one log directory, as DescribeLogDirs shows them."""
        with self._lock:
            found = [
                (log, is_future)
                for logs, is_future in ((self._logs, False), (self._future_logs, True))
                for log in logs.values()
                if _parent(log) == directory
            ]
        return [
            Placement(log.partition, log.size_bytes, log.log_end_offset, is_future)
            for log, is_future in found
        ]

    def reconfigure(self, topic: str) -> None:
        """A topic's configs have changed (or the broker's, which give them their defaults)."""
        for log in self.logs():
            if log.partition.topic == topic:
                log.reconfigure(self._topic_config(topic))

    # -- creating and deleting -------------------------------------------------------------------------------

    def get_or_create(self, where: TopicPartition, topic_id: str | None, *, is_new: bool) -> PartitionLog:
        """The log of a replica; made where it is not there yet, in the directory that has the fewest.

        Raises `StorageError` where no directory can take it, or where it may already be in one that is
        offline (it is not `is_new`).
        """
        with self._lock:
            log = self._logs.get(where)
            if log is None:
                if not is_new and self._offline:
                    raise StorageError(
                        f"{where} may be in a log directory that is offline: {', '.join(self._offline)}"
                    )
                log = self._logs[where] = self._create(where, topic_id)
            elif log.topic_id is None and topic_id is not None:
                _write_topic_id(log.directory, topic_id)
                log.topic_id = topic_id
            return log

    def _create(self, where: TopicPartition, topic_id: str | None) -> PartitionLog:
        counts = dict.fromkeys(self._directories, 0)
        for log in (*self._logs.values(), *self._future_logs.values()):
            counts[_parent(log)] = counts.get(_parent(log), 0) + 1
        for directory in sorted(self._directories, key=lambda path: counts[path]):
            path = os.path.join(directory, str(where))
            try:
                os.makedirs(path, exist_ok=True)
                if topic_id is not None:
                    _write_topic_id(path, topic_id)
                settings = LoadSettings(
                    self._clock_ms(),
                    default_root(directory),
                    producer_expiration_ms=self.settings.producer_expiration_ms,
                )
                state = create_log(path, self._topic_config(where.topic), settings)
            except (OSError, StorageError) as error:
                self.fails_soon(directory, error)
                continue
            return self._new(where, path, state, topic_id)
        raise StorageError(f"no log directory can take {where}", cure="see above why each of them failed")

    def delete(self, replicas: Iterable[TopicPartition]) -> dict[TopicPartition, Exception]:
        """Throw replicas' logs away: renamed now, removed later. What failed (`OSError`, `StorageError`)."""
        directories: set[str] = set()
        failed: dict[TopicPartition, Exception] = {}
        for where in replicas:
            try:
                directories |= self._set_aside(where, DirectoryState.DELETE)
            except (OSError, StorageError) as error:
                failed[where] = error
        for directory in directories:
            self.checkpoint(directory)  # once for all: it takes as long as there are logs
        return failed

    def set_aside_stray(self, where: TopicPartition) -> None:
        """Keep a replica that is assigned here no more out of the way. Raises `OSError`, `StorageError`."""
        for directory in self._set_aside(where, DirectoryState.STRAY):
            self.checkpoint(directory)

    def _set_aside(self, where: TopicPartition, state: DirectoryState) -> set[str]:
        """Rename a replica's logs, the future one too; tells whose checkpoints are to be written."""
        with self._lock:
            found = (self._logs.pop(where, None), self._future_logs.pop(where, None))
        directories: set[str] = set()
        for log in found:
            if log is not None:
                directory = _parent(log)
                name = marked_directory(where, state, secrets.token_bytes(_UNIQUE_ID_BYTES).hex())
                path = os.path.join(directory, str(name))
                log.rename_directory(path)
                log.release()
                if state is DirectoryState.DELETE:
                    self._remove_later(directory, path)
                directories.add(directory)
        return directories

    def _remove_later(self, directory: str, path: str) -> None:
        def remove() -> None:
            try:
                shutil.rmtree(path)
            except FileNotFoundError:
                return
            except OSError as error:
                self.directory_failed(directory, error)

        self.scheduler.after(self.settings.directory_delete_delay_ms, remove)

    def truncate(self, where: TopicPartition, offset: int) -> None:
        """Cut a log to its leader's, and say so in the checkpoints. Raises `OSError`, `StorageError`."""
        log = self._logs[where]
        if log.truncate_to(offset):
            self.checkpoint(_parent(log))

    def restart(self, where: TopicPartition, offset: int) -> None:
        """Begin a log anew at its leader's start. Raises `OSError`, `StorageError`."""
        log = self._logs[where]
        log.restart_at(offset)
        self.checkpoint(_parent(log))

    # -- checkpoints -----------------------------------------------------------------------------------------

    def checkpoint(self, directory: str | None = None, kinds: Sequence[FileKind] = _CHECKPOINTS) -> None:
        """Write the offset checkpoints of one log directory, or of all that are online."""
        for path in self.online if directory is None else (directory,):
            try:
                self._checkpoint(path, kinds)
            except (OSError, StorageError) as error:
                self.directory_failed(path, error)

    def _checkpoint(self, path: str, kinds: Sequence[FileKind]) -> None:
        # One at a time: two writers of one file would overtake each other.
        with self._lock:
            directory = self._directories.get(path)
            if directory is None:
                return
            every = (*self._logs.values(), *self._future_logs.values())
            logs = [log for log in every if _parent(log) == path]
            for kind in kinds:
                directory.write_offsets(
                    kind, {log.partition: at for log in logs for at in _offset(kind, log)}
                )

    # -- what logs leave to others ---------------------------------------------------------------------------

    def flush(self, log: PartitionLog, up_to_offset: int) -> None:
        """Force a log to disk soon."""

        def flush() -> None:
            try:
                log.flush(up_to_offset)
            except (OSError, StorageError) as error:
                logger.debug("%s could not be flushed: %s", log, error)

        self.scheduler.after(0, flush)

    def delete_later(self, log: PartitionLog, paths: Sequence[str], delay_ms: int) -> None:
        """Unlink files after a while; they are found again at the next start if this broker stops before."""

        def unlink() -> None:
            for path in paths:
                # The directory may have got another name meanwhile.
                current = os.path.join(log.directory, os.path.basename(path))
                try:
                    os.unlink(current)
                except FileNotFoundError:
                    continue
                except OSError as error:
                    self.directory_failed(_parent(log), error)
                    return

        self.scheduler.after(delay_ms, unlink)

    def failed(self, log: PartitionLog, error: OSError | StorageError) -> None:
        """The disk has failed under a log."""
        self.fails_soon(_parent(log), error)

    def fails_soon(self, path: str, error: OSError | KlogError) -> None:
        """Take a log directory offline in a moment.

        For whoever meets its failure with locks in hand that the listener may want, or while others wait.
        """
        self.scheduler.after(0, lambda: self.directory_failed(path, error))

    # -- failing and stopping --------------------------------------------------------------------------------

    def directory_failed(self, path: str, error: OSError | KlogError) -> None:
        """Take a log directory offline, with all its logs."""
        with self._lock:
            directory = self._directories.pop(path, None)
            if directory is None:
                return
            gone: list[PartitionLog] = []
            for logs in (self._logs, self._future_logs):
                for where, log in list(logs.items()):
                    if _parent(log) == path:
                        gone.append(logs.pop(where))
            all_failed = not self._directories
        for log in gone:
            log.release()
        self._goes_offline(path, error, len(gone))
        directory.release_lock()
        self._listener.directory_failed(path, tuple(log.partition for log in gone), str(error))
        if all_failed:
            logger.critical("no log directory is left")
            self._listener.all_directories_failed()

    def _goes_offline(self, path: str, error: OSError | KlogError, count: int = 0) -> None:
        with self._lock:
            self._offline[path] = str(error)
        logger.error("log directory %s goes offline with %d partitions: %s", path, count, error)

    def stop(self) -> None:
        """Close all logs, write the checkpoints, and mark each directory as cleanly stopped."""
        for path in self.online:
            with self._lock:
                logs = [
                    log for log in (*self._logs.values(), *self._future_logs.values()) if _parent(log) == path
                ]
            # A log that is closed already has failed, and the news of its directory is still under way.
            has_failed = any(log.closed for log in logs)
            try:
                with ThreadPoolExecutor(self.settings.recovery_threads_per_directory) as pool:
                    for _ in pool.map(PartitionLog.close, logs):
                        pass
                if has_failed:
                    continue
                self._checkpoint(path, _CHECKPOINTS)
                if path in self._loaded_directories:
                    self._directories[path].write_clean_marker()
            except LogClosedError:
                continue
            except (OSError, KlogError) as error:
                self.directory_failed(path, error)
        self.release()

    def release(self) -> None:
        """Let go of everything as it is: after `stop`, or where the broker may not start."""
        with self._lock:
            for log in (*self._logs.values(), *self._future_logs.values()):
                log.release()
            for directory in self._directories.values():
                directory.release_lock()
            self._directories = {}


def _parent(log: PartitionLog) -> str:
    return os.path.dirname(log.directory)


def _offset(kind: FileKind, log: PartitionLog) -> tuple[int, ...]:
    """What a checkpoint says of a log: an offset, or nothing."""
    if kind is FileKind.RECOVERY_POINT_CHECKPOINT:
        return (log.recovery_point,)
    if kind is FileKind.LOG_START_CHECKPOINT:
        return (log.log_start_offset,) if log.log_start_offset > log.segments.bases[0] else ()
    return (log.high_watermark,)


def _write_topic_id(directory: str, topic_id: str) -> None:
    path = os.path.join(directory, FileKind.PARTITION_METADATA)
    write_atomically(path, partition_metadata.build(PartitionMetadata(topic_id)))
