"""What clients do on a cluster before it is stopped, and what must go on wherever its metadata went.

Nothing is expected of single versions: the same play runs on Kafka 0.11 to 4.1, with and without ZooKeeper,
and on klog.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.peers.kafka import KafkaPeer
from tests.waiting import eventually

TIMEOUT_S: Final = 60
DELETED, COMPACTED = "t-delete", "t-compact"
MOVED: Final = "t-moved"
"""The partition that is on its way from broker 0 to broker 1."""
OPEN: Final = "t-open"
"""It has a record, one of a transaction that is open, and one after it."""
TIMED_OUT: Final = "t-timed-out"
"""It has what t-open has, but nobody comes back to its transaction."""
PREPARED: Final = "t-prepared"
"""It has one record of a transaction that was committed and has no marker yet."""
TOPICS: Final[Mapping[str, tuple[int, dict[str, str]]]] = {
    DELETED: (3, {"retention.ms": "-1"}),
    COMPACTED: (3, {"cleanup.policy": "compact"}),
    MOVED: (1, {}),
    OPEN: (1, {}),
    TIMED_OUT: (1, {}),
    PREPARED: (1, {}),
}
DROPPED_BY_KAFKA_4: Final = {"message.timestamp.difference.max.ms": "9000000000000"}
CLASSIC, CONSUMER, IN_TRANSACTION, SHARE = "g-classic", "g-consumer", "g-transaction", "g-share"
QUIET: Final = {"log_level": 0, "error_cb": lambda error: None}
_LONG_MS: Final = 600_000
_SHORT_MS: Final = 10_000
TIMEOUTS_ARE_NOT_SEEN: Final = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": _LONG_MS}
"""Configs of the brokers that are stopped: they leave transactions open."""
TIMEOUTS_ARE_SEEN: Final = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": 1000}
"""Configs of those that go on."""
_SHARED_AT_FIRST: Final = 2

Row = tuple[str, int, int, bytes | None, bytes | None]


class Before(NamedTuple):
    """What clients saw before the cluster was stopped."""

    records: list[Row]
    committed: dict[str, list[int]]
    refused: str | None


@dataclass(frozen=True)
class Play:
    """The clients of one cluster. Those of the consumer protocol (KIP-848) take part if it knows them."""

    address: str
    sasl_address: str
    has_consumer_groups: bool
    peer: KafkaPeer

    # --- before ---

    def await_brokers(self, count: int) -> None:
        """Wait until the brokers know each other."""
        admin = self._admin()
        eventually(lambda: len(admin.list_topics(timeout=TIMEOUT_S).brokers) == count)

    def make_topics(self) -> None:
        """All replicas are on broker 0."""
        old = DROPPED_BY_KAFKA_4 if self.peer.major < 4 else {}
        topics = [
            NewTopic(
                name,
                count,
                replica_assignment=[[0]] * count,
                config={**config, **(old if name == DELETED else {})},
            )
            for name, (count, config) in TOPICS.items()
        ]
        admin = self._admin()
        for made in admin.create_topics(topics).values():
            made.result(TIMEOUT_S)

    def make_records(self) -> None:
        """Committed and aborted transactions, plain records, and groups with offsets."""
        transactions = self._transactions("x")
        for number in range(6):
            self._transaction(transactions, f"{number}", commits=number % 3 != 2)
        self._write({MOVED: 1000, OPEN: 1, TIMED_OUT: 1})
        for group in self.groups:
            self.go_on(group, 0)

    @property
    def groups(self) -> tuple[str, ...]:
        return (CLASSIC, CONSUMER) if self.has_consumer_groups else (CLASSIC,)

    def begin_share_group(self) -> None:
        """A share group has taken some records."""
        assert len(self.shared(_SHARED_AT_FIRST)) == _SHARED_AT_FIRST

    def require_share_group_goes_on(self) -> None:
        """It gets no record a second time."""
        assert self.shared(1) == [f"{_SHARED_AT_FIRST}"]

    def seen(self) -> Before:
        """What clients see of a cluster that has no transaction under way."""
        return Before(
            self.records((DELETED, COMPACTED, MOVED)),
            {group: self.committed(group) for group in self.groups},
            self.error_of_alice(COMPACTED),
        )

    def leave_transactions_open(self) -> None:
        """Their producers go away without a word, and another one writes after them."""
        for topic, timeout_ms in ((OPEN, _LONG_MS), (TIMED_OUT, _SHORT_MS)):
            producer = self._transactions(topic, timeout_ms)
            producer.begin_transaction()
            producer.produce(topic, b"open", partition=0)
            assert producer.flush(TIMEOUT_S) == 0
        self._write({OPEN: 1, TIMED_OUT: 1})

    def prepare_transaction(self, cut: Callable[[], object]) -> None:
        """A transaction of records and offsets is committed when the brokers do not hear each other."""
        producer = self._transactions("prepared")
        producer.begin_transaction()
        producer.produce(PREPARED, b"prepared", partition=0)
        assert producer.flush(TIMEOUT_S) == 0
        member = Consumer({"bootstrap.servers": self.address, "group.id": IN_TRANSACTION, **QUIET})
        place = TopicPartition(DELETED, 0, 7)
        producer.send_offsets_to_transaction([place], member.consumer_group_metadata(), TIMEOUT_S)
        member.close()
        cut()
        producer.commit_transaction(TIMEOUT_S)

    # --- after ---

    def require_everything(self, before: Before) -> None:
        """All records and offsets are there, and users, groups and transactions go on."""
        self.await_leaders()
        assert self.records((DELETED, COMPACTED, MOVED)) == before.records
        assert {group: self.committed(group) for group in before.committed} == before.committed
        self._require_transactions_end()
        self._require_user(before.refused)
        self._transaction(self._transactions("x"), "after", commits=True)
        found = self.records((DELETED, COMPACTED))
        assert len(found) == len(self._of(before.records, (DELETED, COMPACTED))) + 6 + 1  # one is alice's
        for group, offsets in before.committed.items():
            self.go_on(group, offsets[0])

    def _require_transactions_end(self) -> None:
        """What was prepared is committed without its producer. What was open is aborted by the next one, or
        by the coordinator after its timeout.
        """
        eventually(lambda: [row[4] for row in self.records((PREPARED,))] == [b"prepared"])
        eventually(lambda: self.committed(IN_TRANSACTION)[0] == 7)
        assert [row[2] for row in self.records((OPEN,))] == [0], (
            "the open transaction holds back what follows"
        )
        self._transactions(OPEN)
        for topic in (OPEN, TIMED_OUT):
            eventually(lambda topic=topic: [row[2] for row in self.records((topic,))] == [0, 2])

    def _require_user(self, refused: str | None) -> None:
        assert self.error_of_alice(DELETED) is None
        assert self.error_of_alice(COMPACTED) == refused == "TOPIC_AUTHORIZATION_FAILED"

    def await_leaders(self) -> None:
        """Wait until each partition has a leader."""
        admin = self._admin()

        def have_leaders() -> bool:
            found = admin.list_topics(timeout=TIMEOUT_S).topics
            return all(
                name in found and all(each.leader >= 0 for each in found[name].partitions.values())
                for name in TOPICS
            )

        eventually(have_leaders)

    def replicas(self, topic: str) -> list[int]:
        """Those of the first partition."""
        return list(self._admin().list_topics(topic, timeout=TIMEOUT_S).topics[topic].partitions[0].replicas)

    # --- clients ---

    def _admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.address, **QUIET})

    def _transactions(self, name: str, timeout_ms: int = _LONG_MS) -> Producer:
        """A new producer of this transactional id. What an older one has left open is aborted."""
        config = {"transactional.id": name, "transaction.timeout.ms": timeout_ms}
        producer = Producer({"bootstrap.servers": self.address, **config, **QUIET})
        producer.init_transactions(TIMEOUT_S)
        return producer

    def _transaction(self, producer: Producer, value: str, *, commits: bool) -> None:
        producer.begin_transaction()
        for topic in (DELETED, COMPACTED):
            for partition in range(3):
                producer.produce(topic, value, f"k{len(value) % 2}", partition=partition)
        if commits:
            producer.commit_transaction(TIMEOUT_S)
        else:
            assert producer.flush(TIMEOUT_S) == 0
            producer.abort_transaction(TIMEOUT_S)

    def _write(self, counts: Mapping[str, int]) -> None:
        producer = Producer({"bootstrap.servers": self.address, "enable.idempotence": True, **QUIET})
        for topic, count in counts.items():
            for number in range(count):
                producer.produce(topic, f"{number}", partition=0)
        assert producer.flush(TIMEOUT_S) == 0

    def records(self, topics: Iterable[str]) -> list[Row]:
        """The committed records of topics, up to the first transaction that is open."""
        reading = {"group.id": "reader", "enable.partition.eof": True, "enable.auto.commit": False}
        consumer = Consumer({"bootstrap.servers": self.address, **reading, **QUIET})
        places = [
            TopicPartition(topic, partition, 0) for topic in topics for partition in range(TOPICS[topic][0])
        ]
        consumer.assign(places)
        found: list[Row] = []
        at_end: set[tuple[str, int]] = set()
        while len(at_end) < len(places):
            message = consumer.poll(TIMEOUT_S)
            assert message is not None, "nothing came"
            where = message.topic(), message.partition()
            if message.error() is None:
                found.append((*where, message.offset(), message.key(), message.value()))
            else:
                assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                at_end.add(where)
        consumer.close()
        return sorted(found, key=lambda row: row[:3])

    @staticmethod
    def _of(rows: list[Row], topics: Iterable[str]) -> list[Row]:
        return [row for row in rows if row[0] in topics]

    def committed(self, group: str) -> list[int]:
        """A group's offsets in the first topic."""
        consumer = Consumer({"bootstrap.servers": self.address, "group.id": group, **QUIET})
        try:
            found = consumer.committed([TopicPartition(DELETED, each) for each in range(3)], TIMEOUT_S)
        except KafkaException as error:
            # The coordinator may be loading, or wait for the end of a transaction.
            raise AssertionError(error) from error
        finally:
            consumer.close()
        return [each.offset for each in found]

    def go_on(self, group: str, first: int) -> None:
        """A member joins, reads from the committed offset of partition 0 on, and commits one record."""
        if group == CONSUMER and self.has_consumer_groups and self.peer.major < 4:
            self._go_on_in_java(group)
            return
        protocol = {"group.protocol": "consumer"} if group == CONSUMER and self.has_consumer_groups else {}
        config = {"group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False}
        consumer = Consumer({"bootstrap.servers": self.address, **config, **protocol, **QUIET})
        consumer.subscribe([DELETED])
        found: list[int] = []

        def has_read() -> bool:
            message = consumer.poll(1)
            if message is not None and message.error() is None and message.partition() == 0:
                found.append(message.offset())
            return bool(found)

        eventually(has_read)
        assert found[0] >= first
        consumer.commit(offsets=[TopicPartition(DELETED, 0, found[0] + 1)], asynchronous=False)
        consumer.close()
        assert self.committed(group)[0] == found[0] + 1

    def _go_on_in_java(self, group: str) -> None:
        """librdkafka has not the consumer protocol of Kafka 3.9, where it was in preview."""
        before = self.committed(group)
        words = ["--bootstrap-server", self.address, "--topic", DELETED, "--group", group, "--from-beginning"]
        words += ["--consumer-property", "group.protocol=consumer", "--max-messages", "1"]
        words += ["--timeout-ms", f"{TIMEOUT_S * 1000}"]
        done = self.peer.java("org.apache.kafka.tools.consumer.ConsoleConsumer", *words)
        assert done.returncode == 0, done.stdout + done.stderr
        moved = [new for old, new in zip(before, self.committed(group), strict=True) if new > max(old, 0)]
        assert len(moved) == 1

    def error_of_alice(self, topic: str) -> str | None:
        """What a user who logs in with the old password hears about a record."""
        heard: list[KafkaError | None] = []
        login = {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.username": "alice",
            "sasl.password": "old-secret",
        }
        producer = Producer({"bootstrap.servers": self.sasl_address, **login, **QUIET})
        producer.produce(topic, b"from alice", partition=0, on_delivery=lambda error, _: heard.append(error))
        assert producer.flush(TIMEOUT_S) == 0
        return None if heard[0] is None else heard[0].name()

    def shared(self, count: int) -> list[str]:
        """What the next records are that a share group gets."""
        words = ["--bootstrap-server", self.address, "--topic", MOVED, "--group", SHARE]
        words += ["--max-messages", f"{count}", "--timeout-ms", f"{TIMEOUT_S * 1000}"]
        done = self.peer.java("org.apache.kafka.tools.consumer.ConsoleShareConsumer", *words)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.decode().split()
