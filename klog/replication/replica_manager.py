"""The replicas of this broker: created, led, followed, stopped and deleted as the controller says.

Rules: Kafka's `ReplicaManager`. Requests of a controller are fenced by the highest controller epoch seen and
by each partition's leader epoch. Reads and writes of clients go to the partitions directly; the operations
that wait for them are tried from here. Every change of a role, whatever its cause, reaches the listeners.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from klog.formats.constants import NO_LEADER
from klog.formats.errors import KlogError, StorageError
from klog.formats.names import TopicPartition
from klog.metadata.control_requests import ControlResponse, can_exist, partition_states, topic_ids
from klog.protocol.error_codes import ErrorCode
from klog.protocol.interbroker.leader_and_isr import LeaderAndIsrPartitionState, LeaderAndIsrRequest
from klog.protocol.interbroker.stop_replica import (
    EPOCH_DURING_DELETE,
    NO_EPOCH,
    StopReplicaPartitionState,
    StopReplicaRequest,
)
from klog.replication.follower import FollowerFetch
from klog.replication.partition import Partition, ReplicaContext
from klog.replication.partition_state import PartitionState
from klog.replication.purgatory import Purgatory
from klog.replication.reading import Fetched, FetchEntry, SentBefore
from klog.replication.replica_logs import Logs, delete_logs, is_of_another_topic, keep_as_stray
from klog.replication.roles import Role, RoleChange, RoleListener

_log = logging.getLogger(__name__)

_NO_CONTROLLER: Final = -1


@dataclass(slots=True, eq=False)
class _Changing:
    """What one request or one failure changes: roles, in order, and the partitions that it adds.

    These join the others together, since the map of partitions is replaced as a whole.
    """

    changes: list[RoleChange] = field(default_factory=list)
    added: dict[tuple[str, int], Partition] = field(default_factory=dict)


class ReplicaManager:
    """All replicas by (topic, partition).

    `partitions` is replaced as a whole and never changed: readers hold no lock. `read_topic_ids` reads the
    ids of topics from the metadata store; it leaves out topics that do not exist, and raises `StoreError`.
    """

    def __init__(
        self,
        context: ReplicaContext,
        logs: Logs,
        produce_purgatory: Purgatory,
        fetch_purgatory: Purgatory,
        delete_purgatory: Purgatory,
        read_topic_ids: Callable[[Collection[str]], Mapping[str, str | None]] = lambda _: {},
    ) -> None:
        self.broker_id = context.broker_id
        self.partitions: Mapping[tuple[str, int], Partition] = {}
        self.offline: frozenset[tuple[str, int]] = frozenset()
        self.controller_epoch = _NO_CONTROLLER
        self._context = context
        self._logs = logs
        self._produce_purgatory = produce_purgatory
        self._fetch_purgatory = fetch_purgatory
        self._delete_purgatory = delete_purgatory
        self._read_topic_ids = read_topic_ids
        self._listeners: list[RoleListener] = []
        self._lock = threading.RLock()
        # Under the lock: those that StopReplica has stopped without deleting them, and what is in progress.
        self._stopped: set[tuple[str, int]] = set()
        self._changing: _Changing | None = None

    # -- what operations wait for ----------------------------------------------------------------------------

    def appended(self, key: tuple[str, int], high_watermark_moved: bool) -> None:
        """Try the operations that wait for records. To be called after an append, without any log's lock."""
        self._fetch_purgatory.check_and_complete(key)
        if high_watermark_moved:
            self._produce_purgatory.check_and_complete(key)
            self._delete_purgatory.check_and_complete(key)

    def isr_changed(self, key: tuple[str, int]) -> None:
        """Try what waits on a partition whose ISR or role has changed: its high watermark may have moved.

        To be called without any log's lock.
        """
        self._produce_purgatory.check_and_complete(key)
        self._fetch_purgatory.check_and_complete(key)
        self._delete_purgatory.check_and_complete(key)

    def record_fetch(
        self, fetch: FollowerFetch, quiet: Iterable[SentBefore], fetched: Iterable[Fetched]
    ) -> None:
        """Record a follower's fetch in every partition that it could read, and try what waits for it.

        `quiet` are the partitions that had no news. To be called without any log's lock.
        """
        for each in quiet:
            # A partition is quiet only if the fetch is from the log's end.
            self._record_fetch(fetch, each.entry, each.entry.offset)
        for found in fetched:
            if not found.error and found.read is not None and found.diverging is None:
                self._record_fetch(fetch, found.entry, found.read.log_end_offset)

    def _record_fetch(self, fetch: FollowerFetch, entry: FetchEntry, leader_end_offset: int) -> None:
        key = entry.key
        partition = self.partitions.get(key)
        if partition is None:
            return
        if partition.record_fetch(
            fetch, entry.offset, entry.log_start_offset, leader_end_offset, entry.current_leader_epoch
        ):
            self._produce_purgatory.check_and_complete(key)
            self._fetch_purgatory.check_and_complete(key)
        self._delete_purgatory.check_and_complete(key)

    # -- roles -----------------------------------------------------------------------------------------------

    def add_listener(self, listener: RoleListener) -> None:
        """Let a listener know of every change of a role from now on."""
        self._listeners.append(listener)

    @contextmanager
    def _changing_roles(self) -> Iterator[_Changing]:
        """The lock under which roles change. The changes that the body lists reach the listeners in order;
        then everything that waits on their partitions is tried.

        A log directory may fail while a request is carried out, and in the same thread. Its changes join
        those of the request, so that listeners never hear of a role after its loss.
        """
        with self._lock:
            outer = self._changing
            if outer is not None:
                yield outer
                return
            self._changing = changing = _Changing()
            try:
                yield changing
            finally:
                self._changing = None
            if changing.added:
                self.partitions = {**self.partitions, **changing.added}
            if changing.changes:
                for listener in self._listeners:
                    listener(changing.changes)
        for change in changing.changes:
            self.isr_changed(change.partition)

    def _hosted(self, key: tuple[str, int]) -> Partition | None:
        """The partition, also if the request in progress has added it."""
        added = None if self._changing is None else self._changing.added.get(key)
        return added or self.partitions.get(key)

    def _role(self, key: tuple[str, int]) -> tuple[Role, int]:
        """The role for a partition, and its leader epoch."""
        if key in self.offline:
            return Role.FAILED, NO_EPOCH
        partition = self._hosted(key)
        if partition is None:
            return Role.ABSENT, NO_EPOCH
        role = Role.STOPPED if key in self._stopped else _role_of(partition.state)
        return role, partition.state.leader_epoch

    def accepts(self, controller_epoch: int) -> bool:
        """Whether no controller of a higher epoch is known; this epoch is remembered."""
        with self._lock:
            if controller_epoch < self.controller_epoch:
                return False
            if controller_epoch > self.controller_epoch:
                _log.info("requests of controller epoch %d and later are obeyed", controller_epoch)
            self.controller_epoch = controller_epoch
            return True

    def leader_and_isr(self, request: LeaderAndIsrRequest) -> ControlResponse:
        """Lead or follow partitions."""
        with self._changing_roles() as changing:
            if not self.accepts(request.controller_epoch):
                return ControlResponse(ErrorCode.STALE_CONTROLLER_EPOCH)
            errors: dict[TopicPartition, ErrorCode] = {}
            ids = topic_ids(request.topic_states)
            with self._logs.creating():
                for key, state in partition_states(request.topic_states):
                    errors[key] = self._lead_or_follow(key, state, ids.get(key.topic), changing)
            return ControlResponse(ErrorCode.NONE, self._with_offline(errors))

    def _with_offline(self, errors: Mapping[TopicPartition, ErrorCode]) -> dict[TopicPartition, ErrorCode]:
        """The errors of a request, in the course of which a log directory may have failed."""
        return {
            key: ErrorCode.KAFKA_STORAGE_ERROR if key in self.offline else error
            for key, error in errors.items()
        }

    def _lead_or_follow(
        self,
        key: TopicPartition,
        request: LeaderAndIsrPartitionState,
        topic_id: str | None,
        changing: _Changing,
    ) -> ErrorCode:
        if not can_exist(key):
            _log.error("the controller names a partition that cannot exist: %.300r", key)
            return ErrorCode.INVALID_TOPIC_EXCEPTION
        if key in self.offline:
            return ErrorCode.KAFKA_STORAGE_ERROR
        if self.broker_id not in request.replicas:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        try:
            self._set_aside_other_topic(key, topic_id, request.is_new, changing)
            known = self._hosted(key)
            # A log that has no topic id yet is given it, also by a request that changes nothing else.
            log = self._logs.get_or_create(key, topic_id, is_new=request.is_new and known is None)
        except (KlogError, OSError) as failed:
            _log.error("%s has no log: %s", key, failed)
            if isinstance(failed, StorageError | OSError):
                # It may be in a directory that failed before its content was known.
                self._fail((key,), changing)
            return ErrorCode.KAFKA_STORAGE_ERROR
        partition = known or Partition(key, self._context, log, log.topic_id)
        has_new_id = topic_id is not None and partition.topic_id is None
        if not partition.identify(topic_id):
            _log.error(
                "%s belongs to another topic: its id is %s, not %s", log.directory, log.topic_id, topic_id
            )
            return ErrorCode.INCONSISTENT_TOPIC_ID
        log.is_confirmed = True
        epoch = partition.state.leader_epoch
        if request.leader_epoch <= epoch:
            # Kafka answers so, too, to a request that is repeated and changes nothing.
            is_repeated = request.leader_epoch == epoch
            return ErrorCode.NONE if is_repeated and has_new_id else ErrorCode.STALE_CONTROLLER_EPOCH
        if not self._may_lead(request.leader):
            # The epoch is not taken over: the request can be sent again, and then has an effect.
            _log.error("%s: broker %d, which is to lead, is not known as alive", key, request.leader)
            if known is None:
                changing.added[key] = partition
            return ErrorCode.NONE
        old, _ = self._role(key)
        try:
            partition.apply(request)
        except (KlogError, OSError) as failed:
            _log.error("%s cannot take its role: %s", key, failed)
            if isinstance(failed, StorageError | OSError):
                # Its log has failed: the log directory goes offline soon, with all others in it.
                self._fail((key,), changing)
            return ErrorCode.KAFKA_STORAGE_ERROR
        if known is None:
            changing.added[key] = partition
        self._stopped.discard(key)
        changing.changes.append(RoleChange(key, old, _role_of(partition.state), request.leader_epoch))
        _log.info("%r", partition)
        return ErrorCode.NONE

    def _may_lead(self, leader: int) -> bool:
        """Whether a partition can have this leader as far as this broker knows the cluster."""
        return leader in (NO_LEADER, self.broker_id) or leader in self._context.alive()

    def _set_aside_other_topic(
        self,
        key: TopicPartition,
        topic_id: str | None,
        is_new: bool,
        changing: _Changing,
    ) -> None:
        """Keep a log that belongs to another topic of the same name as a stray, so that the name is free.

        Kafka answers INCONSISTENT_TOPIC_ID instead, until somebody removes the directory.
        Raises `StorageError`, `OSError`.
        """
        log = self._logs.get(key)
        if log is None or not is_of_another_topic(log, topic_id, is_new):
            return
        old, leader_epoch = self._role(key)
        if old is not Role.ABSENT:
            self._forget((key,))
            changing.changes.append(RoleChange(key, old, Role.DELETED, leader_epoch))
        keep_as_stray(self._logs, key, log, f"the topic's id is now {topic_id}")

    def stop_replicas(self, request: StopReplicaRequest) -> ControlResponse:
        """Stop partitions, and delete the logs of those that the controller names for deletion.

        As in Kafka, one that is not deleted stays what it is, with its leader epoch, but copies no more.
        """
        with self._changing_roles() as changing:
            if not self.accepts(request.controller_epoch):
                return ControlResponse(ErrorCode.STALE_CONTROLLER_EPOCH)
            states = dict(partition_states(request.topic_states))
            errors = {key: self._may_stop(key, state) for key, state in states.items()}
            stopped = [key for key, error in errors.items() if error is ErrorCode.NONE]
            for key in stopped:
                old, leader_epoch = self._role(key)
                if states[key].delete_partition:
                    changing.changes.append(RoleChange(key, old, Role.DELETED, leader_epoch))
                elif old is not Role.ABSENT:
                    changing.changes.append(RoleChange(key, old, Role.STOPPED, leader_epoch))
                    self._stopped.add(key)
            deleted = [key for key in stopped if states[key].delete_partition]
            self._forget(deleted)
            for key, failed in delete_logs(self._logs, deleted, self._read_topic_ids).items():
                _log.error("%s could not be deleted: %s", key, failed)
                errors[key] = ErrorCode.KAFKA_STORAGE_ERROR
            return ControlResponse(ErrorCode.NONE, self._with_offline(errors))

    def _may_stop(self, key: TopicPartition, state: StopReplicaPartitionState) -> ErrorCode:
        if key in self.offline:
            return ErrorCode.KAFKA_STORAGE_ERROR
        partition = self.partitions.get(key)
        if partition is None or state.leader_epoch in (EPOCH_DURING_DELETE, NO_EPOCH):
            return ErrorCode.NONE
        is_fenced = state.leader_epoch < partition.state.leader_epoch
        return ErrorCode.FENCED_LEADER_EPOCH if is_fenced else ErrorCode.NONE

    def directory_failed(self, lost: Iterable[TopicPartition]) -> None:
        """The log directory of these replicas has failed: requests for them get a storage error."""
        with self._changing_roles() as changing:
            self._fail(lost, changing)

    def _fail(self, lost: Iterable[TopicPartition], changing: _Changing) -> None:
        failed = [key for key in dict.fromkeys(lost) if key not in self.offline]
        for key in failed:
            old, leader_epoch = self._role(key)
            changing.changes.append(RoleChange(key, old, Role.FAILED, leader_epoch))
        self.offline |= frozenset(failed)
        self._forget(failed)

    def _forget(self, keys: Collection[tuple[str, int]]) -> None:
        gone = frozenset(keys)
        self._stopped -= gone
        if self._changing is not None:
            for key in gone & self._changing.added.keys():
                del self._changing.added[key]
        if not gone.isdisjoint(self.partitions):
            self.partitions = {key: kept for key, kept in self.partitions.items() if key not in gone}

    def has(self, key: TopicPartition) -> bool:
        """Whether there is a replica of this partition, on a disk that works or one that has failed."""
        return key in self.partitions or key in self.offline

    def missing(self, key: tuple[str, int], known: Callable[[tuple[str, int]], bool]) -> ErrorCode:
        """The error for a partition that has no replica here; `known` says whether the cluster has it."""
        if key in self.offline:
            return ErrorCode.KAFKA_STORAGE_ERROR
        return ErrorCode.NOT_LEADER_OR_FOLLOWER if known(key) else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _role_of(state: PartitionState) -> Role:
    return Role.LEADER if state.is_leader else Role.FOLLOWER
