"""States who leads a partition, in which epoch, with which replicas, as one immutable value.

Rules: Kafka's `LeaderAndIsr`, `PartitionState` and `AssignmentState`; KIP-320 (fencing by leader epoch).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from klog.formats.constants import NO_LEADER
from klog.protocol.error_codes import ErrorCode
from klog.protocol.interbroker.leader_and_isr import LeaderAndIsrPartitionState
from klog.replication.isr import IsrState

ANY_EPOCH = -1
NO_EPOCH_START = -1


@dataclass(frozen=True, slots=True)
class Assignment:
    """The brokers that hold replicas; `adding` and `removing` are those that a reassignment changes."""

    replicas: tuple[int, ...] = ()
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class PartitionState:
    """What the controller said last of a partition, as this broker sees it.

    `isr` is empty on a follower. `epoch_start_offset` is the log end offset at which this broker became the
    leader of the present epoch, -1 on a follower.
    """

    leader: int = NO_LEADER
    leader_epoch: int = -1
    partition_epoch: int = -1
    controller_epoch: int = -1
    assignment: Assignment = field(default_factory=Assignment)
    isr: IsrState = field(default_factory=IsrState)
    is_leader: bool = False
    epoch_start_offset: int = NO_EPOCH_START

    def epoch_error(self, current_leader_epoch: int) -> ErrorCode:
        """How a request is refused whose sender knows this leader epoch; NONE if it is the present one."""
        if current_leader_epoch in (ANY_EPOCH, self.leader_epoch):
            return ErrorCode.NONE
        if current_leader_epoch < self.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        return ErrorCode.UNKNOWN_LEADER_EPOCH


def state_of(request: LeaderAndIsrPartitionState, broker_id: int, log_end_offset: int) -> PartitionState:
    """The state of a partition on `broker_id` after a request; its log ends at `log_end_offset`."""
    assignment = Assignment(request.replicas, request.adding_replicas, request.removing_replicas)
    is_leader = request.leader == broker_id
    return PartitionState(
        request.leader,
        request.leader_epoch,
        request.partition_epoch,
        request.controller_epoch,
        assignment,
        IsrState(request.isr) if is_leader else IsrState(),
        is_leader,
        log_end_offset if is_leader else NO_EPOCH_START,
    )
