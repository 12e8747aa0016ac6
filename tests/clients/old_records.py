"""What the tests with old clients write, and the lines that their programs print of it."""

from __future__ import annotations

import confluent_kafka

from tests.clients.python_clients import TIMEOUT_S

CODECS = ("none", "gzip", "snappy", "lz4")
EACH = 10  # records of each codec


def old_lines(first_offset: int = 0) -> list[str]:
    """Of what an old client writes: every third key is null."""
    return [
        f"{first_offset + at}\t{'NULL' if at % 3 == 0 else f'key {at}'}\tvalue {at}"
        for at in range(EACH * len(CODECS))
    ]


def produce_new(bootstrap_servers: str, topic: str) -> None:
    """Batches in all codecs with headers, of an idempotent producer."""
    for codec in CODECS:
        producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": bootstrap_servers,
                "compression.type": codec,
                "enable.idempotence": True,
                "linger.ms": 50,
            }
        )
        for at in range(EACH):
            key, value = None if at % 3 else b"key", b"%s %d" % (codec.encode(), at)
            producer.produce(topic, value, key, partition=0, headers={"header": b"x"})
        assert producer.flush(TIMEOUT_S) == 0


def new_lines(first_offset: int = 0) -> list[str]:
    """Of what `produce_new` writes."""
    values = [f"{'NULL' if at % 3 else 'key'}\t{codec} {at}" for codec in CODECS for at in range(EACH)]
    return [f"{first_offset + at}\t{value}" for at, value in enumerate(values)]


def read_by_new(bootstrap_servers: str, topic: str, count: int) -> list[str]:
    """The same lines, as a client of today reads them."""
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap_servers, "group.id": "new", "enable.auto.commit": False}
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    try:
        messages = consumer.consume(count, TIMEOUT_S)
    finally:
        consumer.close()
    assert all(message.error() is None for message in messages)
    return [
        f"{message.offset()}\t{(message.key() or b'NULL').decode()}\t{message.value().decode()}"
        for message in messages
    ]
