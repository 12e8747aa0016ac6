"""Computes the gauges of an active controller. Rules: the gauges of Kafka's `KafkaController`."""

from __future__ import annotations

from typing import NamedTuple

from klog.controller.context import ControllerContext
from klog.controller.states import PartitionState, ReplicaState


class ControllerGauges(NamedTuple):
    """The values of one moment; all are 0 if the broker is not the controller."""

    topics: int = 0
    partitions: int = 0
    offline_partitions: int = 0
    preferred_replica_imbalance: int = 0
    topics_to_delete: int = 0
    topics_ineligible_to_delete: int = 0
    replicas_to_delete: int = 0
    replicas_ineligible_to_delete: int = 0
    active_brokers: int = 0


def gauges(context: ControllerContext) -> ControllerGauges:
    """The gauges of now. Any thread may call this: it copies in one step what the event thread may change."""
    being_deleted = context.topics_to_delete.copy()
    leadership = list(context.leadership.items())
    imbalance = 0
    for partition, known in leadership:
        leader = known.leader_and_isr.leader
        replicas = context.assignment(partition).replicas
        if replicas and leader != replicas[0] and partition.topic not in being_deleted:
            imbalance += 1
    states = list(context.partition_states.items())
    replicas_being_deleted = [
        state
        for replica, state in list(context.replica_states.items())
        if replica.partition.topic in being_deleted
    ]
    return ControllerGauges(
        topics=len(context.topics),
        partitions=len(states),
        offline_partitions=sum(
            state is PartitionState.OFFLINE and partition.topic not in being_deleted
            for partition, state in states
        ),
        preferred_replica_imbalance=imbalance,
        topics_to_delete=len(being_deleted),
        topics_ineligible_to_delete=len(context.topics_ineligible_for_deletion),
        replicas_to_delete=sum(
            state is not ReplicaState.DELETION_SUCCESSFUL for state in replicas_being_deleted
        ),
        replicas_ineligible_to_delete=sum(
            state is ReplicaState.DELETION_INELIGIBLE for state in replicas_being_deleted
        ),
        active_brokers=len(context.brokers),
    )
