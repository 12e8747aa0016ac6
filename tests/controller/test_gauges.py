"""The gauges of an active controller."""

from __future__ import annotations

import pytest

from klog.controller.context import ControllerContext
from klog.controller.runner import gauges
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


def counted(context: ControllerContext) -> dict[str, int]:
    """The gauges that are not 0."""
    return {name: value for name, value in gauges(context).items() if value}


@pytest.fixture
def context() -> ControllerContext:
    made = ControllerContext()
    add_topic(made, "t", [1, 2, -1])
    return made


def test_partitions_are_counted_by_who_leads_them(context: ControllerContext) -> None:
    assert counted(context) == {
        "GlobalTopicCount": 1,
        "GlobalPartitionCount": 3,
        "OfflinePartitionsCount": 1,
        "PreferredReplicaImbalanceCount": 2,
    }


def test_topics_being_deleted_count_neither_as_offline_nor_as_imbalanced(context: ControllerContext) -> None:
    context.queue_deletion(["t"])
    context.topics_ineligible_for_deletion.add("t")
    context.replica_states[Replica(TopicPartition("t", 0), 1)] = ReplicaState.DELETION_SUCCESSFUL
    context.replica_states[Replica(TopicPartition("t", 0), 2)] = ReplicaState.DELETION_INELIGIBLE
    assert counted(context) == {
        "GlobalTopicCount": 1,
        "GlobalPartitionCount": 3,
        "TopicsToDeleteCount": 1,
        "TopicsIneligibleToDeleteCount": 1,
        "ReplicasToDeleteCount": 5,
        "ReplicasIneligibleToDeleteCount": 1,
    }
