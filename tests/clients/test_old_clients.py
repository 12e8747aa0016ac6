"""Producers that know only old versions of Produce (before version 3, with message sets)."""

from __future__ import annotations

import confluent_kafka
import kafka
import pytest

import klog
from tests.clients.python_clients import TIMEOUT_S

COUNT = 20
NO_TIMESTAMP = -1


def stored(broker, topic):
    partition = klog.open(str(broker.partition_dir(topic)))
    return {(batch.magic, batch.codec) for batch in partition.batches()}, list(partition.records())


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4"])
@pytest.mark.parametrize("version", ["0.9.0", "0.10.0"])
def test_message_sets_are_stored_as_batches(broker, new_topic, version, codec):
    topic = new_topic()
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "api.version.request": False,
            "broker.version.fallback": version,
            "compression.type": codec,
            "linger.ms": 20,
            "delivery.timeout.ms": TIMEOUT_S * 1000,
            "log_level": 0,
        }
    )
    for number in range(COUNT):
        producer.produce(topic, b"value %d" % number * 10, b"key", timestamp=1_600_000_000_000)
    assert producer.flush(TIMEOUT_S) == 0
    kinds, records = stored(broker, topic)
    assert kinds == {(2, codec)}
    assert [record.offset for record in records] == list(range(COUNT))
    assert [record.value for record in records] == [b"value %d" % number * 10 for number in range(COUNT)]
    # The oldest format has no timestamps: without them the test knows that it was really sent.
    times = {record.timestamp_ms for record in records}
    assert times == {NO_TIMESTAMP if version == "0.9.0" else 1_600_000_000_000}


@pytest.mark.parametrize("version", [(0, 9), (0, 10, 0), (0, 11, 0), (1, 0), (2, 4)])
def test_kafka_python_of_any_age_of_broker(broker, new_topic, version):
    topic = new_topic()
    producer = kafka.KafkaProducer(
        bootstrap_servers=broker.bootstrap_servers,
        api_version=version,
        compression_type="gzip",
        enable_idempotence=False,
        linger_ms=20,
    )
    try:
        futures = [producer.send(topic, b"value %d" % number, b"key") for number in range(COUNT)]
        producer.flush(TIMEOUT_S)
        assert [future.get(TIMEOUT_S).offset for future in futures] == list(range(COUNT))
    finally:
        producer.close(timeout=TIMEOUT_S)
    kinds, records = stored(broker, topic)
    assert kinds == {(2, "gzip")}
    assert [record.value for record in records] == [b"value %d" % number for number in range(COUNT)]
    assert all((record.timestamp_ms == NO_TIMESTAMP) == (version == (0, 9)) for record in records)
