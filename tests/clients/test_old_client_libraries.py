"""kafka-python 1.4 and librdkafka 0.11, as clients of old brokers: they write, read, commit, and go on.

The same tests run on klog and on Kafka 3.9.1.
"""

from __future__ import annotations

import json

import confluent_kafka
import pytest

from klog.protocol.apis import ApiKey
from klog.protocol.channel import Channel
from klog.protocol.messages import build, request_class
from tests.clients.old_records import CODECS, EACH, new_lines, produce_new, read_by_new
from tests.clients.python_clients import TIMEOUT_S
from tests.conftest import give_up
from tests.entity_structs import request_struct
from tests.peers import PeerUnavailableError
from tests.peers.old_clients import kafka_python, with_librdkafka

# What they need is downloaded once. Kafka's side needs Java, which is marked where the broker is.
pytestmark = pytest.mark.slow

COUNT = EACH * len(CODECS)

PRODUCE = """
import json, sys
from kafka import KafkaProducer
servers, topic, version, codec, count = sys.argv[1:]
producer = KafkaProducer(bootstrap_servers=servers, api_version=tuple(json.loads(version)),
                         compression_type=None if codec == "none" else codec, linger_ms=20, acks="all")
values = [b"%s %d" % (codec.encode(), at) for at in range(int(count))]
sent = [producer.send(topic, value, b"key", partition=0) for value in values]
producer.flush(60)
print(*(each.get(60).offset for each in sent))
producer.close()
"""
CONSUME = """
import json, sys, time
from kafka import KafkaConsumer, TopicPartition
servers, topic, version, group, count = sys.argv[1:]
consumer = KafkaConsumer(bootstrap_servers=servers, api_version=tuple(json.loads(version)), group_id=group,
                         enable_auto_commit=False, auto_offset_reset="earliest", max_poll_records=7)
partition = TopicPartition(topic, 0)
consumer.assign([partition])
left, deadline = int(count), time.monotonic() + 60
while left > 0 and time.monotonic() < deadline:
    for record in consumer.poll(500, min(left, 7)).get(partition, ()):
        print(record.offset, (record.key or b"NULL").decode(), record.value.decode(), sep="\\t")
        left -= 1
consumer.commit()
consumer.close()
"""


def run(code: str, *args: object) -> str:
    try:
        return kafka_python(code, *args)
    except PeerUnavailableError as missing:
        give_up("kafka-python 1.4", missing)


def committed(bootstrap_servers: str, version: int, group: str, topic: str) -> int:
    """The offset that a group has committed, by OffsetFetch; version 0 finds it in the metadata tree."""
    host, _, port = bootstrap_servers.partition(":")
    asked = request_struct(ApiKey.OFFSET_FETCH, version, "OffsetFetchRequestTopic")
    topics = (build(asked, name=topic, partition_indexes=(0,)),)
    with Channel(host, int(port)) as channel:
        answer = channel.send(
            build(request_class(ApiKey.OFFSET_FETCH, version), group_id=group, topics=topics)
        )
    (partition,) = answer.topics[0].partitions
    return int(partition.committed_offset)


# 0.8.1 commits into the metadata tree. The versions mean Fetch 0, 0, 1, 2, 3 and 4.
@pytest.mark.parametrize("version", [(0, 8, 1), (0, 8, 2), (0, 9), (0, 10, 0), (0, 10, 1), (0, 11)])
def test_kafka_python_of_any_age_of_broker(broker, new_topic, version: tuple[int, ...]) -> None:
    topic = new_topic()
    produce_new(broker.bootstrap_servers, topic)
    told = json.dumps(version)
    for codec in ("none", "gzip"):
        run(PRODUCE, broker.bootstrap_servers, topic, told, codec, EACH)
    expected = new_lines() + [
        f"{COUNT + EACH * number + at}\tkey\t{codec} {at}"
        for number, codec in enumerate(("none", "gzip"))
        for at in range(EACH)
    ]
    assert read_by_new(broker.bootstrap_servers, topic, len(expected)) == expected
    asked = broker.bootstrap_servers, topic, told, f"group of {topic}"
    begun = run(CONSUME, *asked, 15).splitlines()
    assert begun == expected[:15]
    in_tree = version < (0, 8, 2)
    assert committed(broker.bootstrap_servers, 0, asked[3], topic) == (15 if in_tree else -1)
    assert committed(broker.bootstrap_servers, 1, asked[3], topic) == (-1 if in_tree else 15)
    assert run(CONSUME, *asked, len(expected) - 15).splitlines() == expected[15:]


@pytest.mark.parametrize("version", ["0.8.2", "0.9.0", "0.10.0", "0.10.1"])
def test_confluent_kafka_of_any_age_of_broker(broker, new_topic, version: str) -> None:
    topic = new_topic()
    produce_new(broker.bootstrap_servers, topic)
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "api.version.request": False,
            "broker.version.fallback": version,
            "group.id": f"group of {topic}",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    try:
        messages = consumer.consume(COUNT, TIMEOUT_S)
        consumer.commit(asynchronous=False)
    finally:
        consumer.close()
    found = [
        f"{each.offset()}\t{(each.key() or b'NULL').decode()}\t{each.value().decode()}" for each in messages
    ]
    assert found == new_lines()
    assert committed(broker.bootstrap_servers, 1, f"group of {topic}", topic) == COUNT


@pytest.mark.parametrize("version", ["ask", "0.8.2", "0.9.0", "0.10.0"])
def test_librdkafka_0_11(broker, new_topic, version: str) -> None:
    topic = new_topic()
    produce_new(broker.bootstrap_servers, topic)
    try:
        written = with_librdkafka("produce", broker.bootstrap_servers, topic, version, EACH, *CODECS)
        assert written.split() == [str(COUNT + at) for at in range(COUNT)]
        expected = new_lines() + [
            f"{COUNT + EACH * number + at}\tkey\t{codec} {at}"
            for number, codec in enumerate(CODECS)
            for at in range(EACH)
        ]
        assert read_by_new(broker.bootstrap_servers, topic, 2 * COUNT) == expected
        asked = broker.bootstrap_servers, topic, version, f"group of {topic}"
        assert with_librdkafka("consume", *asked, 15).splitlines() == expected[:15]
        assert committed(broker.bootstrap_servers, 1, asked[3], topic) == 15
        assert with_librdkafka("consume", *asked, 65).splitlines() == expected[15:]
    except PeerUnavailableError as missing:
        give_up("librdkafka 0.11", missing)
