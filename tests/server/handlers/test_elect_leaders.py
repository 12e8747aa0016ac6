"""ElectLeaders answers as Kafka's brokers do."""

from __future__ import annotations

from datetime import timedelta

import pytest

from klog.protocol.apis import ApiKey
from klog.protocol.error_codes import ErrorCode
from tests.server.handlers.admin_parts import AdminCluster, registration
from tests.server.handlers.parts import answer_of, part_of

ELECT = ApiKey.ELECT_LEADERS
PREFERRED, UNCLEAN = 0, 1


def values(version, partitions, election_type=PREFERRED, timeout_ms=5_000):
    asked = None
    if partitions is not None:
        asked = tuple(
            part_of(ELECT, version, "TopicPartitions", topic=topic, partitions=numbers)
            for topic, numbers in partitions.items()
        )
    return {
        "topic_partitions": asked,
        "election_type": election_type,
        "timeout": timedelta(milliseconds=timeout_ms),
    }


def results(answer):
    return {
        (topic.topic, each.partition_id): each.error_code
        for topic in answer.replica_election_results
        for each in topic.partition_result
    }


@pytest.fixture
def moved(cluster) -> AdminCluster:
    """Topic t: partition 0 is led by 3, though it prefers 2; partition 1 is led as it prefers."""
    cluster.create("t", (2, 3), (1, 3))
    cluster.kill(2)
    cluster.register(registration(2))
    assert cluster.cache.snapshot.topics["t"][0].leader == 3
    # Broker 2 has caught up again.
    cluster.join_isr("t", 0, (3, 2))
    return cluster


@pytest.mark.parametrize("version", [0, 1, 2])
def test_the_preferred_replica_is_elected(moved, version) -> None:
    answer = moved.ask(ELECT, version, **values(version, {"t": (0, 1), "gone": (0,)}))
    assert results(answer) == {
        ("t", 0): ErrorCode.NONE,
        ("t", 1): ErrorCode.ELECTION_NOT_NEEDED,
        ("gone", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert moved.cache.snapshot.topics["t"][0].leader == 2
    if version >= 1:
        assert answer.error_code == ErrorCode.NONE


def test_asked_for_all_only_elections_that_were_needed_are_told(moved) -> None:
    assert results(moved.ask(ELECT, 2, **values(2, None))) == {("t", 0): ErrorCode.NONE}


def test_the_answer_waits_until_the_leader_is_known_here(moved) -> None:
    moved.holding_back = True
    request = moved.send(ELECT, 2, **values(2, {"t": (0,)}))
    moved.settle()
    assert not request.answered
    moved.holding_back = False
    moved.settle()
    assert results(answer_of(request)) == {("t", 0): ErrorCode.NONE}


def test_at_the_timeout_the_answer_is_request_timed_out(moved) -> None:
    moved.holding_back = True
    request = moved.send(ELECT, 2, **values(2, {"t": (0, 1)}, timeout_ms=100))
    moved.settle()
    moved.pass_time(100)
    assert results(answer_of(request)) == {
        ("t", 0): ErrorCode.REQUEST_TIMED_OUT,
        ("t", 1): ErrorCode.ELECTION_NOT_NEEDED,
    }


def test_a_preferred_replica_that_is_not_in_sync_is_not_elected(cluster) -> None:
    cluster.create("t", (2, 3))
    cluster.kill(2)
    cluster.register(registration(2))
    answer = cluster.ask(ELECT, 2, **values(2, {"t": (0,)}))
    assert results(answer) == {("t", 0): ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}


def test_an_unclean_election_takes_who_is_there(cluster) -> None:
    cluster.create("t", (2, 3))
    cluster.kill(3)
    cluster.kill(2)
    cluster.register(registration(3))
    assert cluster.cache.snapshot.topics["t"][0].leader == -1
    answer = cluster.ask(ELECT, 2, **values(2, {"t": (0,)}, UNCLEAN))
    assert results(answer) == {("t", 0): ErrorCode.NONE}
    assert cluster.cache.snapshot.topics["t"][0].leader == 3


def test_a_broker_that_is_not_controller_says_so_of_every_partition() -> None:
    cluster = AdminCluster(elected=False)
    answer = cluster.ask(ELECT, 2, **values(2, {"t": (0,)}))
    assert (answer.error_code, results(answer)) == (ErrorCode.NONE, {("t", 0): ErrorCode.NOT_CONTROLLER})


def test_a_type_of_election_that_there_is_not_is_a_servers_error(moved) -> None:
    answer = moved.ask(ELECT, 2, **values(2, {"t": (0,)}, election_type=7))
    assert answer.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert results(answer) == {("t", 0): ErrorCode.UNKNOWN_SERVER_ERROR}
    of_all = moved.ask(ELECT, 2, **values(2, None, election_type=7))
    assert (of_all.error_code, results(of_all)) == (ErrorCode.UNKNOWN_SERVER_ERROR, {})
