"""What `--generate` proposes. That the rule is Kafka's is tested in `tests/metadata/test_assignment.py`."""

from __future__ import annotations

import pytest

from klog.admin.reassign.generate import check_topics, current_assignment, generate, racks_to_use
from klog.admin.reassign.values import BrokerPlace, PartitionAssignment, PartitionState
from klog.formats.errors import UsageError
from klog.formats.names import TopicPartition
from klog.metadata.errors import InvalidReplicationFactorError


def partitions(topic, replicas):
    return [
        PartitionState(TopicPartition(topic, number), each, each[0], each, 1)
        for number, each in enumerate(replicas)
    ]


def test_each_topic_is_assigned_as_a_new_one_from_a_start_that_is_passed_in():
    starts = iter([1, 0, 2, 0])  # of each topic, the first broker and the shift
    found = generate(
        [*partitions("b", [(0, 1)] * 2), *partitions("a", [(0,)] * 3)],
        dict.fromkeys([1, 2, 3]),
        lambda below: next(starts),
    )
    assert found == [
        PartitionAssignment(TopicPartition("a", 0), (2,)),
        PartitionAssignment(TopicPartition("a", 1), (3,)),
        PartitionAssignment(TopicPartition("a", 2), (1,)),
        PartitionAssignment(TopicPartition("b", 0), (3, 1)),
        PartitionAssignment(TopicPartition("b", 1), (1, 2)),
    ]


def test_too_few_brokers_are_refused():
    with pytest.raises(InvalidReplicationFactorError):
        generate(partitions("a", [(0, 1)]), {1: None}, lambda below: 0)


def test_the_current_assignment_is_sorted():
    found = current_assignment(reversed(partitions("a", [(1, 2), (2, 1)])))
    assert [each.replicas for each in found] == [(1, 2), (2, 1)]


def test_racks_are_those_of_all_brokers_or_of_none():
    brokers = (BrokerPlace(1, "a"), BrokerPlace(2, "b"), BrokerPlace(3))
    assert racks_to_use(brokers, [2, 1, 9], rack_aware=True) == {1: "a", 2: "b"}
    assert racks_to_use(brokers, [1, 3], rack_aware=False) == {1: None, 3: None}
    with pytest.raises(UsageError, match="Not all brokers have rack information"):
        racks_to_use(brokers, [1, 3], rack_aware=True)
    with pytest.raises(UsageError, match="duplicate"):
        racks_to_use(brokers, [1, 1], rack_aware=True)


def test_topics_must_exist_and_be_named_once():
    check_topics(["a", "b"], {"a", "b"})
    with pytest.raises(UsageError, match="duplicate"):
        check_topics(["a", "a"], {"a"})
    with pytest.raises(UsageError, match="Topic b not found"):
        check_topics(["a", "b"], {"a"})
