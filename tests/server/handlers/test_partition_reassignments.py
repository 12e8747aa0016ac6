"""AlterPartitionReassignments and ListPartitionReassignments answer as Kafka's brokers do."""

from __future__ import annotations

from datetime import timedelta

import pytest

from klog.metadata.values import ReplicaAssignment
from klog.protocol.apis import ApiKey
from klog.protocol.error_codes import ErrorCode
from tests.server.handlers.admin_parts import AdminCluster
from tests.server.handlers.parts import part_of

ALTER, LIST = ApiKey.ALTER_PARTITION_REASSIGNMENTS, ApiKey.LIST_PARTITION_REASSIGNMENTS
TIMEOUT = timedelta(minutes=1)


def values(targets: dict[str, dict[int, tuple[int, ...] | None]]):
    topics = tuple(
        part_of(
            ALTER,
            0,
            "ReassignableTopic",
            name=topic,
            partitions=tuple(
                part_of(ALTER, 0, "ReassignablePartition", partition_index=number, replicas=replicas)
                for number, replicas in partitions.items()
            ),
        )
        for topic, partitions in targets.items()
    )
    return {"timeout": TIMEOUT, "topics": topics}


def alter(cluster: AdminCluster, targets: dict[str, dict[int, tuple[int, ...] | None]]):
    return cluster.ask(ALTER, 0, **values(targets))


def asking(asked: dict[str, tuple[int, ...]] | None):
    topics = None
    if asked is not None:
        topics = tuple(
            part_of(LIST, 0, "ListPartitionReassignmentsTopics", name=topic, partition_indexes=numbers)
            for topic, numbers in asked.items()
        )
    return {"timeout": TIMEOUT, "topics": topics}


def running(cluster: AdminCluster, asked: dict[str, tuple[int, ...]] | None = None):
    return cluster.ask(LIST, 0, **asking(asked))


def results(answer):
    return {
        (topic.name, each.partition_index): (each.error_code, each.error_message)
        for topic in answer.responses
        for each in topic.partitions
    }


def listed(answer):
    return {
        (topic.name, each.partition_index): ReplicaAssignment(
            each.replicas, each.adding_replicas, each.removing_replicas
        )
        for topic in answer.topics
        for each in topic.partitions
    }


def test_a_reassignment_is_started_listed_and_finished(cluster) -> None:
    cluster.create("t", (1, 2), (1, 2))
    answer = alter(cluster, {"t": {0: (3, 1)}, "gone": {0: (1,)}})
    assert (answer.error_code, answer.error_message) == (ErrorCode.NONE, "")
    assert results(answer) == {
        ("t", 0): (ErrorCode.NONE, None),
        ("gone", 0): (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist."),
    }
    moving = {("t", 0): ReplicaAssignment((3, 1, 2), adding=(3,), removing=(2,))}
    assert listed(running(cluster)) == moving
    assert listed(running(cluster, {"t": (0, 1)})) == moving
    assert listed(running(cluster, {"t": (1,), "gone": (7,)})) == {}
    cluster.join_isr("t", 0, (1, 2, 3))
    assert listed(running(cluster)) == {}
    assert cluster.cache.snapshot.topics["t"][0].replicas == (3, 1)


def test_a_reassignment_is_cancelled(cluster) -> None:
    cluster.create("t", (1,))
    alter(cluster, {"t": {0: (2,)}})
    assert results(alter(cluster, {"t": {0: None}})) == {("t", 0): (ErrorCode.NONE, None)}
    assert cluster.cache.snapshot.topics["t"][0].replicas == (1,)
    assert results(alter(cluster, {"t": {0: None}})) == {
        ("t", 0): (ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "No partition reassignment is in progress.")
    }


@pytest.mark.parametrize("ask", [lambda cluster: alter(cluster, {"t": {0: (1,)}}), running])
def test_a_broker_that_is_not_controller_says_so(ask) -> None:
    answer = ask(AdminCluster(elected=False))
    assert answer.error_code == ErrorCode.NOT_CONTROLLER
    assert answer.error_message == "This is not the correct controller for this cluster."
