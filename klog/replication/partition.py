"""One partition on this broker: its role, its log, and how far its followers have replicated it.

Rules: Kafka's `Partition`. The controller says who leads (LeaderAndIsr, fenced by the leader epoch). A leader
records what its followers fetch and moves the high watermark. The decisions are pure functions in `isr`,
`high_watermark` and `alter_partition`; this module applies them under locks.

Locks: a partition's lock comes first, then its log's. `state` and `log` are replaced under both, so either
lock is enough to read them. An append or a read takes the log's lock only, and checks inside it that the log
is still the partition's: a future log may have taken its place.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, replace
from typing import Final, Protocol
from uuid import UUID

from klog.formats.errors import KlogError
from klog.formats.names import TopicPartition, decode_uuid
from klog.protocol.codec import uuid_of
from klog.protocol.error_codes import ErrorCode
from klog.protocol.interbroker.leader_and_isr import LeaderAndIsrPartitionState
from klog.replication import high_watermark
from klog.replication.follower import FollowerFetch, FollowerState, after_fetch, at_epoch_start
from klog.replication.isr import IsrState, expanded
from klog.replication.partition_state import ANY_EPOCH, PartitionState, state_of
from klog.storage.log.append_values import Origin
from klog.storage.log.batch_run import BatchRun
from klog.storage.log.partition_log import AppendInfo, PartitionLog
from klog.storage.log.reading import Read
from klog.storage.log.verification import UNCHECKED

CONSUMER: Final = -1
"""The replica id of a consumer."""
ALL_IN_SYNC: Final = -1
"""The acks of a producer that waits for all in-sync replicas."""
# The offset of DeleteRecords that means the high watermark.
_HIGH_WATERMARK: Final = -1


class Replicas(Protocol):
    """The replicas of this broker; the map is replaced when one comes or goes."""

    @property
    def partitions(self) -> Mapping[tuple[str, int], Partition]:
        """By (topic, partition)."""


class PartitionError(KlogError):
    """A request is refused for one partition, with this error code."""

    def __init__(self, error: ErrorCode, what: str = "") -> None:
        super().__init__(what or error.name)
        self.error = error


@dataclass(frozen=True, slots=True)
class ReplicaContext:
    """What all partitions of a broker share.

    `clock_ms` is a clock that is never set back. `alive` gives the brokers that are registered.
    `max_lag_ms` is `replica.lag.time.max.ms`. `isr_proposed` is called if this broker proposes another ISR of
    a partition. The partition is locked then: it takes note, and leaves the rest to a thread.
    """

    broker_id: int
    clock_ms: Callable[[], int]
    alive: Callable[[], Container[int]]
    max_lag_ms: int
    isr_proposed: Callable[[TopicPartition], object] = lambda key: None  # noqa: ARG005


class Partition:
    """A replica of this broker. Safe for threads."""

    def __init__(
        self,
        topic_partition: TopicPartition,
        context: ReplicaContext,
        log: PartitionLog,
        topic_id: str | None,
    ) -> None:
        self.topic_partition = topic_partition
        self.lock = threading.RLock()
        self.log = log
        self.state = PartitionState()
        self.topic_id: UUID | None = None
        self.context = context
        # By broker id, empty on a follower. Changed under the partition's lock.
        self.followers: dict[int, FollowerState] = {}
        self.identify(topic_id)

    def __repr__(self) -> str:
        state = self.state
        role = "leader" if state.is_leader else f"follower of {state.leader}"
        return f"Partition({self.topic_partition}, {role}, epoch {state.leader_epoch})"

    def identify(self, topic_id: str | None) -> bool:
        """Take the topic's id, in text form, if none is known; False if another one is known."""
        if topic_id is None:
            return True
        given = uuid_of(decode_uuid(topic_id))
        if self.topic_id is None:
            self.topic_id = given
        return self.topic_id == given

    # -- the role --------------------------------------------------------------------------------------------

    def apply(self, request: LeaderAndIsrPartitionState) -> None:
        """Lead or follow in a leader epoch that is newer than the present one; the caller has checked that.

        If it raises (`OSError`, `StorageError`), the role is as it was.
        """
        with self.lock, self.log.lock:
            log, old = self.log, self.state
            state = state_of(request, self.context.broker_id, log.log_end_offset)
            followers: dict[int, FollowerState] = {}
            if state.is_leader:
                # Written before anything is appended, so that followers can ask where the epoch starts.
                log.assign_epoch(state.leader_epoch, state.epoch_start_offset)
                # In an epoch that this broker was not told of another may have led, and followers have cut
                # their logs for it. Kafka keeps their offsets all the same, and can commit what they lack.
                leads_on = old.is_leader and state.leader_epoch == old.leader_epoch + 1
                followers = at_epoch_start(
                    self._remote_replicas(state),
                    state.isr.committed,
                    self.followers if leads_on else {},
                    state.epoch_start_offset,
                    self.context.clock_ms(),
                )
            self.state = state
            self.followers = followers
            if state.is_leader:
                self._advance_high_watermark(log)

    def _remote_replicas(self, state: PartitionState) -> list[int]:
        everyone = dict.fromkeys((*state.assignment.replicas, *state.isr.committed))
        return [replica_id for replica_id in everyone if replica_id != self.context.broker_id]

    def replace_log(self, future: PartitionLog) -> bool:
        """Let a future log take the log's place; False if it does not end where the log ends.

        Every append goes to exactly one of the two. The log that was replaced stays open and belongs to the
        caller.
        """
        with self.lock, self.log.lock, future.lock:
            log = self.log
            if future.log_end_offset != log.log_end_offset:
                return False
            future.set_high_watermark(log.high_watermark)
            self.log = future
            return True

    def lock_log(self) -> PartitionLog:
        """Enter the lock of the partition's log; the caller leaves it with `log.lock.release()`."""
        while True:
            log = self.log
            log.lock.acquire()
            if log is self.log:
                return log
            log.lock.release()

    def require_epoch(self, current_leader_epoch: int, *, leader_only: bool) -> PartitionLog:
        """The log, if the sender knows the present leader epoch, and if this broker leads or need not lead.

        Raises `PartitionError`.
        """
        state = self.state
        error = state.epoch_error(current_leader_epoch)
        if error:
            raise PartitionError(error)
        if leader_only and not state.is_leader:
            raise PartitionError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return self.log

    def require_leader(self, current_leader_epoch: int = ANY_EPOCH) -> PartitionLog:
        """The log, if this broker leads in the epoch that the sender knows. Raises `PartitionError`."""
        return self.require_epoch(current_leader_epoch, leader_only=True)

    def require_replica(self, replica_id: int, current_leader_epoch: int) -> None:
        """Raises `PartitionError` if a follower has no replica as far as this leader knows.

        One that knows the leader's epoch may know of a reassignment that is on its way to this broker.
        """
        if replica_id not in self.followers:
            error = ErrorCode.UNKNOWN_LEADER_EPOCH
            if current_leader_epoch == ANY_EPOCH:
                error = ErrorCode.NOT_LEADER_OR_FOLLOWER
            raise PartitionError(error, f"broker {replica_id} has no replica of {self.topic_partition}")

    # -- writing and reading ---------------------------------------------------------------------------------

    @property
    def min_in_sync_replicas(self) -> int:
        """`min.insync.replicas`, but never more than there are replicas (KAFKA-16541)."""
        return min(self.log.config.min_insync_replicas, len(self.state.assignment.replicas) or 1)

    def append(
        self,
        data: memoryview,
        acks: int,
        now_ms: int,
        origin: Origin = Origin.CLIENT,
        leader_epoch: int = ANY_EPOCH,
        guard: object | None = UNCHECKED,
    ) -> tuple[AppendInfo, bool]:
        """Write records as the leader; what was written, and whether the high watermark moved.

        `now_ms` is the wall clock's. `leader_epoch` is the epoch in which the caller believes this broker to
        lead. `guard` is that of `begin_verification`, for records of a transaction. Raises `PartitionError`,
        `AppendError`, `OSError`, `StorageError`.
        """
        log = self.lock_log()
        try:
            state = self.state
            if leader_epoch != ANY_EPOCH:
                self.require_leader(leader_epoch)
            if not state.is_leader:
                raise PartitionError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            if acks == ALL_IN_SYNC and len(state.isr.committed) < self.min_in_sync_replicas:
                raise PartitionError(
                    ErrorCode.NOT_ENOUGH_REPLICAS,
                    f"{len(state.isr.committed)} in-sync replicas, "
                    f"at least {self.min_in_sync_replicas} are needed",
                )
            info = log.append_as_leader(data, state.leader_epoch, now_ms, origin, guard)
            return info, self._advance_high_watermark(log)
        finally:
            log.lock.release()

    def begin_verification(self, producer_id: int, epoch: int, sequence: int, now_ms: int) -> object | None:
        """Note that the coordinator is asked whether this partition is in a producer's transaction.

        Returns the guard for the append of the batch that begins with `sequence`, None if the transaction is
        open here already. Raises `PartitionError` if this broker does not lead.
        """
        log = self.lock_log()
        try:
            self.require_leader()
            return log.producers.begin_verification(producer_id, epoch, sequence, now_ms)
        finally:
            log.lock.release()

    def append_run(
        self,
        run: BatchRun,
        now_ms: int,
        leader_epoch: int = ANY_EPOCH,
        may_wait: bool = False,
        guard: object = UNCHECKED,
    ) -> tuple[int, int, bool] | None:
        """Write the batches of usual frames as the leader, all at once.

        Returns the offset of the first record, the log start offset, and whether the high watermark moved.
        None if any of them may need `append`: then nothing has changed, or the run was cut. With acks=-1 that
        is so if too few replicas are in sync, and if there are followers, unless the caller `may_wait` for
        them. `guard` is that of the verification of a transaction, or `OPEN`. Raises `OSError`,
        `StorageError`.
        """
        log = self.lock_log()
        try:
            state = self.state
            if not state.is_leader or leader_epoch not in (ANY_EPOCH, state.leader_epoch):
                return None
            if run.acks == ALL_IN_SYNC and not self._may_append_for_all(state, may_wait):
                return None
            first_offset = log.log_end_offset
            if not log.append_run(run, state.leader_epoch, now_ms, guard):
                return None
            return first_offset, log.log_start_offset, self._advance_high_watermark(log)
        finally:
            log.lock.release()

    def _may_append_for_all(self, state: PartitionState, may_wait: bool) -> bool:
        in_sync = len(state.isr.committed)
        if not self.followers:
            return in_sync > 0
        return may_wait and in_sync >= self.min_in_sync_replicas

    def read_for_consumer(
        self, offset: int, max_bytes: int, current_leader_epoch: int, committed: bool
    ) -> Read | None:
        """Read as the leader, at least one batch, without waiting for the disk.

        None if there are no records to answer with, for whatever reason. The caller then tries a read that
        gives the reason.
        """
        log = self.lock_log()
        try:
            state = self.state
            if not state.is_leader or state.epoch_error(current_leader_epoch):
                return None
            limit = log.last_stable_offset if committed else log.high_watermark
            if not log.log_start_offset <= offset < limit:
                return None
            read = log.read_locked(offset, max_bytes, limit, True, committed, False)
            return None if read.file is None else read
        except (OSError, KlogError):
            return None
        finally:
            log.lock.release()

    def limit(self, replica_id: int, *, committed: bool) -> int:
        """The first offset that a reader may not see."""
        log = self.log
        if replica_id >= 0:
            return log.log_end_offset
        return log.last_stable_offset if committed else log.high_watermark

    # -- how far it is replicated ----------------------------------------------------------------------------

    def record_fetch(
        self,
        fetch: FollowerFetch,
        offset: int,
        start_offset: int,
        leader_end_offset: int,
        leader_epoch: int = ANY_EPOCH,
    ) -> bool:
        """Record that a follower has fetched from `offset`; whether the high watermark moved.

        `start_offset` is the follower's log start offset, `leader_end_offset` this log's end at the fetch,
        `leader_epoch` the epoch that the follower knows. Nothing is recorded for a broker that has no
        replica, or if this broker does not lead, or leads in another epoch since the fetch was read. If the
        follower may join the ISR now, that is proposed first: from then on the high watermark waits for it.
        """
        with self.lock:
            state, before = self.state, self.followers.get(fetch.replica_id)
            if before is None or (leader_epoch != state.leader_epoch and state.epoch_error(leader_epoch)):
                return False
            after = after_fetch(before, fetch, offset, start_offset, leader_end_offset)
            self.followers[fetch.replica_id] = after
            if fetch.replica_id not in state.isr.committed:
                self._propose_expansion(fetch.replica_id, after)
            return after.end_offset != before.end_offset and self.advance_high_watermark()

    def _propose_expansion(self, replica_id: int, follower: FollowerState) -> None:
        # With the log's lock: no append may raise the high watermark above the follower's end between the
        # check and the proposal, from which on it waits for the follower.
        with self.log.lock:
            state = self.state
            proposed = expanded(
                state.isr,
                replica_id,
                follower,
                high_watermark=self.log.high_watermark,
                epoch_start_offset=state.epoch_start_offset,
                eligible=self.context.alive(),
            )
            if proposed is not None:
                self.propose_isr(proposed)

    def propose_isr(self, isr: IsrState) -> None:
        """Propose another ISR to the controller; the caller holds the partition's lock."""
        with self.log.lock:
            self.state = replace(self.state, isr=isr)
        self.context.isr_proposed(self.topic_partition)

    def advance_high_watermark(self) -> bool:
        """Move the high watermark of a leader up to what all replicas that count have; whether it moved.

        The caller holds the partition's lock.
        """
        log = self.log
        with log.lock:
            return self._advance_high_watermark(log)

    def _advance_high_watermark(self, log: PartitionLog) -> bool:
        """`advance_high_watermark` of a caller that holds the log's lock."""
        end_offset, before = log.log_end_offset, log.high_watermark
        if not self.followers:
            return log.raise_high_watermark(end_offset)
        context = self.context
        end_offset = high_watermark.next_high_watermark(
            before,
            end_offset,
            self.state.isr,
            self.followers,
            min_in_sync_replicas=self.min_in_sync_replicas,
            alive=context.alive(),
            now_ms=context.clock_ms(),
            max_lag_ms=context.max_lag_ms,
        )
        return log.raise_high_watermark(end_offset)

    def low_watermark(self) -> int:
        """The smallest log start offset of this leader and of its followers on live brokers."""
        with self.lock:
            alive = self.context.alive()
            return high_watermark.low_watermark(self.log.log_start_offset, self.followers, alive)

    def delete_records(self, offset: int) -> int:
        """Move the log start offset up to `offset` (-1: the high watermark); returns that offset.

        Raises `PartitionError`, `OSError`, `StorageError`.
        """
        log = self.lock_log()
        try:
            self.require_leader()
            if not log.config.delete:
                raise PartitionError(ErrorCode.POLICY_VIOLATION, "the topic's cleanup.policy keeps records")
            wanted = log.high_watermark if offset == _HIGH_WATERMARK else offset
            if not 0 <= wanted <= log.high_watermark:
                raise PartitionError(
                    ErrorCode.OFFSET_OUT_OF_RANGE, f"{wanted} is not within 0 to {log.high_watermark}"
                )
            log.advance_log_start(wanted)
            return wanted
        finally:
            log.lock.release()
