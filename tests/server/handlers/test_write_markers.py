"""WriteTxnMarkers: the markers that end transactions."""

from __future__ import annotations

import pytest

from klog.formats.names import CONSUMER_OFFSETS
from klog.kernel.markers import Marker, marker_of_batch
from klog.protocol.apis import ApiKey
from klog.protocol.error_codes import ErrorCode
from klog.replication.internal_append import InternalAppends
from klog.server.handlers.transactions.write_markers import WriteTxnMarkersHandler
from klog.server.transactions.marker_writing import MarkerWriting
from tests.server.handlers.parts import (
    BROKER,
    OTHER_BROKER,
    TOPIC,
    Broker,
    FakeRequest,
    answer_of,
    part_of,
    request_of,
    set_isr,
)

BOTH = (BROKER, OTHER_BROKER)
TIMEOUT_MS = 30_000
USUAL = {"producer_id": 9, "producer_epoch": 2, "transaction_result": True, "coordinator_epoch": 5}
OF_NINE = {"producer_id": 9, "producer_epoch": 2, "base_sequence": 0, "is_transactional": True}


class Groups:
    """The group coordinator: keeps what it is told, and whether the request was answered by then."""

    def __init__(self) -> None:
        self.ended = []
        self.request: FakeRequest | None = None

    def transaction_ended(self, number, producer_id, *, committed) -> None:
        assert self.request is not None
        self.ended.append((number, producer_id, committed, self.request.answered))


class Sender:
    """A coordinator or an administrator."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.groups = Groups()
        appends = InternalAppends(
            broker.replicas,
            broker.produce_purgatory,
            broker.lookup.known,
            clock_ms=broker.clock,
            timer_ms=broker.clock,
        )
        self.handler = WriteTxnMarkersHandler(MarkerWriting(appends, self.groups, timeout_ms=TIMEOUT_MS))

    def send(self, *markers, version=1) -> FakeRequest:
        """Each marker is a dict with `topics`, and what differs from the usual."""
        request = request_of(
            ApiKey.WRITE_TXN_MARKERS,
            version,
            markers=tuple(
                part_of(
                    ApiKey.WRITE_TXN_MARKERS,
                    version,
                    "WritableTxnMarker",
                    **USUAL | values,
                    topics=tuple(
                        part_of(
                            ApiKey.WRITE_TXN_MARKERS,
                            version,
                            "WritableTxnMarkerTopic",
                            name=name,
                            partition_indexes=tuple(numbers),
                        )
                        for name, numbers in topics
                    ),
                )
                for each in markers
                for topics in (each["topics"],)
                for values in ({name: value for name, value in each.items() if name != "topics"},)
            ),
        )
        self.groups.request = request
        self.handler.handle(request)
        return request


def errors(request: FakeRequest) -> dict[tuple[int, str, int], int]:
    return {
        (marker.producer_id, topic.name, each.partition_index): each.error_code
        for marker in answer_of(request).markers
        for topic in marker.topics
        for each in topic.partitions
    }


@pytest.fixture
def broker(tmp_path) -> Broker:
    broker = Broker(tmp_path)
    broker.lead()
    return broker


@pytest.fixture
def sender(broker: Broker) -> Sender:
    return Sender(broker)


def log_of(broker: Broker, topic=TOPIC, partition=0):
    return broker.replicas.partitions[topic, partition].log


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("committed", [True, False])
def test_a_marker_ends_the_transaction(broker: Broker, sender: Sender, version, committed) -> None:
    broker.append(**OF_NINE)
    log = log_of(broker)
    assert log.last_stable_offset == 0
    sent = sender.send({"topics": [(TOPIC, [0])], "transaction_result": committed}, version=version)
    assert errors(sent) == {(9, TOPIC, 0): ErrorCode.NONE}
    assert (log.log_end_offset, log.last_stable_offset) == (2, 2)
    assert len(log.segments.active.aborted()) == (0 if committed else 1)
    data = log.read(1, 1 << 20, 2)
    with open(data.file.fileno(), "rb", closefd=False) as file:
        file.seek(data.position)
        assert marker_of_batch(file.read(data.size)) == Marker(not committed, 5, broker.clock())


def test_every_partition_of_every_marker_is_answered(broker: Broker, sender: Sender) -> None:
    broker.lead(partition=1)
    broker.tell(partition=2, leader=OTHER_BROKER)
    broker.lead("followed", leader=OTHER_BROKER, replicas=BOTH, topic_id=None)
    sent = sender.send(
        {"topics": [(TOPIC, [0, 1, 2, 3]), ("followed", [0])]},
        {"topics": [(TOPIC, [1])], "producer_id": 10, "transaction_result": False},
        {"topics": [], "producer_id": 11},
    )
    assert errors(sent) == {
        (9, TOPIC, 0): ErrorCode.NONE,
        (9, TOPIC, 1): ErrorCode.NONE,
        (9, TOPIC, 2): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        (9, TOPIC, 3): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        (9, "followed", 0): ErrorCode.NOT_LEADER_OR_FOLLOWER,
        (10, TOPIC, 1): ErrorCode.NONE,
    }
    assert [marker.producer_id for marker in answer_of(sent).markers] == [9, 10, 11]
    assert log_of(broker, partition=1).log_end_offset == 2


def test_no_markers_are_answered_at_once(sender: Sender) -> None:
    assert answer_of(sender.send()).markers == ()


def test_an_unknown_producer_is_accepted(broker: Broker, sender: Sender) -> None:
    assert errors(sender.send({"topics": [(TOPIC, [0])], "producer_id": 9999})) == {(9999, TOPIC, 0): 0}
    assert 9999 in log_of(broker).producers.by_id


def test_older_epochs_are_fenced_and_newer_ones_are_not(broker: Broker, sender: Sender) -> None:
    broker.append(**OF_NINE)
    key = 9, TOPIC, 0
    topics = {"topics": [(TOPIC, [0])]}
    assert errors(sender.send(topics | {"producer_epoch": 1}))[key] == ErrorCode.INVALID_PRODUCER_EPOCH
    assert log_of(broker).last_stable_offset == 0
    assert errors(sender.send(topics | {"producer_epoch": 3}))[key] == ErrorCode.NONE
    old = topics | {"producer_epoch": 3, "coordinator_epoch": 4}
    assert errors(sender.send(old))[key] == ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert errors(sender.send(topics | {"producer_epoch": 3}))[key] == ErrorCode.NONE, "sent again"


def test_the_answer_waits_for_replication(broker: Broker, sender: Sender) -> None:
    partition = broker.lead(partition=1, replicas=BOTH)
    sent = sender.send({"topics": [(TOPIC, [0, 1])]})
    assert not sent.answered
    broker.follow(1, partition=1)
    assert errors(sent) == {(9, TOPIC, 0): ErrorCode.NONE, (9, TOPIC, 1): ErrorCode.NONE}
    assert partition.log.high_watermark == 1


def test_a_marker_that_is_not_replicated_in_time_is_answered_so(broker: Broker, sender: Sender) -> None:
    broker.lead(partition=1, replicas=BOTH)
    sent = sender.send({"topics": [(TOPIC, [1])]})
    broker.pass_time(TIMEOUT_MS)
    assert errors(sent) == {(9, TOPIC, 1): ErrorCode.REQUEST_TIMED_OUT}


def test_too_few_replicas_refuse_a_marker(tmp_path) -> None:
    broker = Broker(tmp_path, {TOPIC: {"min.insync.replicas": "2"}})
    set_isr(broker.lead(replicas=BOTH), BROKER)
    sent = Sender(broker).send({"topics": [(TOPIC, [0])]})
    assert errors(sent) == {(9, TOPIC, 0): ErrorCode.NOT_ENOUGH_REPLICAS}


def test_the_group_coordinator_hears_of_markers_before_the_answer(broker: Broker, sender: Sender) -> None:
    broker.lead(CONSUMER_OFFSETS, 3, topic_id=None)
    sender.send({"topics": [(CONSUMER_OFFSETS, [3]), (TOPIC, [0])]})
    sender.send({"topics": [(CONSUMER_OFFSETS, [3])], "producer_epoch": 1})
    sender.send({"topics": [(CONSUMER_OFFSETS, [3])], "transaction_result": False})
    assert sender.groups.ended == [(3, 9, True, False), (3, 9, False, False)]


def test_a_waiting_read_committed_fetch_is_woken(broker: Broker, sender: Sender, monkeypatch) -> None:
    woken = []
    broker.append(**OF_NINE)
    monkeypatch.setattr(broker.fetch_purgatory, "check_and_complete", woken.append)
    sender.send({"topics": [(TOPIC, [0])]})
    assert woken == [(TOPIC, 0)]


@pytest.mark.parametrize("nobody", [{"producer_id": -1}, {"producer_epoch": -1}])
def test_a_marker_of_nobody_refuses_the_whole_request(broker: Broker, sender: Sender, nobody) -> None:
    sent = sender.send({"topics": [(TOPIC, [0])]}, {"topics": [(TOPIC, [0])], "producer_id": 8} | nobody)
    assert set(errors(sent).values()) == {ErrorCode.UNKNOWN_SERVER_ERROR}
    assert log_of(broker).log_end_offset == 0
