"""Writing records: outcomes of batches, retries, and sequence numbers."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from klog.client.errors import RefusedError, UnknownTopicError
from klog.client.producer import Producer, ProducerSettings, Record
from klog.kernel import kernel
from klog.kernel.columns import BatchTable
from klog.protocol.apis import SERVED, ApiKey
from klog.protocol.error_codes import ErrorCode
from klog.protocol.errors import ConnectionLostError
from klog.protocol.produce_request import decode_produce_request
from klog.protocol.produce_response import PartitionProduced, ProduceResponse, encode_produce_response
from tests.client.fake_broker import BOOT, A, B, FakeCluster, metadata

VERSION = SERVED[ApiKey.PRODUCE].max_version
PRODUCER_ID = SimpleNamespace(error_code=0, producer_id=7, producer_epoch=0)


def produced(error_code=0, base_offset=0, **fields):
    partition = PartitionProduced(0, error_code, base_offset, **fields)
    return memoryview(encode_produce_response(VERSION, ProduceResponse([("t", [partition])])))


def sent_batches(connection):
    """(base sequence, count) of every batch that was sent."""
    found = []
    for _, version, body, _ in connection.sent:
        ((_, partitions),) = decode_produce_request(version, memoryview(bytearray(body))).topics
        for _, records in partitions:
            table = BatchTable()
            kernel.scan(records, 0, True, table)
            found.append((table.base_sequence[0], table.count[0]))
    return found


def writer(world, *answers, **settings):
    world.connections[A].answers = list(answers)
    producer = Producer(world.client, "t", ProducerSettings(**settings), lambda choices: choices[0])
    producer.open()
    return producer


def send(producer, *values):
    for value in values:
        producer.send(Record(None, value))
    producer.flush()


def test_sequences_continue_from_batch_to_batch():
    world = FakeCluster(metadata(leaders=(1,)), PRODUCER_ID)
    producer = writer(world, produced(), produced(base_offset=2))
    send(producer, b"a", b"b")
    send(producer, b"c")
    assert sent_batches(world.connections[A]) == [(0, 2), (2, 1)]
    assert producer.delivered[0].last_offset == 2


def test_a_batch_whose_answer_is_lost_is_sent_again_with_the_same_sequence():
    world = FakeCluster(metadata(leaders=(1,)), PRODUCER_ID, metadata(leaders=(1,)))
    duplicate = produced(ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
    producer = writer(world, ConnectionLostError("lost"), duplicate)
    send(producer, b"a")
    assert sent_batches(world.connections[A]) == [(0, 1), (0, 1)]
    assert (producer.delivered_count, producer.unsettled_count) == (1, 0)


def test_a_batch_goes_to_the_new_leader():
    world = FakeCluster(metadata(leaders=(1,)), PRODUCER_ID, metadata(leaders=(2,)))
    producer = writer(world, produced(ErrorCode.NOT_LEADER_OR_FOLLOWER))
    world.connections[B].answers = [produced()]
    send(producer, b"a")
    assert sent_batches(world.connections[B]) == [(0, 1)]


def test_a_batch_that_is_too_large_is_cut_in_two():
    world = FakeCluster(metadata(leaders=(1,)), PRODUCER_ID)
    too_large = produced(ErrorCode.MESSAGE_TOO_LARGE)
    producer = writer(world, too_large, produced(), produced(base_offset=2))
    send(producer, b"a", b"b", b"c", b"d")
    assert sent_batches(world.connections[A]) == [(0, 4), (0, 2), (2, 2)]


def test_refused_records_fail_alone_and_the_others_are_sent_again():
    world = FakeCluster(metadata(leaders=(1,)), PRODUCER_ID)
    refused = produced(ErrorCode.INVALID_RECORD, record_errors=((1, "no key"),))
    producer = writer(world, refused, produced())
    send(producer, b"a", b"b", b"c")
    assert sent_batches(world.connections[A]) == [(0, 3), (0, 2)]
    assert [(failure.records, failure.error.code) for failure in producer.failures] == [
        (1, ErrorCode.INVALID_RECORD)
    ]
    assert producer.delivered_count == 2


def test_with_acks_0_nothing_is_awaited_and_offsets_are_unknown():
    world = FakeCluster(metadata(leaders=(1,)))
    producer = writer(world, acks=0, idempotent=False)
    send(producer, b"a")
    assert (producer.delivered_count, producer.delivered[0].first_offset) == (1, -1)


def test_no_producer_id_is_an_error():
    failed = SimpleNamespace(error_code=int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
    world = FakeCluster(metadata(leaders=(1,)), failed)
    producer = writer(world)
    producer.send(Record(None, b"a"))
    with pytest.raises(RefusedError, match="asking for a producer id"):
        producer.flush()


def auto_creation(value):
    """A DescribeConfigs answer of broker 1."""
    config = SimpleNamespace(name="auto.create.topics.enable", value=value)
    return SimpleNamespace(
        results=[SimpleNamespace(error_code=0, resource_type=4, resource_name="1", configs=[config])]
    )


def world_without_the_topic():
    """Metadata is asked for the topic, for the brokers twice, and then for the topic again and again."""
    missing = metadata(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    brokers = SimpleNamespace(brokers=missing.brokers, topics=[])
    return FakeCluster(missing, brokers, brokers, *[missing] * 100)


def test_a_topic_that_is_not_created_in_time_is_an_error():
    world = world_without_the_topic()
    with pytest.raises(UnknownTopicError):
        writer(world, auto_creation("true"))
    assert 0 < world.now_s <= 1
    assert world.connections[BOOT].answers


def test_nobody_waits_for_brokers_that_create_no_topics():
    world = world_without_the_topic()
    with pytest.raises(UnknownTopicError):
        writer(world, auto_creation("false"))
    assert world.now_s == 0


@pytest.mark.parametrize(
    ("answer", "until_s"),
    [
        (auto_creation("true"), 15),
        (ConnectionLostError("gone"), 3),
        (SimpleNamespace(results=[]), 3),
    ],
    ids=["they do", "they do not answer", "they do not say"],
)
def test_a_topic_that_brokers_may_be_creating_is_awaited(answer, until_s):
    world = world_without_the_topic()
    world.client.timeout_ms = 60_000
    with pytest.raises(UnknownTopicError):
        writer(world, answer)
    assert until_s - 1 <= world.now_s <= until_s
