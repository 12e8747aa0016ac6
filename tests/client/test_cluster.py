"""Leader lookup, connections to brokers, and what follows a failed request."""

from __future__ import annotations

import pytest

from klog.client.errors import ClientError, RefusedError, UnknownTopicError
from klog.formats.constants import NO_LEADER
from klog.formats.names import TopicPartition
from klog.protocol.error_codes import ErrorCode
from klog.protocol.errors import ConnectFailedError, ConnectionLostError
from tests.client.fake_broker import BOOT, A, FakeCluster, metadata

T0, T1, T2 = (TopicPartition("t", number) for number in range(3))


def test_partitions_are_grouped_by_their_leader():
    world = FakeCluster(metadata(leaders=(1, 2)))
    with world.client as cluster:
        cluster.refresh(["t"])
        assert cluster.by_leader([T0, T1, T2]) == {1: [T0], 2: [T1], NO_LEADER: [T2]}


def test_a_broker_has_one_connection_that_is_opened_when_it_is_used():
    world = FakeCluster(metadata())
    with world.client as cluster:
        cluster.refresh(["t"])
        assert not world.connections[A].connected
        assert cluster.leader_connection(1, [T0]) is cluster.connection(1) is world.connections[A]
        assert world.connections[A].opened == 1
    assert not any(connection.connected for connection in world.connections.values())


def test_a_partition_without_a_leader_and_an_unknown_broker_are_errors():
    world = FakeCluster(metadata())
    with world.client as cluster:
        cluster.refresh(["t"])
        with pytest.raises(ClientError, match="t-2 has no leader"):
            cluster.leader_connection(NO_LEADER, [T2])
        with pytest.raises(ClientError, match="broker 9"):
            cluster.connection(9)


def test_an_advertised_address_that_cannot_be_reached_is_named():
    world = FakeCluster(metadata())
    world.connections[A].down = True
    with world.client as cluster:
        cluster.refresh(["t"])
        with pytest.raises(ConnectFailedError, match="which is what broker 1 advertises"):
            cluster.connection(1)


def test_any_known_broker_answers_if_the_bootstrap_broker_is_gone():
    world = FakeCluster(metadata())
    with world.client as cluster:
        cluster.refresh(["t"])
        world.connections[BOOT].close()
        world.connections[BOOT].down = True
        assert cluster.any_connection() is world.connections[A]


def test_an_unreachable_cluster_is_one_error_with_every_address():
    world = FakeCluster()
    for connection in world.connections.values():
        connection.down = True
    with pytest.raises(ConnectFailedError, match="boot:1"):
        world.client.any_connection()


def test_a_topic_that_does_not_exist_is_an_error():
    world = FakeCluster(
        metadata(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), metadata(ErrorCode.INVALID_TOPIC_EXCEPTION)
    )
    with world.client as cluster:
        with pytest.raises(UnknownTopicError):
            cluster.refresh(["t"])
        with pytest.raises(RefusedError):
            cluster.refresh(["t"])


def test_after_a_failure_it_pauses_and_looks_up_the_leaders_again():
    world = FakeCluster(metadata(leaders=(1,)), metadata(leaders=(2,)))
    with world.client as cluster:
        cluster.refresh(["t"])
        cluster.pause_and_refresh(
            RefusedError("t-0", ErrorCode.NOT_LEADER_OR_FOLLOWER), ["t"], cluster.new_retry()
        )
        assert cluster.leader(T0) == 2
        assert world.now_s > 0


def test_an_error_that_no_retry_can_cure_is_raised():
    world = FakeCluster()
    error = RefusedError("t-0", ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    with world.client as cluster, pytest.raises(RefusedError):
        cluster.pause_and_refresh(error, ["t"], cluster.new_retry())
    assert world.now_s == 0


def test_the_last_error_is_raised_if_failures_last_too_long():
    world = FakeCluster()
    for connection in world.connections.values():
        connection.down = True
    retry = world.client.new_retry()

    def fail_for_ever():
        while True:
            world.client.pause_and_refresh(ConnectionLostError("lost"), ["t"], retry)

    with pytest.raises((ConnectionLostError, ConnectFailedError)):
        fail_for_ever()
    assert world.now_s <= 1
