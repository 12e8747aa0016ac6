"""The replicas of this broker: made, led, followed, stopped and deleted as the controller says.

Rules: Kafka's `ReplicaManager`. Requests of a controller are fenced by the highest controller epoch seen and
by each partition's leader epoch. Reads and writes of clients go to the partitions directly; whoever waits for
one of them is woken here. Fetching from other brokers is another room's: `on_roles_changed` tells it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Protocol

from klog.formats.errors import KlogError, StorageError
from klog.formats.names import TopicPartition
from klog.metadata.control_requests import ControlResponse, partition_states, topic_ids
from klog.protocol.error_codes import ErrorCode
from klog.protocol.interbroker.leader_and_isr import LeaderAndIsrPartitionState, LeaderAndIsrRequest
from klog.protocol.interbroker.stop_replica import (
    EPOCH_DURING_DELETE,
    NO_EPOCH,
    StopReplicaPartitionState,
    StopReplicaRequest,
)
from klog.replication.acknowledging import DelayedProduce
from klog.replication.deleting import DelayedDeleteRecords
from klog.replication.follower import FollowerFetch
from klog.replication.partition import Partition, Surroundings
from klog.replication.purgatory import Purgatory
from klog.replication.reading import DelayedFetch, Fetched, FetchEntry, SentBefore
from klog.storage.log.partition_log import PartitionLog

logger = logging.getLogger(__name__)

_NO_CONTROLLER: Final = -1


class Logs(Protocol):
    """What the replica manager wants of the log manager. All raise `StorageError` or `OSError`."""

    def get_or_create(self, where: TopicPartition, topic_id: str | None, *, is_new: bool) -> PartitionLog:
        """The log of a replica; made where it is not there yet (in a directory that is online)."""

    def get(self, where: TopicPartition) -> PartitionLog | None:
        """The log of a replica, if it is there."""

    def delete(self, replicas: Iterable[TopicPartition]) -> Mapping[TopicPartition, Exception]:
        """Throw replicas' logs away: renamed now, removed later. What failed."""


class ReplicaManager:
    """All replicas by (topic, partition).

    `partitions` is replaced as a whole and never changed: readers hold no lock.
    """

    def __init__(
        self,
        surroundings: Surroundings,
        logs: Logs,
        produce_purgatory: Purgatory[DelayedProduce],
        fetch_purgatory: Purgatory[DelayedFetch],
        delete_purgatory: Purgatory[DelayedDeleteRecords],
        on_roles_changed: Callable[[Iterable[Partition]], None] = lambda _: None,
    ) -> None:
        self.broker_id = surroundings.broker_id
        self._surroundings = surroundings
        self.partitions: Mapping[tuple[str, int], Partition] = {}
        self.offline: frozenset[tuple[str, int]] = frozenset()
        self.controller_epoch = _NO_CONTROLLER
        self._logs = logs
        self._produce_purgatory = produce_purgatory
        self._fetch_purgatory = fetch_purgatory
        self._delete_purgatory = delete_purgatory
        self._on_roles_changed = on_roles_changed
        self._changing = threading.RLock()

    # -- waking those that wait ------------------------------------------------------------------------------

    def appended(self, key: tuple[str, int], *, high_watermark_moved: bool) -> None:
        """Records have been written: wake whoever waits for them. To be called without any log's lock."""
        self._fetch_purgatory.check_and_complete(key)
        if high_watermark_moved:
            self._produce_purgatory.check_and_complete(key)
            self._delete_purgatory.check_and_complete(key)

    def record_fetch(
        self, fetch: FollowerFetch, quiet: Iterable[SentBefore], fetched: Iterable[Fetched]
    ) -> None:
        """Record a follower's fetch in every partition that it could read, and wake whoever waits for it.

        `quiet` are the partitions that had no news: the follower has all of them. To be called without any
        log's lock.
        """
        for each in quiet:
            # What it fetches is the log's end, or the partition would not be quiet.
            self._record_fetch(fetch, each.entry, each.entry.offset)
        for entry, error, read, diverging in fetched:
            if not error and read is not None and diverging is None:
                self._record_fetch(fetch, entry, read.log_end_offset)

    def _record_fetch(self, fetch: FollowerFetch, entry: FetchEntry, leader_end_offset: int) -> None:
        key = entry.key
        partition = self.partitions.get(key)
        if partition is None:
            return
        if partition.record_fetch(fetch, entry.offset, entry.log_start_offset, leader_end_offset):
            self._produce_purgatory.check_and_complete(key)
            self._fetch_purgatory.check_and_complete(key)
        self._delete_purgatory.check_and_complete(key)

    def _role_changed(self, key: tuple[str, int]) -> None:
        self._produce_purgatory.check_and_complete(key)
        self._fetch_purgatory.check_and_complete(key)
        self._delete_purgatory.check_and_complete(key)

    # -- the controller's word -------------------------------------------------------------------------------

    def accepts(self, controller_epoch: int) -> bool:
        """Whether a controller of this epoch may still speak; its epoch is remembered."""
        with self._changing:
            if controller_epoch < self.controller_epoch:
                return False
            self.controller_epoch = controller_epoch
            return True

    def leader_and_isr(self, request: LeaderAndIsrRequest) -> ControlResponse:
        """Lead or follow partitions."""
        with self._changing:
            if not self.accepts(request.controller_epoch):
                return ControlResponse(ErrorCode.STALE_CONTROLLER_EPOCH)
            errors: dict[TopicPartition, ErrorCode] = {}
            changed: list[Partition] = []
            added: dict[tuple[str, int], Partition] = {}
            ids = topic_ids(request.topic_states)
            for where, state in partition_states(request.topic_states):
                error, partition = self._apply(where, state, ids.get(where.topic), added)
                errors[where] = error
                if partition is not None:
                    changed.append(partition)
            if added:
                self.partitions = {**self.partitions, **added}
        if changed:
            self._on_roles_changed(changed)
        for partition in changed:
            self._role_changed(partition.topic_partition)
        return ControlResponse(ErrorCode.NONE, errors)

    def _apply(
        self,
        where: TopicPartition,
        state: LeaderAndIsrPartitionState,
        topic_id: str | None,
        added: dict[tuple[str, int], Partition],
    ) -> tuple[ErrorCode, Partition | None]:
        if where in self.offline:
            return ErrorCode.KAFKA_STORAGE_ERROR, None
        if self.broker_id not in state.replicas:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None
        try:
            # A log that has no topic id yet is given it, also by a request that changes nothing else.
            log = self._logs.get_or_create(where, topic_id, is_new=state.is_new)
        except (KlogError, OSError) as failed:
            logger.error("%s has no log: %s", where, failed)
            if isinstance(failed, StorageError | OSError):
                # Maybe it is in a directory that failed before it was known what is in there.
                self.offline |= {where}
            return ErrorCode.KAFKA_STORAGE_ERROR, None
        partition = self.partitions.get(where) or Partition(where, self._surroundings, log, log.topic_id)
        if not partition.identify(topic_id):
            logger.error("%s is another topic's: its id is %s, not %s", log.directory, log.topic_id, topic_id)
            return ErrorCode.INCONSISTENT_TOPIC_ID, None
        if state.leader_epoch < partition.state.leader_epoch:
            return ErrorCode.STALE_CONTROLLER_EPOCH, None
        if state.leader_epoch == partition.state.leader_epoch:
            return ErrorCode.NONE, None  # heard before: a repeated request must change nothing
        if where not in self.partitions:
            added[where] = partition
        try:
            partition.apply(state)
        except (KlogError, OSError) as failed:
            added.pop(where, None)
            logger.error("%s cannot take its role: %s", where, failed)
            return ErrorCode.KAFKA_STORAGE_ERROR, None
        logger.info("%r", partition)
        return ErrorCode.NONE, partition

    def stop_replicas(self, request: StopReplicaRequest) -> ControlResponse:
        """Stop partitions, and delete those that the controller wants gone."""
        with self._changing:
            if not self.accepts(request.controller_epoch):
                return ControlResponse(ErrorCode.STALE_CONTROLLER_EPOCH)
            states = dict(partition_states(request.topic_states))
            errors = {where: self._may_stop(where, state) for where, state in states.items()}
            gone = {where for where, error in errors.items() if error is ErrorCode.NONE}
            self.partitions = {key: kept for key, kept in self.partitions.items() if key not in gone}
            failed = self._logs.delete(
                [where for where, state in states.items() if where in gone and state.delete_partition]
            )
            for where, error in failed.items():
                logger.error("%s could not be deleted: %s", where, error)
                errors[where] = ErrorCode.KAFKA_STORAGE_ERROR
        for key in gone:
            self._role_changed(key)
        return ControlResponse(ErrorCode.NONE, errors)

    def _may_stop(self, where: TopicPartition, state: StopReplicaPartitionState) -> ErrorCode:
        if where in self.offline:
            return ErrorCode.KAFKA_STORAGE_ERROR
        partition = self.partitions.get(where)
        if partition is None or state.leader_epoch in (EPOCH_DURING_DELETE, NO_EPOCH):
            return ErrorCode.NONE
        is_fenced = state.leader_epoch < partition.state.leader_epoch
        return ErrorCode.FENCED_LEADER_EPOCH if is_fenced else ErrorCode.NONE

    # -- failing directories ---------------------------------------------------------------------------------

    def directory_failed(self, lost: Iterable[TopicPartition]) -> None:
        """These replicas' directory has failed: they answer with a storage error from now on."""
        gone = set(lost)
        with self._changing:
            self.offline |= gone
            self.partitions = {key: kept for key, kept in self.partitions.items() if key not in gone}
        for key in gone:
            self._role_changed(key)

    def missing(self, key: tuple[str, int], known: Callable[[tuple[str, int]], bool]) -> ErrorCode:
        """What to say of a partition that has no replica here; `known` tells whether the cluster has it."""
        if key in self.offline:
            return ErrorCode.KAFKA_STORAGE_ERROR
        return ErrorCode.NOT_LEADER_OR_FOLLOWER if known(key) else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
