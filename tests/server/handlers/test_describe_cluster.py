"""DescribeCluster and DescribeTopicPartitions answer as Kafka's brokers do."""

from __future__ import annotations

import pytest

from klog.protocol.apis import ApiKey
from klog.protocol.error_codes import ErrorCode
from tests.server.handlers.admin_parts import CLUSTER_ID, INNER_LISTENER, LISTENER, AdminCluster
from tests.server.handlers.parts import part_of

CLUSTER = ApiKey.DESCRIBE_CLUSTER
PAGES = ApiKey.DESCRIBE_TOPIC_PARTITIONS


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize(("operations", "told"), [(True, 8096), (False, -(2**31))])
def test_the_cluster_is_described(version, operations, told) -> None:
    cluster = AdminCluster(racks=("a", "b", "c"))
    answer = cluster.ask(CLUSTER, version, include_cluster_authorized_operations=operations, endpoint_type=1)
    assert (answer.error_code, answer.cluster_id, answer.controller_id) == (ErrorCode.NONE, CLUSTER_ID, 1)
    assert {(each.broker_id, each.host, each.port, each.rack) for each in answer.brokers} == {
        (1, "host1", 9092, "a"),
        (2, "host2", 9092, "b"),
        (3, "host3", 9092, "c"),
    }
    assert answer.cluster_authorized_operations == told


def test_brokers_are_told_by_the_listener_of_the_request(cluster) -> None:
    answer = cluster.ask(
        CLUSTER, 1, listener=INNER_LISTENER, include_cluster_authorized_operations=False, endpoint_type=1
    )
    assert {each.port for each in answer.brokers} == {9093}


@pytest.mark.parametrize(
    ("kind", "error"),
    [(2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (9, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)],
)
def test_controllers_are_not_described_by_a_broker(cluster, kind, error) -> None:
    answer = cluster.ask(CLUSTER, 1, include_cluster_authorized_operations=False, endpoint_type=kind)
    assert answer.error_code == error


def pages(cluster, *names, limit=2000, cursor=None, listener=LISTENER):
    """All answers that a client needs to see everything."""
    answers = []
    for _ in range(1000):
        position = None
        if cursor is not None:
            position = part_of(PAGES, 0, "Cursor", topic_name=cursor[0], partition_index=cursor[1])
        answers.append(
            cluster.ask(
                PAGES,
                0,
                listener=listener,
                topics=tuple(part_of(PAGES, 0, "TopicRequest", name=name) for name in names),
                response_partition_limit=limit,
                cursor=position,
            )
        )
        following = answers[-1].next_cursor
        if following is None:
            return answers
        cursor = (following.topic_name, following.partition_index)
    raise AssertionError("there is always another page")


def shown(answer):
    return {topic.name: [each.partition_index for each in topic.partitions] for topic in answer.topics}


def test_all_topics_are_told_in_the_order_of_their_names(cluster) -> None:
    cluster.create("b", (1, 2), (2, 3))
    cluster.create("a", (3,))
    (answer,) = pages(cluster)
    assert shown(answer) == {"a": [0], "b": [0, 1]}
    assert [topic.name for topic in answer.topics] == ["a", "b"]
    told = answer.topics[1].partitions[1]
    assert (told.leader_id, told.replica_nodes, told.isr_nodes) == (2, (2, 3), (2, 3))
    assert {topic.topic_authorized_operations for topic in answer.topics} == {3576}


def test_pages_end_at_the_limit_and_go_on_at_the_cursor(cluster) -> None:
    cluster.create("a", *[(1,)] * 3)
    cluster.create("b", *[(1,)] * 2)
    assert [shown(answer) for answer in pages(cluster, limit=2)] == [
        {"a": [0, 1]},
        {"a": [2], "b": [0]},
        {"b": [1]},
    ]
    assert [shown(answer) for answer in pages(cluster, limit=3)] == [{"a": [0, 1, 2]}, {"b": [0, 1]}]


def test_the_brokers_own_limit_holds_too() -> None:
    cluster = AdminCluster({"max.request.partition.size.limit": "1"})
    cluster.create("a", (1,), (1,))
    assert [shown(answer) for answer in pages(cluster)] == [{"a": [0]}, {"a": [1]}]
    assert [shown(answer) for answer in pages(cluster, limit=-5)] == [{"a": [0]}, {"a": [1]}]


def test_topics_by_name_that_are_not_there_have_their_error(cluster) -> None:
    cluster.create("a", (1,))
    (answer,) = pages(cluster, "a", "gone", "a/b")
    assert {topic.name: topic.error_code for topic in answer.topics} == {
        "a": ErrorCode.NONE,
        "gone": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "a/b": ErrorCode.INVALID_TOPIC_EXCEPTION,
    }


@pytest.mark.parametrize(("names", "cursor"), [(("a",), ("b", 0)), (("a",), ("a", -1)), ((), ("a", -1))])
def test_a_cursor_that_points_nowhere_is_refused(cluster, names, cursor) -> None:
    cluster.create("a", (1,))
    (answer,) = pages(cluster, *names, cursor=cursor)
    assert [topic.error_code for topic in answer.topics] == [ErrorCode.INVALID_REQUEST] * len(names)


def test_a_partition_without_leader_has_its_error(cluster) -> None:
    cluster.create("a", (2,))
    cluster.kill(2)
    (answer,) = pages(cluster, "a")
    assert answer.topics[0].partitions[0].error_code == ErrorCode.LEADER_NOT_AVAILABLE
