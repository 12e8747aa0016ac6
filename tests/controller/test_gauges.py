"""The gauges of an active controller."""

from __future__ import annotations

import pytest

from klog.controller.context import ControllerContext
from klog.controller.runner import ControllerGauges, gauges
from klog.controller.states import PartitionState, Replica, ReplicaState
from klog.formats.names import TopicPartition
from klog.metadata.values import LeaderAndIsr, LeaderIsrAndControllerEpoch, ReplicaAssignment


def add_topic(context: ControllerContext, name: str, leaders: list[int]) -> None:
    """Partitions whose preferred leader is 1, led by `leaders` (-1: no leader)."""
    context.topics.add(name)
    for number, leader in enumerate(leaders):
        partition = TopicPartition(name, number)
        context.assign(partition, ReplicaAssignment((1, 2)))
        context.leadership[partition] = LeaderIsrAndControllerEpoch(LeaderAndIsr(leader, 0, (1, 2)), 1)
        context.partition_states[partition] = PartitionState.OFFLINE if leader < 0 else PartitionState.ONLINE
        for broker_id in (1, 2):
            context.replica_states[Replica(partition, broker_id)] = ReplicaState.ONLINE


@pytest.fixture
def context() -> ControllerContext:
    made = ControllerContext()
    add_topic(made, "t", [1, 2, -1])
    return made


def test_partitions_are_counted_by_who_leads_them(context: ControllerContext) -> None:
    assert gauges(context) == ControllerGauges(
        topics=1, partitions=3, offline_partitions=1, preferred_replica_imbalance=2
    )


def test_topics_being_deleted_count_neither_as_offline_nor_as_imbalanced(context: ControllerContext) -> None:
    context.queue_deletion(["t"])
    context.topics_ineligible_for_deletion.add("t")
    context.replica_states[Replica(TopicPartition("t", 0), 1)] = ReplicaState.DELETION_SUCCESSFUL
    context.replica_states[Replica(TopicPartition("t", 0), 2)] = ReplicaState.DELETION_INELIGIBLE
    assert gauges(context) == ControllerGauges(
        topics=1,
        partitions=3,
        topics_to_delete=1,
        topics_ineligible_to_delete=1,
        replicas_to_delete=5,
        replicas_ineligible_to_delete=1,
    )
