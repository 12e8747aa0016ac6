"""AlterPartition: a leader asks for another ISR (KIP-497, KIP-704, KIP-841).

`judge` is the rule, pure; `AlterPartitions` reads what is known, writes what is accepted, and tells all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from klog.controller.reassignments import Reassignments
from klog.controller.state_machines import StateMachines
from klog.formats.names import TopicPartition
from klog.metadata.fenced_writes import update_partition_states
from klog.metadata.values import (
    LeaderAndIsr,
    LeaderIsrAndControllerEpoch,
    LeaderRecoveryState,
    TopicIdPartition,
)
from klog.protocol.error_codes import ErrorCode

# From this version of the request on, dead replicas in the ISR have an error code of their own.
_INELIGIBLE_REPLICA_VERSION = 2


def judge(
    current: LeaderAndIsr, wanted: LeaderAndIsr, is_alive: Callable[[int], bool], version: int
) -> ErrorCode | None:
    """NONE: it is so already. Another error: refused. None: to be written."""
    if wanted.partition_epoch > current.partition_epoch or wanted.leader_epoch > current.leader_epoch:
        # The leader knows more than we: probably we are no controller any more.
        return ErrorCode.NOT_CONTROLLER
    if wanted.leader_epoch < current.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if replace(wanted, partition_epoch=current.partition_epoch) == current:
        return ErrorCode.NONE
    if wanted.partition_epoch < current.partition_epoch:
        return ErrorCode.INVALID_UPDATE_VERSION
    recovering = wanted.recovery_state is LeaderRecoveryState.RECOVERING
    if recovering and (len(wanted.isr) > 1 or current.recovery_state is LeaderRecoveryState.RECOVERED):
        return ErrorCode.INVALID_REQUEST
    if not all(is_alive(each) for each in wanted.isr):
        dead_has_code = version >= _INELIGIBLE_REPLICA_VERSION
        return ErrorCode.INELIGIBLE_REPLICA if dead_has_code else ErrorCode.OPERATION_NOT_ATTEMPTED
    return None


class AlterPartitions:
    """Carries AlterPartition requests out."""

    def __init__(self, state_machines: StateMachines, reassignments: Reassignments) -> None:
        self._state_machines = state_machines
        self._context = state_machines.context
        self._reassignments = reassignments

    def alter(
        self,
        broker_id: int,
        broker_epoch: int,
        wanted: Mapping[TopicIdPartition, LeaderAndIsr],
        version: int,
    ) -> dict[TopicIdPartition, LeaderAndIsr | ErrorCode] | ErrorCode:
        """For each partition its state now (with the new partition epoch), or why not; or an error for all.

        `wanted` has the sender as leader.
        """
        known = self._context.brokers.get(broker_id)
        if known is None or known.epoch != broker_epoch:
            return ErrorCode.STALE_BROKER_EPOCH
        # By the controller's own knowledge: the metadata that its broker tells clients of may be behind, and
        # a leader that is told of an unknown topic does not ask again.
        names = {topic_id: topic for topic, topic_id in self._context.topic_ids.items()}
        ids: dict[TopicPartition, TopicIdPartition] = {}
        results: dict[TopicIdPartition, LeaderAndIsr | ErrorCode] = {}
        accepted: dict[TopicPartition, LeaderAndIsr] = {}
        for asked, state in wanted.items():
            topic = names.get(asked.topic_id)
            if topic is None:
                results[asked] = ErrorCode.UNKNOWN_TOPIC_ID
                continue
            partition = TopicPartition(topic, asked.partition)
            ids[partition] = asked
            leadership = self._context.leadership.get(partition)
            if leadership is None:
                results[asked] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                continue
            current = leadership.leader_and_isr
            verdict = judge(current, state, self._context.is_alive, version)
            if verdict is None:
                accepted[partition] = state
            else:
                results[asked] = current if verdict is ErrorCode.NONE else verdict
        updates = update_partition_states(self._state_machines.fenced, accepted)
        for partition, state in updates.updated.items():
            epoch = self._state_machines.fenced.epoch
            self._context.leadership[partition] = LeaderIsrAndControllerEpoch(state, epoch)
            results[ids[partition]] = state
        results |= {ids[partition]: ErrorCode.INVALID_UPDATE_VERSION for partition in updates.outdated}
        results |= {ids[partition]: ErrorCode.UNKNOWN_SERVER_ERROR for partition in updates.failed}
        self._state_machines.send_update_metadata(list(ids))
        self._reassignments.isr_changed(list(updates.updated))
        return results
