"""What klog's brokers ask of other brokers in transactions: klog and Kafka answer alike."""

from __future__ import annotations

import itertools
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

import pytest

from klog.client.connection import ReconnectingConnection
from klog.coordinator.transactions.values import Marker, MarkersToWrite, Producer, VerifyErrors
from klog.formats.names import TopicPartition
from klog.kernel.batch_builder import BatchFields, RecordData, build_batch
from klog.protocol.apis import ApiKey
from klog.protocol.channel import Channel
from klog.protocol.entity_fields import Entity
from klog.protocol.error_codes import ErrorCode
from klog.protocol.messages import build, request_class
from klog.protocol.produce_request import ProduceRequest, encode_produce_request
from klog.protocol.produce_response import decode_produce_response
from klog.protocol.transaction_messages import TxnMarker, read_written_markers, write_markers
from klog.server.transactions.marker_sending import MarkerSending
from klog.server.transactions.verifying import Verifying
from klog.storage.log.scheduler import monotonic_ms
from tests.clients.python_clients import ConfluentKafka, Sent
from tests.clients.transactors import ConfluentTransactor
from tests.entity_structs import request_struct
from tests.waiting import eventually

THERE = 1  # whatever the broker's own id is
COORDINATOR_EPOCH = 0  # a higher one would fence the coordinator, whose transaction then never ends
_BROKERS, _SET, _DELETE = 4, 0, 1  # numbers of the protocol: a resource type, two operations
_numbers = itertools.count()


class Open(NamedTuple):
    """A transaction that is open in partition 0 of a topic."""

    transactional_id: str
    producer: Producer
    topic: str

    def partition(self, number: int = 0) -> TopicPartition:
        return TopicPartition(self.topic, number)


def channel_to(broker) -> Channel:
    host, _, port = broker.bootstrap_servers.rpartition(":")
    return Channel(host, int(port))


def connecting(broker) -> ReconnectingConnection:
    return ReconnectingConnection(lambda: channel_to(broker))


def open_producers(broker, topic: str) -> list[Entity]:
    """The producers that have a transaction open in partition 0."""
    topic_class = request_struct(ApiKey.DESCRIBE_PRODUCERS, 0, "TopicRequest")
    asked = (build(topic_class, name=topic, partition_indexes=(0,)),)
    with channel_to(broker) as connection:
        answer = connection.send(build(request_class(ApiKey.DESCRIBE_PRODUCERS, 0), topics=asked))
    ((partition,),) = [each.partitions for each in answer.topics]
    return [each for each in partition.active_producers if each.current_txn_start_offset >= 0]


@pytest.fixture
def transaction(broker, new_topic) -> Iterator[Open]:
    """A transaction that a client has begun, with one record."""
    transactional_id, topic = f"asked-about-{next(_numbers)}", new_topic(2)
    ConfluentTransactor(broker.bootstrap_servers, transactional_id).close()  # so that there is an older epoch
    client = ConfluentTransactor(broker.bootstrap_servers, transactional_id)
    client.begin()
    client.send(topic, b"v")
    (found,) = open_producers(broker, topic)
    yield Open(transactional_id, Producer(found.producer_id, found.producer_epoch), topic)
    with suppress(client.refused):
        client.close()


@contextmanager
def verifying(broker) -> Iterator[Verifying]:
    verifier = Verifying(
        THERE + 1,
        lambda _: THERE,
        lambda *_: ErrorCode.UNKNOWN_SERVER_ERROR,
        lambda _: connecting(broker),
    )
    try:
        yield verifier
    finally:
        verifier.stop()


def test_a_coordinator_says_which_partitions_are_in_a_transaction(broker, transaction: Open) -> None:
    inside, outside = transaction.partition(0), transaction.partition(1)
    with verifying(broker) as verifier:

        def ask(transactional_id: str, producer: Producer, *partitions: TopicPartition) -> VerifyErrors:
            answers: list[VerifyErrors] = []
            verifier.verify(transactional_id, producer, partitions, answers.append)
            eventually(lambda: answers)
            return answers[0]

        name, (producer_id, epoch) = transaction.transactional_id, transaction.producer
        assert ask(name, transaction.producer, inside, outside) == {
            inside: ErrorCode.NONE,
            outside: ErrorCode.TRANSACTION_ABORTABLE,
        }
        assert ask(name, Producer(producer_id, epoch + 1), inside) == {
            inside: ErrorCode.INVALID_PRODUCER_EPOCH
        }
        unmapped = {inside: ErrorCode.INVALID_PRODUCER_ID_MAPPING}
        assert ask(name, Producer(producer_id + 1, epoch), inside) == unmapped
        assert ask(name + "?", transaction.producer, inside) == unmapped


@contextmanager
def marking(broker) -> Iterator[MarkerSending]:
    sender = MarkerSending(
        THERE + 1,
        lambda *_: pytest.fail("the partitions are led elsewhere"),
        lambda _: THERE,
        lambda partitions: partitions,
        lambda numbers: dict.fromkeys(numbers, COORDINATOR_EPOCH),
        lambda _: connecting(broker),
        monotonic_ms,
    )
    try:
        yield sender
    finally:
        sender.stop()


@pytest.mark.parametrize("committed", [True, False])
def test_a_leader_writes_markers(broker, transaction: Open, committed: bool) -> None:
    written: list[Collection[TopicPartition]] = []
    partitions = frozenset((transaction.partition(0), transaction.partition(1)))
    marker = Marker(transaction.producer, COORDINATOR_EPOCH, committed)
    with marking(broker) as sender:
        sender.send(MarkersToWrite(transaction.transactional_id, 0, marker, partitions), written.append)
        eventually(lambda: frozenset().union(*written) == partitions)
    assert open_producers(broker, transaction.topic) == []
    reader = ConfluentKafka(broker.bootstrap_servers)
    found = [each.value for each in reader.read(transaction.topic, isolation="read_committed")]
    assert found == ([b"v"] if committed else [])


def test_a_leader_that_knows_a_lost_epoch_of_the_coordinator_gets_a_marker_of_a_higher_one(
    broker, transaction: Open
) -> None:
    partition = transaction.partition()
    other = Producer(transaction.producer.producer_id + 1_000_000, 0)
    lost = TxnMarker(*other, True, (partition,), COORDINATOR_EPOCH + 7)
    connection = connecting(broker)
    answer = connection.request(
        ApiKey.WRITE_TXN_MARKERS, 1, (write_markers(1, [lost]),), read_written_markers
    )
    connection.close()
    assert answer == {other.producer_id: {partition: ErrorCode.NONE}}
    marker = Marker(other, COORDINATOR_EPOCH, True)
    written: list[Collection[TopicPartition]] = []
    with marking(broker) as sender:
        for _ in range(2):
            written.clear()
            sender.send(MarkersToWrite("another", 0, marker, frozenset((partition,))), written.append)
            eventually(lambda: written == [{partition}])


def test_a_leader_refuses_the_marker_of_an_older_epoch(broker, transaction: Open) -> None:
    producer_id, epoch = transaction.producer
    marker = Marker(Producer(producer_id, epoch - 1), COORDINATOR_EPOCH, False)
    wanted = MarkersToWrite(transaction.transactional_id, 0, marker, frozenset((transaction.partition(),)))
    ended: list[tuple[set[TopicPartition], bool]] = []
    with marking(broker) as sender:
        sender.send(
            wanted, lambda partitions, *, superseded=False: ended.append((set(partitions), superseded))
        )
        eventually(lambda: ended)
    assert ended == [({transaction.partition()}, True)]
    assert len(open_producers(broker, transaction.topic)) == 1


@contextmanager
def unverified(broker) -> Iterator[None]:
    """Transactions may begin without the coordinator's knowledge, as before KIP-890."""

    def alter(operation: int) -> None:
        key, version = ApiKey.INCREMENTAL_ALTER_CONFIGS, 1
        switch = build(
            request_struct(key, version, "AlterableConfig"),
            name="transaction.partition.verification.enable",
            config_operation=operation,
            value="false",
        )
        cluster = build(
            request_struct(key, version, "AlterConfigsResource"),
            resource_type=_BROKERS,
            resource_name="",
            configs=(switch,),
        )
        request = build(request_class(key, version), resources=(cluster,), validate_only=False)
        with channel_to(broker) as connection:
            (answer,) = connection.send(request).responses
        assert answer.error_code == ErrorCode.NONE, answer

    alter(_SET)
    try:
        yield
    finally:
        alter(_DELETE)


def test_a_hanging_transaction_is_found_and_ended_with_a_marker(broker, new_topic) -> None:
    topic, producer = new_topic(), Producer(9_000_000, 4)

    def produce() -> int:
        fields = BatchFields(
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            base_sequence=0,
            is_transactional=True,
        )
        batch = memoryview(build_batch([RecordData(0, time.time_ns() // 1_000_000, b"k", b"v")], fields))
        request = ProduceRequest("nobody-knows-it", -1, 30_000, [(topic, [(0, batch)])])
        body = encode_produce_request(9, request)
        with channel_to(broker) as connection:
            answer = connection.request(ApiKey.PRODUCE, 9, body, decode_produce_response)
        return answer.topics[0][1][0].error_code

    # The coordinator is looked for only after somebody has asked for it.
    ConfluentTransactor(broker.bootstrap_servers, f"first-{topic}").close()
    eventually(lambda: produce() == ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    with unverified(broker):
        eventually(lambda: produce() == ErrorCode.NONE)
    (hanging,) = open_producers(broker, topic)
    assert (hanging.producer_id, hanging.producer_epoch) == producer
    assert (hanging.coordinator_epoch, hanging.current_txn_start_offset) == (-1, 0)
    ConfluentKafka(broker.bootstrap_servers).write(topic, [Sent(b"later")])
    reader = ConfluentKafka(broker.bootstrap_servers)
    assert reader.read(topic, isolation="read_committed") == []
    marker = MarkersToWrite("", 0, Marker(producer, 0, False), frozenset((TopicPartition(topic, 0),)))
    written: list[Collection[TopicPartition]] = []
    with marking(broker) as sender:
        sender.send(marker, written.append)
        eventually(lambda: written)
    assert [each.value for each in reader.read(topic, isolation="read_committed")] == [b"later"]
