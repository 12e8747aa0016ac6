"""One partition on this broker: who leads it, in which epoch, and how far it is replicated.

Rules: Kafka's `Partition`. The controller says who leads (LeaderAndIsr, fenced by the leader epoch); the
high watermark is the smallest log end offset of the in-sync replicas and never goes back on a leader. How
followers report their progress is replication's matter: `follower_end_offsets` holds what they said.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from klog.formats.errors import KlogError
from klog.formats.names import TopicPartition
from klog.metadata.control_requests import LeaderAndIsrPartition
from klog.protocol.error_codes import ErrorCode
from klog.storage.log.partition_log import AppendInfo, PartitionLog, Read
from klog.storage.log.validation import Origin

NO_LEADER = -1
CONSUMER = -1
ANY_EPOCH = -1


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
        self.topic_id = topic_id
        self.leader = NO_LEADER
        self.leader_epoch = -1
        self.partition_epoch = -1
        self.controller_epoch = -1
        self.isr: tuple[int, ...] = ()
        self.replicas: tuple[int, ...] = ()
        self.is_leader = False
        self.follower_end_offsets: dict[int, int] = {}

    def __repr__(self) -> str:
        role = "leader" if self.is_leader else f"follower of {self.leader}"
        return f"Partition({self.where}, {role}, epoch {self.leader_epoch})"

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
                    # Recorded before anything is appended, so that a follower can be told where it starts.
                    self.log.epochs.assign(state.leader_epoch, self.log.log_end_offset)
                self.advance_high_watermark()
            return is_new_epoch

    def check_epoch(self, current_leader_epoch: int) -> None:
        """Fence a request by the leader epoch that its sender knows (KIP-320). Raises `PartitionError`."""
        if current_leader_epoch in (ANY_EPOCH, self.leader_epoch):
            return
        if current_leader_epoch < self.leader_epoch:
            raise PartitionError(ErrorCode.FENCED_LEADER_EPOCH)
        raise PartitionError(ErrorCode.UNKNOWN_LEADER_EPOCH)

    def require_leader(self, current_leader_epoch: int = ANY_EPOCH) -> PartitionLog:
        """The log, where this broker leads in the sender's epoch. Raises `PartitionError`."""
        self.check_epoch(current_leader_epoch)
        if not self.is_leader:
            raise PartitionError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return self.log

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

    def limit(self, replica_id: int, *, committed: bool) -> int:
        """Up to which offset (exclusive) a reader may see records."""
        if replica_id >= 0:
            return self.log.log_end_offset
        return self.log.last_stable_offset if committed else self.log.high_watermark

    def read(
        self, offset: int, max_bytes: int, replica_id: int, *, committed: bool, at_least_one: bool
    ) -> Read:
        """Batches for a consumer or a follower. Raises `OffsetOutOfRangeError`."""
        log = self.log
        with log.lock:
            return log.read(
                offset,
                max_bytes,
                self.limit(replica_id, committed=committed),
                at_least_one=at_least_one,
                committed=committed,
            )
