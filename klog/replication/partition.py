"""One partition on this broker: who leads it, in which epoch, and how far it is replicated.

Rules: Kafka's `Partition`. The controller says who leads (LeaderAndIsr, fenced by the leader epoch); the
high watermark is the smallest log end offset of the in-sync replicas and never goes back on a leader. How
followers report their progress is replication's matter: `follower_end_offsets` and `follower_start_offsets`
hold what they said.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol
from uuid import UUID

from klog.formats.errors import KlogError
from klog.formats.names import TopicPartition, decode_uuid
from klog.metadata.control_requests import LeaderAndIsrPartition
from klog.protocol.error_codes import ErrorCode
from klog.storage.log.append_values import Origin
from klog.storage.log.partition_log import AppendInfo, PartitionLog

NO_LEADER = -1
CONSUMER = -1
ANY_EPOCH = -1
_NO_EPOCH_START = -1
_HIGH_WATERMARK = -1  # as the offset of DeleteRecords


class Replicas(Protocol):
    """Where this broker's replicas are found; the map is replaced when one comes or goes."""

    @property
    def partitions(self) -> Mapping[tuple[str, int], Partition]:
        """By (topic, partition)."""


class PartitionError(KlogError):
    """What a request is answered for one partition."""

    def __init__(self, error: ErrorCode, what: str = "") -> None:
        super().__init__(what or error.name)
        self.error = error


class Partition:
    """A replica of this broker. The log's lock guards every change."""

    def __init__(
        self, where: TopicPartition, broker_id: int, log: PartitionLog, topic_id: str | None
    ) -> None:
        self.where = where
        self.broker_id = broker_id
        self.log = log
        self.topic_id: UUID | None = None
        self.identify(topic_id)
        self.leader = NO_LEADER
        self.leader_epoch = -1
        self.partition_epoch = -1
        self.controller_epoch = -1
        self.isr: tuple[int, ...] = ()
        self.replicas: tuple[int, ...] = ()
        self.is_leader = False
        self.epoch_start_offset = _NO_EPOCH_START  # the log's end when this broker became leader
        self.follower_end_offsets: dict[int, int] = {}
        self.follower_start_offsets: dict[int, int] = {}

    def __repr__(self) -> str:
        role = "leader" if self.is_leader else f"follower of {self.leader}"
        return f"Partition({self.where}, {role}, epoch {self.leader_epoch})"

    def identify(self, topic_id: str | None) -> bool:
        """Learn the topic's id, as the tree has it in text; False where another one is known."""
        if topic_id is None:
            return True
        told = UUID(bytes=decode_uuid(topic_id))
        if self.topic_id is None:
            self.topic_id = told
        return self.topic_id == told

    # -- the controller's word -------------------------------------------------------------------------------

    def apply(self, state: LeaderAndIsrPartition) -> bool:
        """Lead or follow as the controller says; whether the leader epoch is new. The caller fences it."""
        with self.log.lock:
            is_new_epoch = state.leader_epoch > self.leader_epoch
            self.leader = state.leader
            self.leader_epoch = state.leader_epoch
            self.partition_epoch = state.partition_epoch
            self.controller_epoch = state.controller_epoch
            self.replicas = state.replicas
            self.is_leader = state.leader == self.broker_id
            self.isr = state.isr if self.is_leader else ()
            if self.is_leader:
                if is_new_epoch:
                    self.follower_end_offsets.clear()
                    self.follower_start_offsets.clear()
                    self.epoch_start_offset = self.log.log_end_offset
                    # Recorded before anything is appended, so that a follower can be told where it starts.
                    self.log.assign_epoch(state.leader_epoch, self.log.log_end_offset)
                self.advance_high_watermark()
            else:
                self.epoch_start_offset = _NO_EPOCH_START
            return is_new_epoch

    def check_epoch(self, current_leader_epoch: int) -> None:
        """Fence a request by the leader epoch that its sender knows (KIP-320). Raises `PartitionError`."""
        if current_leader_epoch in (ANY_EPOCH, self.leader_epoch):
            return
        if current_leader_epoch < self.leader_epoch:
            raise PartitionError(ErrorCode.FENCED_LEADER_EPOCH)
        raise PartitionError(ErrorCode.UNKNOWN_LEADER_EPOCH)

    def require_epoch(self, current_leader_epoch: int, *, leader_only: bool) -> PartitionLog:
        """The log, where this broker is in the sender's epoch, and leads if it must. Raises
        `PartitionError`.
        """
        if current_leader_epoch not in (ANY_EPOCH, self.leader_epoch):
            self.check_epoch(current_leader_epoch)
        if leader_only and not self.is_leader:
            raise PartitionError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return self.log

    def require_leader(self, current_leader_epoch: int = ANY_EPOCH) -> PartitionLog:
        """The log, where this broker leads in the sender's epoch. Raises `PartitionError`."""
        return self.require_epoch(current_leader_epoch, leader_only=True)

    # -- writing and reading ---------------------------------------------------------------------------------

    @property
    def min_in_sync_replicas(self) -> int:
        """`min.insync.replicas`, but never more than there are replicas (KAFKA-16541)."""
        return min(self.log.config.min_insync_replicas, len(self.replicas) or 1)

    def append(
        self, data: memoryview, acks: int, now_ms: int, origin: Origin = Origin.CLIENT
    ) -> tuple[AppendInfo, bool]:
        """Write records as the leader; what was done, and whether the high watermark moved.

        Raises `PartitionError`, `AppendError`, `OSError`.
        """
        log = self.log
        with log.lock:
            if not self.is_leader:
                raise PartitionError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            if acks == -1 and len(self.isr) < self.min_in_sync_replicas:
                raise PartitionError(
                    ErrorCode.NOT_ENOUGH_REPLICAS,
                    f"{len(self.isr)} in-sync replicas, at least {self.min_in_sync_replicas} are needed",
                )
            info = log.append_as_leader(data, self.leader_epoch, now_ms, origin)
            return info, self.advance_high_watermark()

    def advance_high_watermark(self) -> bool:
        """Move the high watermark up to what all in-sync replicas have; whether it moved."""
        log = self.log
        with log.lock:
            end = log.log_end_offset
            if len(self.isr) > 1:
                known: Mapping[int, int] = self.follower_end_offsets
                end = min(end, *(known.get(r, -1) for r in self.isr if r != self.broker_id))
            if end <= log.high_watermark:
                return False
            log.set_high_watermark(end)
            return True

    def low_watermark(self, is_alive: Callable[[int], bool]) -> int:
        """The smallest log start offset of this leader and of its followers on live brokers."""
        start = self.log.log_start_offset
        followers = [replica for replica in self.replicas if replica != self.broker_id and is_alive(replica)]
        return min([start] + [self.follower_start_offsets.get(replica, -1) for replica in followers])

    def delete_records(self, offset: int) -> int:
        """Move the log's start up to an offset below the high watermark (-1: up to it); the offset meant.

        Raises `PartitionError`.
        """
        log = self.log
        with log.lock:
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

    def limit(self, replica_id: int, *, committed: bool) -> int:
        """Up to which offset (exclusive) a reader may see records."""
        if replica_id >= 0:
            return self.log.log_end_offset
        return self.log.last_stable_offset if committed else self.log.high_watermark
