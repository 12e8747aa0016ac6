"""Moves replicas between the log directories of this broker, each in a thread that copies one at a time.

Rules: Kafka's `ReplicaAlterLogDirsManager`, `ReplicaAlterLogDirsThread` and
`ReplicaManager.alterReplicaLogDirs`; KIP-113. A move begins with a request, and goes on after a restart, when
the controller has given the replica its role again. Cleaning of the replica rests meanwhile, because it would
change what is copied already.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, InitVar, dataclass, field
from functools import partial
from typing import Final

from klog.formats.errors import KlogError, StorageError
from klog.formats.names import MAX_DIRECTORY_NAME_LENGTH, DirectoryState, TopicPartition
from klog.jobs.worker import NewWorker, Worker
from klog.protocol.error_codes import ErrorCode
from klog.replication.log_dir_move import COPIED_AT_ONCE_BYTES, LogDirMove
from klog.replication.quota import ReplicationQuota
from klog.replication.replica_manager import ReplicaManager
from klog.replication.roles import Role, RoleChange
from klog.server.fetching.manager import fetcher_id
from klog.storage.cleaner.log_cleaner import LogCleaner
from klog.storage.log.log_factory import marked_path
from klog.storage.log.log_manager import LogManager
from klog.storage.log.log_map import parent_of

_log = logging.getLogger(__name__)

_THROTTLED_PAUSE_S: Final = 0.1
_BUSY_PAUSE_MS: Final = 20
_RETRY_S: Final = 1.0

_ROLES_THAT_MOVE: Final = frozenset((Role.LEADER, Role.FOLLOWER))


@dataclass(slots=True, eq=False)
class _Move:
    """A replica that is moved, and the time before which it is not tried again after an error."""

    work: LogDirMove
    resume_ms: int = 0


@dataclass(slots=True, eq=False)
class _Worker:
    """The moves of one thread, in the order of their partitions' names."""

    moves: dict[TopicPartition, _Move] = field(default_factory=dict)
    thread: Worker | None = None


@dataclass(eq=False)
class LogDirMoves:
    """All moves of a broker. Safe for threads; `close` ends its threads, and the moves go on after a start.

    `timer_ms` is a clock that is never set back, `clock_ms` the wall clock. `backoff_ms` is
    `replica.fetch.backoff.ms`: a move that failed is tried again after it.
    """

    logs: LogManager
    cleaner: LogCleaner
    replicas: ReplicaManager
    directories: Sequence[str]
    throttle: ReplicationQuota
    _: KW_ONLY
    threads: InitVar[int]
    backoff_ms: int
    timer_ms: Callable[[], int]
    clock_ms: Callable[[], int]
    new_worker: NewWorker = Worker
    # Held while a request is carried out: two at once would make two future logs of one replica.
    _altering: threading.Lock = field(default_factory=threading.Lock, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)
    # Role changes that have not been looked at: the replica manager's lock is held when they come.
    _news: list[RoleChange] = field(default_factory=list, init=False)
    _closed: bool = field(default=False, init=False)

    def __post_init__(self, threads: int) -> None:
        self._workers = [_Worker() for _ in range(threads)]
        self.replicas.add_listener(self._roles_changed)

    # -- requests --------------------------------------------------------------------------------------------

    def alter(self, targets: Mapping[TopicPartition, str]) -> dict[TopicPartition, ErrorCode]:
        """Move replicas to log directories, given by their absolute paths; the answer for each.

        Returns when the moves have begun. A replica that is not here yet is created there later.
        """
        with self._altering:
            return {partition: self._alter(partition, path) for partition, path in targets.items()}

    def _alter(self, partition: TopicPartition, directory: str) -> ErrorCode:
        refused = self._refused(partition, directory)
        if refused is not ErrorCode.NONE:
            return refused
        hosted = self.replicas.partitions.get(partition)
        if hosted is None:
            self.logs.prefer(partition, directory)
            return ErrorCode.REPLICA_NOT_AVAILABLE
        try:
            present = self.logs.futures.get(partition)
            if present is not None and parent_of(present) == directory:
                return ErrorCode.NONE
            if present is not None:
                self._cancel(partition)
            if parent_of(hosted.log) == directory:
                return ErrorCode.NONE
            if self.logs.offline:
                return ErrorCode.KAFKA_STORAGE_ERROR
            self.logs.futures.create(hosted.log, directory)
        except (OSError, KlogError) as error:
            _log.error("%s cannot be moved to %s: %s", partition, directory, error)
            return ErrorCode.KAFKA_STORAGE_ERROR
        _log.info("%s is being moved from %s to %s", partition, parent_of(hosted.log), directory)
        self._begin(partition)
        return ErrorCode.NONE

    def _refused(self, partition: TopicPartition, directory: str) -> ErrorCode:
        if directory not in self.directories:
            return ErrorCode.LOG_DIR_NOT_FOUND
        if directory not in self.logs.online or partition in self.replicas.offline:
            return ErrorCode.KAFKA_STORAGE_ERROR
        name = marked_path(partition, "", DirectoryState.FUTURE)
        if len(name) > MAX_DIRECTORY_NAME_LENGTH:
            return ErrorCode.INVALID_TOPIC_EXCEPTION
        return ErrorCode.NONE

    def _cancel(self, partition: TopicPartition) -> None:
        self._drop(partition)
        self.logs.futures.delete(partition)
        _log.info("the move of %s between log directories is cancelled", partition)

    # -- roles -----------------------------------------------------------------------------------------------

    def _roles_changed(self, changes: Sequence[RoleChange]) -> None:
        relevant = [
            change
            for change in changes
            if self.logs.futures.get(change.partition) is not None
            or change.partition in self._worker(change.partition).moves
        ]
        if relevant:
            with self._lock:
                self._news += relevant
                self._wake(self._workers[0])

    def _look_at_news(self) -> None:
        with self._lock:
            news, self._news = self._news, []
        for change in news:
            future = self.logs.futures.get(change.partition)
            if change.new in _ROLES_THAT_MOVE and future is not None:
                self._begin(change.partition)
            else:
                self._drop(change.partition)

    # -- moves -----------------------------------------------------------------------------------------------

    def _worker(self, partition: TopicPartition) -> _Worker:
        return self._workers[fetcher_id(partition, len(self._workers))]

    def _begin(self, partition: TopicPartition) -> None:
        """Let a thread copy a replica that has a future log, unless one does."""
        if self._is_copied(partition):
            return
        # Without a lock: a cleaning in progress has to end.
        self.cleaner.abort_and_pause(partition)
        with self._lock:
            hosted, future = self.replicas.partitions.get(partition), self.logs.futures.get(partition)
            if hosted is not None and future is not None and not self._is_copied(partition):
                moves = self._worker(partition).moves
                # An earlier move, whose thread has not noticed yet that it is over, leaves its pause to this.
                has_paused = partition in moves
                moves[partition] = _Move(LogDirMove(hosted, future, self.logs.futures))
                self._wake(self._worker(partition))
                if not has_paused:
                    return
        self.cleaner.resume([partition])

    def _is_copied(self, partition: TopicPartition) -> bool:
        """Whether a thread copies the replica's present log to its present future log."""
        move = self._worker(partition).moves.get(partition)
        return (
            move is not None
            and move.work.partition is self.replicas.partitions.get(partition)
            and move.work.future is self.logs.futures.get(partition)
        )

    def _drop(self, partition: TopicPartition, only: _Move | None = None) -> None:
        """Copy a replica no more; if `only` is given and another move has replaced it, that one goes on."""
        with self._lock:
            moves = self._worker(partition).moves
            move = moves.get(partition)
            if move is None or only not in (None, move):
                return
            del moves[partition]
        self.cleaner.resume([partition])

    def _wake(self, worker: _Worker) -> None:
        """Let a thread look at its moves. The caller holds the lock."""
        if self._closed:
            return
        if worker.thread is None:
            name = f"klog-alter-log-dirs-{self._workers.index(worker)}"
            buffer = bytearray(COPIED_AT_ONCE_BYTES)
            worker.thread = self.new_worker(name, partial(self._run, worker, buffer), retry_s=_RETRY_S)
            worker.thread.start()
        worker.thread.wake()

    def close(self) -> None:
        """End the threads. Idempotent."""
        with self._lock:
            self._closed = True
            threads = [worker.thread for worker in self._workers if worker.thread is not None]
        for thread in threads:
            thread.stop()
        for thread in threads:
            thread.join()

    # -- threads ---------------------------------------------------------------------------------------------

    def _run(self, worker: _Worker, buffer: bytearray) -> float | None:
        """One step of the move that is copied now; how long there is nothing to do then."""
        self._look_at_news()
        move = self._next(worker)
        if move is not None and not self.throttle.exceeded(self.timer_ms()):
            self._step(move, buffer)
        return self._pause_s(worker)

    def _pause_s(self, worker: _Worker) -> float | None:
        """How long there is nothing to do, None: until something changes."""
        with self._lock:
            resume_ms = min((move.resume_ms for move in worker.moves.values()), default=None)
        if resume_ms is None:
            return None
        now_ms = self.timer_ms()
        return _THROTTLED_PAUSE_S if self.throttle.exceeded(now_ms) else max(0, resume_ms - now_ms) / 1000

    def _next(self, worker: _Worker) -> _Move | None:
        """The move that is copied now: the first one, so that it ends before others begin."""
        now_ms = self.timer_ms()
        with self._lock:
            for partition in sorted(worker.moves):
                if worker.moves[partition].resume_ms <= now_ms:
                    return worker.moves[partition]
        return None

    def _step(self, move: _Move, buffer: bytearray) -> None:
        partition = move.work.future.partition
        try:
            copied = move.work.copy(buffer, self.clock_ms())
            self.throttle.record(copied, self.timer_ms())
            if not copied and not self._finish(move, buffer):
                move.resume_ms = self.timer_ms() + _BUSY_PAUSE_MS
        except (OSError, KlogError) as error:
            if self.logs.futures.get(partition) is not move.work.future:
                # The replica was deleted, the move was cancelled, or a disk has failed.
                self._drop(partition, move)
                return
            _log.error("%s could not be copied to its new log directory: %s", partition, error)
            move.resume_ms = self.timer_ms() + self.backoff_ms
        except Exception:
            # The other moves must go on.
            _log.exception("the move of %s between log directories failed", partition)
            move.resume_ms = self.timer_ms() + self.backoff_ms

    def _finish(self, move: _Move, buffer: bytearray) -> bool:
        """Let the copy take its log's place; False if it lacks too much again."""
        work, partition = move.work, move.work.future.partition
        replaced = work.promote(buffer, self.clock_ms())
        if replaced is None:
            return False
        source, target = parent_of(replaced), parent_of(work.future)
        self.cleaner.moved(partition, source, target)
        self._drop(partition, move)
        try:
            self.logs.futures.discard(replaced)
        except (OSError, StorageError) as error:
            # Its log directory fails for that: a start would find two logs of the replica.
            _log.error("%s is in %s now, but its old log stays: %s", partition, target, error)
        self.logs.checkpoint(target)
        _log.info("%s has moved from %s to %s", partition, source, target)
        return True
