"""Requests to the controller are sent until the present controller answers, or until their deadline."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from datetime import timedelta
from importlib import import_module

import pytest

from klog.client.connection import ReconnectingConnection
from klog.drivers.controller_requests import has_moved
from klog.formats.errors import KlogError
from klog.metadata.cache import ClusterSnapshot
from klog.metadata.values import BrokerRegistration, Endpoint
from klog.protocol.apis import ApiKey
from klog.protocol.entity_fields import Entity
from klog.protocol.error_codes import ErrorCode
from klog.protocol.errors import ConnectionLostError, RequestTimeoutError, UnsupportedApiError
from klog.protocol.messages import build, request_class, response_class
from klog.server.peers.controller_channel import ToController
from klog.storage.log.scheduler import monotonic_ms
from tests.server.transactions.fake_brokers import FakeBroker, FakeConnection
from tests.waiting import eventually

VERSION = 3
KEY = ApiKey.ALTER_PARTITION
TIMEOUT_S = 60


def request(version: int) -> Entity:
    return build(request_class(KEY, version), broker_id=7, topics=())


def answer(error: ErrorCode = ErrorCode.NONE, topics=()) -> Entity:
    return build(response_class(KEY, VERSION), error_code=error, topics=topics, throttle_time=timedelta())


def registration(broker_id: int, port: int = 9092) -> BrokerRegistration:
    return BrokerRegistration(broker_id, (Endpoint("PLAINTEXT", "PLAINTEXT", "host", port),))


class Cluster:
    """Two brokers; `snapshot` is what the metadata cache knows."""

    def __init__(self) -> None:
        self.brokers = {each: FakeBroker(lambda _: answer(), VERSION) for each in (1, 2)}
        self.snapshot = ClusterSnapshot()
        self.connections: list[int] = []
        self.channel = ToController(lambda: self.snapshot, self._connect, monotonic_ms)
        self.replies: queue.SimpleQueue[Entity | KlogError] = queue.SimpleQueue()
        self.controller_is(1)
        self.channel.start()

    def _connect(self, broker: BrokerRegistration) -> ReconnectingConnection:
        self.connections.append(broker.broker_id)
        return ReconnectingConnection(lambda: FakeConnection(self.brokers[broker.broker_id]))

    def controller_is(self, broker_id: int | None) -> None:
        brokers = {each: registration(each) for each in self.brokers}
        self.snapshot = ClusterSnapshot(brokers=brokers, controller_id=broker_id)

    def send(self, timeout_ms: int | None = None) -> None:
        self.channel.send(KEY, request, self.replies.put, timeout_ms=timeout_ms)

    def reply(self) -> Entity | KlogError:
        return self.replies.get(timeout=TIMEOUT_S)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    cluster = Cluster()
    yield cluster
    cluster.channel.stop()


def test_requests_go_to_the_controller_in_turn_over_one_connection(cluster: Cluster) -> None:
    for _ in range(3):
        cluster.send()
    assert [cluster.reply() for _ in range(3)] == [answer()] * 3
    assert cluster.brokers[1].requests == [request(VERSION)] * 3
    assert cluster.connections == [1]


def test_a_request_waits_until_a_controller_is_known(cluster: Cluster) -> None:
    cluster.controller_is(None)
    cluster.send()
    cluster.controller_is(2)
    assert cluster.reply() == answer()
    assert not cluster.brokers[1].requests


@pytest.mark.parametrize("breaks", [True, False])
def test_a_request_is_sent_again_to_the_next_controller(cluster: Cluster, breaks) -> None:
    def refused(_: Entity) -> Entity:
        if breaks:
            raise ConnectionLostError("the controller is gone")
        return answer(ErrorCode.NOT_CONTROLLER)

    cluster.brokers[1].answer = refused
    cluster.send()
    cluster.send()
    eventually(lambda: cluster.brokers[1].requests)
    cluster.controller_is(2)
    assert [cluster.reply(), cluster.reply()] == [answer()] * 2
    assert len(cluster.brokers[2].requests) == 2


def test_a_controller_that_cannot_be_reached_is_tried_again(cluster: Cluster) -> None:
    cluster.brokers[1].is_up = False
    cluster.send()
    eventually(lambda: len(cluster.connections) > 2)
    cluster.brokers[1].is_up = True
    assert cluster.reply() == answer()


def test_other_errors_are_the_sender_s_affair(cluster: Cluster) -> None:
    cluster.brokers[1].answer = lambda _: answer(ErrorCode.STALE_BROKER_EPOCH)
    cluster.send()
    assert cluster.reply() == answer(ErrorCode.STALE_BROKER_EPOCH)


def test_without_an_answer_by_its_deadline_a_request_is_given_up(cluster: Cluster) -> None:
    cluster.controller_is(None)
    cluster.send()
    cluster.send(timeout_ms=1)
    assert isinstance(cluster.reply(), RequestTimeoutError)
    cluster.controller_is(1)
    assert cluster.reply() == answer(), "the one without a deadline is still sent"
    assert len(cluster.brokers[1].requests) == 1


def test_a_controller_that_does_not_know_the_api_is_reported(cluster: Cluster) -> None:
    def build_for(version: int) -> Entity:
        raise UnsupportedApiError("no")

    cluster.channel.send(KEY, build_for, cluster.replies.put)
    assert isinstance(cluster.reply(), UnsupportedApiError)


def test_a_reply_that_fails_does_not_keep_others_from_being_sent(cluster: Cluster, caplog) -> None:
    def fails(_: Entity | KlogError) -> None:
        raise RuntimeError("a defect")

    cluster.channel.send(KEY, request, fails)
    cluster.send()
    assert cluster.reply() == answer()
    assert "a defect" in caplog.text


def test_stopping_ends_a_request_that_waits_for_its_answer(cluster: Cluster) -> None:
    cluster.brokers[1].may_answer.clear()
    cluster.send()
    eventually(lambda: cluster.brokers[1].requests)
    cluster.channel.stop()


def test_an_answer_that_names_another_controller_for_one_partition_counts_for_all() -> None:
    messages = import_module(response_class(KEY, VERSION).__module__)
    partition = build(
        messages.PartitionData,
        partition_index=0,
        error_code=ErrorCode.NOT_CONTROLLER,
        leader_id=1,
        leader_epoch=0,
        partition_epoch=0,
    )
    topic = build(messages.TopicData, topic_id=None, partitions=(partition,))
    assert has_moved(answer(topics=(topic,)))
    assert not has_moved(answer(ErrorCode.STALE_BROKER_EPOCH))
