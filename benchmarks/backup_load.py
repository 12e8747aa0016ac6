"""Fills a Kafka broker with records of every kind, for `backup_comparison`."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from benchmarks.batch_headers import batches
from benchmarks.measure import BenchmarkError
from tests.peers.broker import KRaftBroker
from tests.peers.kafka import KafkaPeer

CONFIG: Final[dict[str, str | int]] = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "log.cleaner.backoff.ms": 200,
    "transaction.max.timeout.ms": 3_600_000,
}
GROUP: Final = "billing"
FIRST_MS: Final = 1_700_000_000_000
TRIMMED_TO: Final = 37
_TEN_YEARS_MS: Final = "315360000000"
TOPICS: Final[dict[str, dict[str, str]]] = {
    "plain": {"retention.ms": _TEN_YEARS_MS, "max.message.bytes": "2000000"},
    "arrival": {"retention.ms": _TEN_YEARS_MS, "message.timestamp.type": "LogAppendTime"},
    "transactions": {"retention.ms": _TEN_YEARS_MS},
    "open": {"retention.ms": _TEN_YEARS_MS},
    "compacted": {"cleanup.policy": "compact", "segment.bytes": "65536", "min.cleanable.dirty.ratio": "0.01"},
    "trimmed": {"retention.ms": _TEN_YEARS_MS},
}
"""The topics, each with two partitions, and their configs, none of which is the brokers' default."""

PARTITIONS: Final = 2
WAIT_S: Final = 60
_OPEN_ID: Final = "never-ended"


def fill_before_restart(broker: KRaftBroker) -> None:
    """Make the topics, and write what has the first leader epoch. The cleaner has then left gaps."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    topics = [NewTopic(name, PARTITIONS, 1, config=config) for name, config in TOPICS.items()]
    for future in admin.create_topics(topics).values():
        future.result(WAIT_S)
    for codec in ("none", "gzip", "snappy"):
        _write(broker, "plain", codec)
    _write(broker, "trimmed", "none", count=120)
    for round_number in range(20):
        _write(broker, "compacted", "none", keys=7, name=f"round {round_number}")
    _await_gaps(broker)


def fill_after_restart(broker: KRaftBroker) -> Producer:
    """Write all the rest in a later leader epoch. Returns a producer whose transaction is open."""
    for codec in ("lz4", "zstd"):
        _write(broker, "plain", codec)
    _write(broker, "arrival", "zstd")
    for number, ends in enumerate(("commit", "abort", "commit", "abort", "commit")):
        producer = _transactional(broker, f"payments-{number}")
        _produce(producer, "transactions", f"{ends} {number}", 12)
        producer.flush(WAIT_S)
        producer.commit_transaction(WAIT_S) if ends == "commit" else producer.abort_transaction(WAIT_S)
    opened = _transactional(broker, _OPEN_ID)
    _produce(opened, "open", "never ended", 6)
    opened.flush(WAIT_S)
    later = _transactional(broker, "later")
    _produce(later, "open", "committed behind an open transaction", 10)
    later.commit_transaction(WAIT_S)
    _trim_and_commit(broker)
    _grant(broker)
    return opened


def end_open_transaction(broker: KRaftBroker) -> None:
    """Let the next producer of this id abort what the last one has left open."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": _OPEN_ID})
    producer.init_transactions(WAIT_S)


def quotas(peer: KafkaPeer, bootstrap: str) -> str:
    """The quotas of users, as Kafka's own command shows them."""
    done = _configs(peer, bootstrap, "--describe", "--entity-type", "users")
    return "\n".join(sorted(line for line in done.splitlines() if "rate" in line))


def _configs(peer: KafkaPeer, bootstrap: str, *words: str) -> str:
    done = peer.java("kafka.admin.ConfigCommand", "--bootstrap-server", bootstrap, *words)
    if done.returncode:
        raise BenchmarkError(f"kafka-configs: {done.stderr.decode()[-500:]}")
    return done.stdout.decode()


def _transactional(broker: KRaftBroker, name: str) -> Producer:
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "transactional.id": name,
            "transaction.timeout.ms": 3_600_000,
            "batch.num.messages": 4,
            "compression.type": "gzip",
        }
    )
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    return producer


def _write(
    broker: KRaftBroker, topic: str, codec: str, count: int = 60, keys: int = 1000, name: str = ""
) -> None:
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "enable.idempotence": True,
            "compression.type": codec,
            "batch.num.messages": 10,
            "linger.ms": 5,
        }
    )
    _produce(producer, topic, name or codec, count, keys)
    if producer.flush(WAIT_S):
        raise BenchmarkError(f"records for {topic} were not written")


def _produce(producer: Producer, topic: str, name: str, count: int, keys: int = 1000) -> None:
    is_compacted = topic == "compacted"
    for number in range(count):
        producer.produce(
            topic,
            None if number % 11 == 5 and not is_compacted else f"{name} {number} ".encode() * 15,
            None if number % 3 == 0 and not is_compacted else f"key {number // 2 % keys}".encode(),
            number % PARTITIONS,
            timestamp=FIRST_MS + 1000 * number,
            headers=[("trace", str(number).encode()), ("empty", b""), ("none", None)] if number % 2 else None,
        )


def _trim_and_commit(broker: KRaftBroker) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for future in admin.delete_records([TopicPartition("trimmed", 0, TRIMMED_TO)]).values():
        future.result(WAIT_S)
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": GROUP, "enable.auto.commit": False}
    )
    places = [
        TopicPartition("plain", 0, 31, metadata="as of page 3"),
        TopicPartition("plain", 1, 77),
        TopicPartition("transactions", 0, 9),
        TopicPartition("trimmed", 0, 41),
    ]
    consumer.commit(offsets=places, asynchronous=False)
    consumer.close()


def _grant(broker: KRaftBroker) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    bindings = [
        AclBinding(kind, name, pattern, "User:alice", "*", operation, AclPermissionType.ALLOW)
        for kind, name, pattern, operation in (
            (ResourceType.TOPIC, "pla", ResourcePatternType.PREFIXED, AclOperation.READ),
            (ResourceType.GROUP, GROUP, ResourcePatternType.LITERAL, AclOperation.READ),
        )
    ]
    for future in admin.create_acls(bindings).values():
        future.result(WAIT_S)
    words = ("--alter", "--entity-type", "users", "--entity-name", "alice")
    _configs(broker.peer, broker.bootstrap, *words, "--add-config", "producer_byte_rate=1048576")


def _await_gaps(broker: KRaftBroker) -> None:
    """Wait until the cleaner has removed records between others."""
    directory = Path(str(broker.config["log.dirs"])) / "compacted-0"

    def has_gaps() -> bool:
        found = batches(directory)
        return any(each.records < each.last_offset - each.base_offset + 1 for each in found) or any(
            after.base_offset > before.last_offset + 1 for before, after in itertools.pairwise(found)
        )

    await_true(has_gaps, "the cleaner has left no gap")


def await_true(holds: Callable[[], bool], otherwise: str) -> None:
    """Wait until something holds. Raises BenchmarkError after a minute."""
    deadline_s = time.monotonic() + WAIT_S
    while not holds():
        if time.monotonic() > deadline_s:
            raise BenchmarkError(otherwise)
        time.sleep(0.2)
