"""Handles AlterPartition: a leader asks for another ISR (KIP-497, KIP-704, KIP-841).

`check` is the rule, a pure function. `AlterPartitions` writes what is accepted, and sends it to all brokers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from klog.controller.reassignments import Reassignments
from klog.controller.state_machines import StateMachines
from klog.formats.names import TopicPartition
from klog.metadata.fenced_writes import update_partition_states
from klog.metadata.values import (
    LeaderAndIsr,
    LeaderRecoveryState,
    TopicIdPartition,
)
from klog.protocol.error_codes import ErrorCode

Reply = Callable[[dict[TopicIdPartition, LeaderAndIsr | ErrorCode] | ErrorCode], None]

# From this version of the request on, replicas that may not be in the ISR have their own error code.
_INELIGIBLE_REPLICA_VERSION = 2


def check(
    current: LeaderAndIsr, wanted: LeaderAndIsr, is_eligible: Callable[[int], bool], version: int
) -> ErrorCode | None:
    """The error of a request that is refused, NONE if the partition has that
    state already, None if the state is to be written.

    `is_eligible` says which brokers may be in the ISR.
    """
    if wanted.partition_epoch > current.partition_epoch or wanted.leader_epoch > current.leader_epoch:
        # The leader knows a later state than we do, so another broker is probably the controller by now.
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
    if not all(is_eligible(each) for each in wanted.isr):
        has_own_code = version >= _INELIGIBLE_REPLICA_VERSION
        return ErrorCode.INELIGIBLE_REPLICA if has_own_code else ErrorCode.OPERATION_NOT_ATTEMPTED
    return None


class AlterPartitions:
    """Carries out AlterPartition requests."""

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
        reply: Reply,
    ) -> None:
        """Replies with the state of each partition now (with its new partition epoch) or its error; or with
        one error for all. Then finishes the reassignments whose target is in sync.

        `wanted` names the sender as leader.
        """
        known = self._context.brokers.get(broker_id)
        if known is None or known.epoch != broker_epoch:
            reply(ErrorCode.STALE_BROKER_EPOCH)
            return
        # The topic ids are the controller's own: the metadata cache of its broker may be older, and a leader
        # that gets UNKNOWN_TOPIC_ID does not ask again.
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
            error = check(current, state, partial(self._is_eligible, partition, current), version)
            if error is None:
                accepted[partition] = state
            else:
                results[asked] = current if error is ErrorCode.NONE else error
        updates = update_partition_states(self._state_machines.fenced, accepted)
        for partition, state in updates.updated.items():
            self._context.set_leadership(partition, state, self._state_machines.fenced.epoch)
            results[ids[partition]] = state
        results |= {ids[partition]: ErrorCode.INVALID_UPDATE_VERSION for partition in updates.outdated}
        results |= {ids[partition]: ErrorCode.UNKNOWN_SERVER_ERROR for partition in updates.failed}
        self._state_machines.send_update_metadata(list(ids))
        # The leader gets its answer before the requests of a reassignment that is finished now: they name a
        # later leader epoch, in which the answer would be void.
        reply(results)
        self._reassignments.isr_changed(list(ids))

    def _is_eligible(self, partition: TopicPartition, current: LeaderAndIsr, broker_id: int) -> bool:
        """Whether a broker is alive and has a replica or is in sync already.

        Kafka asks only whether it is alive. A leader that has not heard of the end of a reassignment adds the
        replica that this has removed. If the leader stops then, no assigned replica is in sync.
        """
        assigned = broker_id in self._context.assignment(partition).replicas
        return (assigned or broker_id in current.isr) and self._context.is_alive(broker_id)
