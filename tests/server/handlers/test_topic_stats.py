"""What is counted of Produce and Fetch, by topic."""

from __future__ import annotations

import pytest

from klog.formats.names import TopicPartition
from klog.protocol.fetch_request import FetchPartition
from klog.server.counters.topic_stats import BrokerTopicStats, TopicStats
from tests.server.handlers.parts import BROKER, OTHER_BROKER, TOPIC, Broker, batch
from tests.server.handlers.test_fetch import fetch_request, handler_of, wants
from tests.server.handlers.test_produce import produce_request


@pytest.fixture
def topic(broker: Broker) -> TopicStats:
    broker.lead()
    return broker.topic_stats.topics[TOPIC]


def produce(broker: Broker, *partitions, **fields) -> None:
    handler = broker.produce_handler()
    handler.handle(produce_request(partitions, **fields))


def fetch(broker: Broker, *partitions: FetchPartition, **fields) -> None:
    handler_of(broker).handle(fetch_request(*partitions, **fields))


def test_written_records_count_with_their_bytes(broker: Broker, topic: TopicStats) -> None:
    data = batch(records=3)
    produce(broker, (0, data))
    assert (topic.produces, topic.messages_in, topic.bytes_in) == (1, 3, len(data))
    assert (topic.failed_produces, topic.bytes_rejected) == (0, 0)


def test_what_was_in_the_log_already_is_asked_for_twice_but_comes_in_once(
    broker: Broker, topic: TopicStats
) -> None:
    for _ in range(2):
        produce(broker, (0, batch(producer_id=5, producer_epoch=0, base_sequence=0)))
    assert (topic.produces, topic.messages_in) == (2, 1)


def test_records_that_are_too_large_are_rejected_bytes_and_no_failure(tmp_path) -> None:
    broker = Broker(tmp_path, {TOPIC: {"max.message.bytes": "50"}})
    broker.lead()
    data = batch()
    produce(broker, (0, data))
    topic = broker.topic_stats.topics[TOPIC]
    assert (topic.bytes_rejected, topic.failed_produces, topic.bytes_in) == (len(data), 0, 0)


def test_records_that_are_not_valid_are_a_failure(broker: Broker, topic: TopicStats) -> None:
    produce(broker, (0, batch(base_sequence=-1, producer_id=9, producer_epoch=0)))
    assert (topic.produces, topic.failed_produces, topic.bytes_rejected) == (1, 1, 0)


def test_what_is_refused_before_anything_is_written_is_not_counted(broker: Broker, topic: TopicStats) -> None:
    produce(broker, (0, None))
    assert (topic.produces, topic.failed_produces, topic.bytes_rejected) == (0, 0, 0)


def test_a_partition_that_nobody_knows_is_not_counted(broker: Broker, topic: TopicStats) -> None:
    produce(broker, (0, batch()), topic="unknown")
    assert broker.topic_stats.topics.keys() == {TOPIC}
    assert topic.produces == 0


def test_what_consumers_and_followers_read_is_counted_apart(broker: Broker, topic: TopicStats) -> None:
    broker.lead(epoch=1, replicas=(BROKER, OTHER_BROKER))
    size = len(b"".join(broker.append(2)))
    fetch(broker, wants(), replica_id=OTHER_BROKER)
    assert (topic.fetches, topic.bytes_out, topic.replication_bytes_out) == (1, 0, size)


def test_what_a_replica_reads_that_a_reassignment_adds_is_counted_as_such(
    broker: Broker, topic: TopicStats
) -> None:
    broker.lead(epoch=1, replicas=(BROKER, OTHER_BROKER), isr=(BROKER,), adding=(OTHER_BROKER,))
    size = len(b"".join(broker.append(2)))
    fetch(broker, wants(), replica_id=OTHER_BROKER)
    assert (topic.replication_bytes_out, topic.reassignment_bytes_out) == (size, size)
    fetch(broker, wants())
    assert topic.reassignment_bytes_out == size


def test_what_consumers_read_goes_out(broker: Broker, topic: TopicStats) -> None:
    size = len(b"".join(broker.append(2)))
    fetch(broker, wants())
    assert (topic.fetches, topic.bytes_out, topic.failed_fetches) == (1, size, 0)


def test_a_fetch_beyond_the_end_is_no_failure_but_one_of_a_failed_disk_is(
    broker: Broker, topic: TopicStats
) -> None:
    fetch(broker, wants(offset=9))
    assert (topic.fetches, topic.failed_fetches) == (1, 0)
    broker.replicas.directory_failed([TopicPartition(TOPIC, 0)])
    fetch(broker, wants())
    assert (topic.fetches, topic.failed_fetches) == (2, 1)


def test_topics_that_are_gone_are_forgotten_but_stay_in_the_sum() -> None:
    topic_stats = BrokerTopicStats()
    topic_stats.topics["here"].bytes_in += 5
    topic_stats.topics["gone"].bytes_in += 7
    for _ in range(2):
        total, topics = topic_stats.read({"here"})
        assert total.bytes_in == 12
        assert {name: counts.bytes_in for name, counts in topics.items()} == {"here": 5}
    assert topic_stats.topics.keys() == {"here"}
