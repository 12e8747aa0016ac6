"""CreatePartitions answers as Kafka's controller does."""

from __future__ import annotations

from datetime import timedelta

import pytest

from klog.metadata import paths
from klog.metadata.topics import read_topics, request_deletion
from klog.metadata.values import ReplicaAssignment, TopicAssignment
from klog.metadata.znodes import encode_topic
from klog.protocol.apis import ApiKey
from klog.protocol.error_codes import ErrorCode
from tests.server.handlers.admin_parts import AdminCluster
from tests.server.handlers.parts import answer_of, part_of

GROW = ApiKey.CREATE_PARTITIONS


def wanted(name="t", count=4, replicas=None, version=3):
    assignments = None
    if replicas is not None:
        assignments = tuple(
            part_of(GROW, version, "CreatePartitionsAssignment", broker_ids=brokers) for brokers in replicas
        )
    return part_of(GROW, version, "CreatePartitionsTopic", name=name, count=count, assignments=assignments)


def values(*topics, timeout_ms=60_000, validate_only=False):
    return {
        "topics": topics,
        "timeout": timedelta(milliseconds=timeout_ms),
        "validate_only": validate_only,
    }


def grow(cluster, *topics, version=3, **fields):
    results = cluster.ask(GROW, version, **values(*topics, **fields)).results
    return {each.name: each.error_code for each in results}


def assignment(cluster, topic="t"):
    topic_assignment = read_topics(cluster.store, [topic])[topic]
    return {number: each.replicas for number, each in topic_assignment.partitions.items()}


@pytest.mark.parametrize("version", range(4))
def test_a_topic_grows_and_keeps_what_it_has(cluster, version) -> None:
    cluster.create("t", (1, 2), (2, 3))
    assert grow(cluster, wanted(version=version), version=version) == {"t": ErrorCode.NONE}
    after = assignment(cluster)
    assert (after[0], after[1]) == ((1, 2), (2, 3))
    assert [len(set(after[number])) for number in (2, 3)] == [2, 2]


def test_new_partitions_go_where_they_are_sent_by_hand(cluster) -> None:
    cluster.create("t", (1, 2))
    assert grow(cluster, wanted(count=3, replicas=[(3, 1), (2, 3)])) == {"t": ErrorCode.NONE}
    assert assignment(cluster) == {0: (1, 2), 1: (3, 1), 2: (2, 3)}


@pytest.mark.parametrize(
    ("topic", "error"),
    [
        (wanted("gone"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (wanted(count=2), ErrorCode.INVALID_PARTITIONS),
        (wanted(count=1), ErrorCode.INVALID_PARTITIONS),
        (wanted(count=-1), ErrorCode.INVALID_PARTITIONS),
        (wanted(count=3, replicas=[(1, 9)]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (wanted(count=3, replicas=[(1, 2), (2, 3)]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (wanted(count=3, replicas=[]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (wanted(count=3, replicas=[(1,)]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (wanted(count=3, replicas=[(1, 1)]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (wanted(count=3, replicas=[()]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_what_cannot_be_done_is_refused_with_kafkas_error(cluster, topic, error) -> None:
    cluster.create("t", (1, 2), (2, 3))
    assert list(grow(cluster, topic).values()) == [error]
    assert len(assignment(cluster)) == 2


def test_a_topic_that_is_being_reassigned_does_not_grow(cluster) -> None:
    cluster.create("t", (1, 2))
    moving = {0: ReplicaAssignment((3, 1, 2), adding=(3,), removing=(1,))}
    topic_id = read_topics(cluster.store, ["t"])["t"].topic_id
    cluster.store.set(paths.topic("t"), encode_topic(TopicAssignment("t", topic_id, moving)))
    assert grow(cluster, wanted()) == {"t": ErrorCode.REASSIGNMENT_IN_PROGRESS}


def test_a_topic_that_is_being_deleted_does_not_grow(cluster) -> None:
    cluster.create("t", (1, 2))
    cluster.holding_back = True
    request_deletion(cluster.store, "t")
    assert grow(cluster, wanted()) == {"t": ErrorCode.INVALID_TOPIC_EXCEPTION}


def test_a_topic_named_twice_is_refused_and_the_others_grow(cluster) -> None:
    cluster.create("t", (1,))
    cluster.create("u", (1,))
    results = grow(cluster, wanted("t", 2), wanted("u", 3), wanted("t", 3))
    assert results == {"t": ErrorCode.INVALID_REQUEST, "u": ErrorCode.NONE}
    assert len(assignment(cluster, "t")) == 1


def test_a_check_writes_nothing(cluster) -> None:
    cluster.create("t", (1,))
    assert grow(cluster, wanted(), validate_only=True) == {"t": ErrorCode.NONE}
    assert len(assignment(cluster)) == 1


def test_only_the_controller_grows_topics() -> None:
    cluster = AdminCluster(elected=False)
    assert grow(cluster, wanted()) == {"t": ErrorCode.NOT_CONTROLLER}


def test_the_answer_waits_for_leaders_of_the_new_partitions_until_the_timeout(cluster) -> None:
    cluster.create("t", (1,))
    cluster.holding_back = True
    first = cluster.send(GROW, 3, **values(wanted(count=2), timeout_ms=500))
    cluster.settle()
    assert not first.answered
    cluster.pass_time(500)
    assert answer_of(first).results[0].error_code == ErrorCode.REQUEST_TIMED_OUT
    second = cluster.send(GROW, 3, **values(wanted(count=3)))
    cluster.holding_back = False
    cluster.settle()
    assert answer_of(second).results[0].error_code == ErrorCode.NONE


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a//b", "../ids/1", "t\0"])
def test_no_path_is_made_of_a_name_that_is_no_topics(cluster, name) -> None:
    cluster.store.exists = None  # ZooKeeper's client raises errors of its own for such paths
    assert grow(cluster, wanted(name)) == {name: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


def test_partitions_that_would_take_all_memory_are_refused(cluster) -> None:
    cluster.create("t", (1,))
    assert grow(cluster, wanted(count=2**31 - 1)) == {"t": ErrorCode.POLICY_VIOLATION}
    assert assignment(cluster) == {0: (1,)}
