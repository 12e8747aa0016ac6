"""Markers reach the leaders of their partitions, however often that takes."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterator
from functools import partial

import pytest

from klog.drivers.marker_queues import UNKNOWN, MarkerErrors
from klog.formats.names import TopicPartition
from klog.metadata.errors import ConnectionLossError
from klog.protocol.apis import ApiKey
from klog.protocol.entity_fields import Entity
from klog.protocol.error_codes import ErrorCode
from klog.protocol.messages import build, response_class
from klog.protocol.transaction_messages import TxnMarker
from klog.server.transactions.marker_sending import MarkerSending
from klog.storage.log.scheduler import monotonic_ms
from tests.entity_structs import response_struct
from tests.server.transactions.fake_brokers import FakeBroker, connecting
from tests.server.transactions.markers import A0, A1, B0, Written, markers
from tests.threads import join, started
from tests.waiting import eventually

OWN = 0


def result(name: str, /, **values) -> Entity:
    return build(response_struct(ApiKey.WRITE_TXN_MARKERS, 1, name), **values)


class Leader(FakeBroker):
    """Answers every marker with NONE, or what `errors` has for its partition; each error once."""

    def __init__(self) -> None:
        super().__init__(self._written)
        self.errors: dict[object, list[ErrorCode]] = {}

    def _error(self, key) -> ErrorCode:
        waiting = self.errors.get(key)
        return waiting.pop(0) if waiting else ErrorCode.NONE

    def _written(self, request: Entity) -> Entity:
        return build(
            response_class(ApiKey.WRITE_TXN_MARKERS, 1),
            markers=tuple(
                result(
                    "WritableTxnMarkerResult",
                    producer_id=marker.producer_id,
                    topics=tuple(
                        result(
                            "WritableTxnMarkerTopicResult",
                            name=topic.name,
                            partitions=tuple(
                                result(
                                    "WritableTxnMarkerPartitionResult",
                                    partition_index=number,
                                    error_code=self._error((topic.name, number)),
                                )
                                for number in topic.partition_indexes
                            ),
                        )
                        for topic in marker.topics
                    ),
                )
                for marker in request.markers
            ),
        )


class Own:
    """What the sender's broker does with markers for its own partitions: as `Leader` over the wire.

    While it is held, replies wait.
    """

    def __init__(self) -> None:
        self.written: list[list[TxnMarker]] = []
        self.threads: list[int] = []
        self.errors: dict[object, list[ErrorCode]] = {}
        self.defects = 0
        self.waiting: list[Callable[[], None]] | None = None

    def write(self, markers: Collection[TxnMarker], reply: Callable[[MarkerErrors], None]) -> None:
        self.written.append(list(markers))
        self.threads.append(threading.get_ident())
        if self.defects:
            self.defects -= 1
            raise RuntimeError("a defect")
        found = {
            marker.producer_id: {
                key: self.errors[key].pop(0) if self.errors.get(key) else ErrorCode.NONE
                for key in marker.partitions
            }
            for marker in markers
        }
        if self.waiting is None:
            reply(found)
        else:
            self.waiting.append(partial(reply, found))


class Cluster:
    """Two brokers and the sender's own one, and the leaders of partitions."""

    def __init__(self) -> None:
        self.leaders = {A0: 1, A1: 2, B0: 1}
        self.own = Own()
        self.brokers = {1: Leader(), 2: Leader()}
        self.partitions = {A0, A1, B0}
        self.store_is_away = False
        self.newest = 5
        self.sender = MarkerSending(
            OWN,
            self.own.write,
            lambda partition: self.leaders.get(partition, UNKNOWN),
            self._existing,
            lambda numbers: dict.fromkeys(numbers, self.newest),
            connecting(self.brokers),
            monotonic_ms,
        )

    def _existing(self, partitions: Collection[TopicPartition]) -> Collection[TopicPartition]:
        if self.store_is_away:
            raise ConnectionLossError("the store is away")
        return self.partitions.intersection(partitions)

    def stop(self) -> None:
        self.sender.stop()


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    cluster = Cluster()
    yield cluster
    cluster.stop()


def sent(cluster: Cluster, wanted, *, awaited: bool = True) -> Written:
    written = Written()
    cluster.sender.send(wanted, written)
    cluster.sender.write_own()
    if awaited:
        eventually(lambda: written.partitions == wanted.partitions)
    return written


def test_markers_go_to_the_leaders_and_are_reported(cluster: Cluster) -> None:
    sent(cluster, markers(A0, A1, B0, committed=False))
    ((marker,),) = [request.markers for request in cluster.brokers[1].requests]
    assert (marker.producer_id, marker.producer_epoch, marker.coordinator_epoch) == (9, 2, 5)
    assert marker.transaction_result is False
    assert [(topic.name, topic.partition_indexes) for topic in marker.topics] == [("a", (0,)), ("b", (0,))]
    assert len(cluster.brokers[2].requests) == 1


def test_what_gathers_while_a_request_is_on_its_way_goes_in_the_next_one(cluster: Cluster) -> None:
    broker = cluster.brokers[1]
    broker.may_answer.clear()
    sent(cluster, markers(A0, producer_id=1), awaited=False)
    eventually(lambda: broker.requests)
    waiting = [sent(cluster, markers(A0, producer_id=each), awaited=False) for each in (2, 3, 4)]
    broker.may_answer.set()
    eventually(lambda: all(each.partitions for each in waiting))
    assert [len(request.markers) for request in broker.requests] == [1, 3]


@pytest.mark.parametrize("error", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION])
def test_a_marker_follows_the_leadership(cluster: Cluster, error: ErrorCode) -> None:
    cluster.brokers[1].errors = {A0: [error] * 2}
    sent(cluster, markers(A0, B0))
    assert len(cluster.brokers[1].requests) == 3
    cluster.brokers[1].errors = {A0: [error] * 1000}
    written = sent(cluster, markers(A0, B0), awaited=False)
    eventually(lambda: written.partitions)
    cluster.leaders[A0] = 2
    eventually(lambda: written.partitions == {A0, B0})
    assert cluster.brokers[2].requests


def test_a_broker_that_is_away_gets_its_markers_when_it_is_back(cluster: Cluster) -> None:
    sent(cluster, markers(A0))
    cluster.brokers[1].is_up = False
    written = sent(cluster, markers(A0, A1), awaited=False)
    eventually(lambda: written.partitions == {A1})
    cluster.brokers[1].is_up = True
    eventually(lambda: written.partitions == {A0, A1})


def test_a_partition_without_a_leader_is_looked_up_until_it_has_one(cluster: Cluster) -> None:
    del cluster.leaders[A0]
    cluster.store_is_away = True
    written = sent(cluster, markers(A0), awaited=False)
    eventually(lambda: cluster.sender._routes.queues.waiting)
    cluster.store_is_away = False
    cluster.leaders[A0] = 2
    eventually(lambda: written.partitions == {A0})


def test_a_deleted_topic_needs_no_marker(cluster: Cluster) -> None:
    del cluster.leaders[B0]
    cluster.partitions.discard(B0)
    sent(cluster, markers(A0, B0))
    assert [topic.name for topic in cluster.brokers[1].requests[0].markers[0].topics] == ["a"]


def test_a_marker_of_an_epoch_that_is_over_is_reported_as_superseded(cluster: Cluster, caplog) -> None:
    cluster.brokers[1].errors = {A0: [ErrorCode.INVALID_PRODUCER_EPOCH]}
    with caplog.at_level(logging.WARNING):
        written = sent(cluster, markers(A0, B0))
    assert (written.superseded, written.partitions) == ({A0}, {A0, B0})
    assert "has lost records" in caplog.text


def test_a_marker_that_is_refused_for_good_is_logged_and_not_sent_again(cluster: Cluster, caplog) -> None:
    cluster.brokers[1].errors = {A0: [ErrorCode.UNKNOWN_SERVER_ERROR]}
    with caplog.at_level(logging.ERROR):
        written = sent(cluster, markers(A0), awaited=False)
        eventually(lambda: "UNKNOWN_SERVER_ERROR" in caplog.text)
    sent(cluster, markers(B0, producer_id=10))
    assert (written.calls, len(cluster.brokers[1].requests)) == ([], 2)


def test_partitions_beside_one_that_refuses_are_reported(cluster: Cluster) -> None:
    cluster.brokers[1].errors = {A0: [ErrorCode.UNKNOWN_SERVER_ERROR]}
    written = sent(cluster, markers(A0, B0), awaited=False)
    eventually(lambda: written.calls)
    assert written.partitions == {B0}


def test_what_is_forgotten_is_not_reported(cluster: Cluster) -> None:
    broker = cluster.brokers[1]
    broker.may_answer.clear()
    forgotten = sent(cluster, markers(A0, number=3), awaited=False)
    eventually(lambda: broker.requests)
    cluster.sender.forget(3)
    broker.may_answer.set()
    sent(cluster, markers(A0, producer_id=10))
    assert forgotten.calls == []


def test_one_broker_that_does_not_answer_holds_up_no_other(cluster: Cluster) -> None:
    cluster.brokers[1].may_answer.clear()
    sent(cluster, markers(A0), awaited=False)
    sent(cluster, markers(A1))


def test_a_defect_in_one_report_does_not_end_the_sending(cluster: Cluster, caplog) -> None:
    failed = threading.Event()

    def broken(_) -> None:
        failed.set()
        raise RuntimeError("a defect")

    cluster.sender.send(markers(A0), broken)
    assert failed.wait(60)
    sent(cluster, markers(A0, producer_id=10))
    assert "a defect" in caplog.text


def test_after_the_stop_nothing_is_sent(cluster: Cluster) -> None:
    cluster.sender.stop()
    sent(cluster, markers(A0), awaited=False)
    assert cluster.brokers[1].requests == []


def test_the_stop_does_not_wait_for_a_store_that_is_away(cluster: Cluster) -> None:
    asked, back = threading.Event(), threading.Event()

    def existing(partitions: Collection[TopicPartition]) -> Collection[TopicPartition]:
        asked.set()
        back.wait(200)
        return partitions

    sender = MarkerSending(
        OWN,
        cluster.own.write,
        lambda _: UNKNOWN,
        existing,
        lambda _: {},
        connecting(cluster.brokers),
        monotonic_ms,
    )
    sender.send(markers(A0), Written())
    assert asked.wait(60)
    stopping = started(sender.stop)
    join([stopping])
    assert not back.is_set()
    back.set()


# -- partitions that this broker leads -----------------------------------------------------------------------


def test_markers_for_this_broker_are_written_by_the_thread_that_asks_for_it(cluster: Cluster) -> None:
    cluster.leaders[A0] = OWN
    # The thread that tries again also looks for markers once when it starts: it has to have started.
    cluster.own.errors = {A0: [ErrorCode.REQUEST_TIMED_OUT]}
    sent(cluster, markers(A0))
    cluster.own.written.clear()
    cluster.own.threads.clear()
    written = Written()
    cluster.sender.send(markers(A0, A1, committed=False), written)
    assert cluster.own.written == []
    cluster.sender.write_own()
    assert cluster.own.written == [[TxnMarker(9, 2, False, frozenset((A0,)), 5)]]
    assert cluster.own.threads == [threading.get_ident()]
    eventually(lambda: written.partitions == {A0, A1})
    assert [len(request.markers) for request in cluster.brokers[2].requests] == [1]
    eventually(lambda: cluster.sender._routes.queues.waiting == 0)


def test_a_marker_that_this_broker_refuses_now_is_written_again(cluster: Cluster) -> None:
    cluster.leaders[A0] = OWN
    cluster.own.errors = {A0: [ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.REQUEST_TIMED_OUT]}
    sent(cluster, markers(A0))
    assert len(cluster.own.written) == 3
    # A pause is not waited for in the thread that sends.
    assert [thread == threading.get_ident() for thread in cluster.own.threads] == [True, False, False]


def test_a_marker_follows_the_leadership_from_this_broker_and_back(cluster: Cluster) -> None:
    cluster.leaders[A0] = OWN
    cluster.own.errors = {A0: [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 1000}
    written = sent(cluster, markers(A0), awaited=False)
    cluster.brokers[2].errors = {A0: [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 1000}
    cluster.leaders[A0] = 2
    eventually(lambda: cluster.brokers[2].requests)
    cluster.own.errors = {}
    cluster.leaders[A0] = OWN
    eventually(lambda: written.partitions == {A0})


def test_a_defect_in_this_broker_does_not_lose_a_marker(cluster: Cluster, caplog) -> None:
    cluster.leaders[A0] = OWN
    cluster.own.defects = 2
    sent(cluster, markers(A0))
    assert (len(cluster.own.written), "a defect" in caplog.text) == (3, True)


def test_what_is_forgotten_is_not_written_by_this_broker(cluster: Cluster) -> None:
    cluster.leaders[A0] = OWN
    forgotten = Written()
    cluster.sender.send(markers(A0, number=3), forgotten)
    cluster.sender.forget(3)
    cluster.sender.write_own()
    assert (cluster.own.written, forgotten.calls) == ([], [])


def test_what_is_forgotten_while_it_is_replicated_is_not_reported(cluster: Cluster) -> None:
    cluster.leaders[A0] = OWN
    cluster.own.waiting = []
    forgotten = sent(cluster, markers(A0, number=3), awaited=False)
    (reply,) = cluster.own.waiting
    cluster.sender.forget(3)
    reply()
    assert forgotten.calls == []


def test_a_marker_that_waits_for_followers_holds_up_no_other(cluster: Cluster) -> None:
    cluster.leaders[A0] = cluster.leaders[B0] = OWN
    cluster.own.waiting = []
    first = sent(cluster, markers(A0), awaited=False)
    second = sent(cluster, markers(B0, producer_id=10), awaited=False)
    waiting, cluster.own.waiting = cluster.own.waiting, None
    for reply in reversed(waiting):
        reply()
    assert (first.partitions, second.partitions) == ({A0}, {B0})
