"""A cluster with records of every kind and a group that has read some of them, and what clients see of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

import klog.testing
from tests.backup.repositories import Backups

TOPIC = "orders"
PARTITIONS = 3
GROUP = "billing"
TIMEOUT_S = 30
FIRST_MS = 1_700_000_000_000

Message = tuple[tuple[int, int], bytes | None, bytes | None, object]
Seen = dict[int, list[Message]]


@dataclass(frozen=True)
class Source:
    """The log directory of a stopped broker, what readers saw, and what the group had yet to read."""

    directory: Path
    seen: Seen
    left: Seen


@contextmanager
def source() -> Iterator[Source]:
    """Records that are plain, compressed, committed and aborted, with keys, headers and times."""
    config = {"log.retention.ms": -1, "offsets.topic.num.partitions": 2}
    with klog.testing.broker(config) as broker:
        seen, left = fill(broker.bootstrap_servers)
        directory = broker.log_dirs[0]
        broker.stop()
        yield Source(directory, seen, left)


def fill(bootstrap: str) -> tuple[Seen, Seen]:
    """Write records of every kind, and commit offsets; what readers see, and what is left for the group."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)]).values():
        future.result(TIMEOUT_S)
    for number, codec in enumerate(("none", "gzip", "lz4", "zstd", "snappy")):
        write(bootstrap, f"{codec}", {"compression.type": codec})
        write_transaction(bootstrap, number, is_commit=number != 2)
    left = commit_some(bootstrap)
    return all_messages(bootstrap), left


def write(bootstrap: str, name: str, config: dict[str, object], count: int = 60) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "batch.num.messages": 10, **config})
    _produce(producer, name, count)
    assert producer.flush(TIMEOUT_S) == 0


def write_transaction(bootstrap: str, number: int, *, is_commit: bool) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"orders-{number}"})
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    _produce(producer, f"transaction {number}", 12)
    if is_commit:
        producer.commit_transaction(TIMEOUT_S)
    else:
        producer.abort_transaction(TIMEOUT_S)


def _produce(producer: Producer, name: str, count: int) -> None:
    for number in range(count):
        producer.produce(
            TOPIC,
            f"{name} {number}".encode() * 20,
            f"key {number}" if number % 3 else None,
            number % PARTITIONS,
            timestamp=FIRST_MS + number,
            headers=[("trace", str(number).encode()), ("none", None)],
        )


def commit_some(bootstrap: str) -> Seen:
    """Let the group read a part of each partition, and commit; what is left for it to read."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP, "enable.auto.commit": False})
    offsets = [TopicPartition(TOPIC, number, 7 + 11 * number) for number in range(PARTITIONS)]
    consumer.commit(offsets=offsets, asynchronous=False)
    consumer.close()
    return left_for_group(bootstrap)


def left_for_group(bootstrap: str, topic: str = TOPIC) -> Seen:
    """What the group would read."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP})
    wanted = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    found = consumer.committed(wanted, TIMEOUT_S)
    consumer.close()
    assert all(each.offset >= 0 for each in found)
    return {each.partition: messages(bootstrap, each.partition, topic, each.offset) for each in found}


def messages(bootstrap: str, partition: int, topic: str = TOPIC, offset: int = 0) -> list[Message]:
    """Timestamp with its type, key, value and headers of what a read_committed consumer gets."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, partition, offset)])
    found = []
    while (message := consumer.poll(TIMEOUT_S)) is not None and message.error() is None:
        found.append((message.timestamp(), message.key(), message.value(), message.headers()))
    assert message is not None
    consumer.close()
    return found


def all_messages(bootstrap: str, topic: str = TOPIC) -> Seen:
    """What readers get of all partitions."""
    return {number: messages(bootstrap, number, topic) for number in range(PARTITIONS)}


def backed_up(place: Path, found: Source) -> Backups:
    """A repository with one backup of the source."""
    backups = Backups(place)
    assert backups.run(found.directory).is_clean
    return backups
