"""Transactions: unmodified clients commit, abort, are fenced, time out, and read what they may see."""

from __future__ import annotations

import functools
import itertools
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.clients.python_clients import CLIENTS, ConfluentKafka, Sent
from tests.clients.transactors import TIMEOUT_S, TRANSACTORS, ConfluentTransactor, JavaTransactors, Transactor
from tests.waiting import eventually

# A busy machine needs many times the usual few seconds.
COPIED_WITHIN_S = 120

_numbers = itertools.count()

Begin = Callable[..., Transactor]


JAVA = [pytest.param(name, marks=pytest.mark.kafka) for name in ("java-3", "java-4")]


@pytest.fixture(scope="module")
def java_of(request) -> Iterator[Callable[[str], JavaTransactors]]:
    """The Java process of a version, started on first use."""
    with ExitStack() as closing:

        @functools.cache
        def start(name: str) -> JavaTransactors:
            peer = request.getfixturevalue(name.replace("java-", "kafka"))
            return closing.enter_context(JavaTransactors(peer))

        yield start


@pytest.fixture(params=[*TRANSACTORS, *JAVA])
def begin(request, broker, java_of) -> Iterator[Begin]:
    """Makes a producer of each client in turn, with an open transaction."""
    java = request.param.startswith("java")
    new = java_of(request.param).make if java else TRANSACTORS[request.param]
    with ExitStack() as closing:

        def make(transactional_id: str | None = None, **options: object) -> Transactor:
            producer = new(broker.bootstrap_servers, transactional_id or new_name("transaction"), **options)
            closing.callback(close, producer)
            producer.begin()
            return producer

        yield make


def close(producer: Transactor) -> None:
    with suppress(producer.refused):  # it may have been fenced
        producer.close()


def new_name(kind: str) -> str:
    return f"{kind}-{next(_numbers)}"


def values(broker, topic: str, *, committed: bool = True, partition: int = 0) -> list[bytes | None]:
    """What every client reads of a partition; they all read the same."""
    isolation = "read_committed" if committed else "read_uncommitted"
    found = {
        name: [
            one.value
            for one in make(broker.bootstrap_servers).read(topic, isolation=isolation, partition=partition)
        ]
        for name, make in CLIENTS.items()
    }
    assert len({tuple(each) for each in found.values()}) == 1, found
    return found["confluent-kafka"]


def await_values(broker, topic: str, *expected: bytes) -> None:
    """Markers are written after the commit is answered: wait until they are."""
    reader = ConfluentKafka(broker.bootstrap_servers)

    def read() -> list[bytes | None]:
        return [one.value for one in reader.read(topic, isolation="read_committed")]

    eventually(lambda: read() == [*expected])
    assert values(broker, topic) == [*expected]


def offset_of(broker, group: str, key: tuple[str, int]) -> int | None:
    """The committed offset that administrators see."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    wanted = ConsumerGroupTopicPartitions(group, [TopicPartition(*key)])
    (found,) = admin.list_consumer_group_offsets([wanted])[group].result().topic_partitions
    return found.offset if found.offset >= 0 else None


def test_a_transaction_is_seen_when_it_is_committed(broker, new_topic, begin: Begin) -> None:
    topic = new_topic(2)
    producer = begin()
    producer.send(topic, b"a")
    producer.send(topic, b"b", partition=1)
    assert values(broker, topic) == values(broker, topic, partition=1) == []
    assert values(broker, topic, committed=False) == [b"a"]
    producer.commit()
    await_values(broker, topic, b"a")
    eventually(lambda: values(broker, topic, partition=1) == [b"b"])


def test_an_aborted_transaction_is_never_seen(broker, new_topic, begin: Begin) -> None:
    topic = new_topic()
    producer = begin()
    producer.send(topic, b"aborted")
    producer.abort()
    producer.begin()
    producer.send(topic, b"committed")
    producer.commit()
    await_values(broker, topic, b"committed")
    assert values(broker, topic, committed=False) == [b"aborted", b"committed"]


def test_many_transactions_of_one_producer(broker, new_topic, begin: Begin) -> None:
    topic = new_topic()
    producer = begin()
    for number in range(20):
        if number:
            producer.begin()
        producer.send(topic, b"%d" % number)
        if number % 3:
            producer.commit()
        else:
            producer.abort()
    await_values(broker, topic, *(b"%d" % number for number in range(20) if number % 3))


def test_an_open_transaction_holds_back_what_was_written_after_it(broker, new_topic, begin: Begin) -> None:
    topic = new_topic()
    first = begin()
    first.send(topic, b"open")
    ConfluentKafka(broker.bootstrap_servers).write(topic, [Sent(b"plain")])
    second = begin()
    second.send(topic, b"later")
    second.commit()
    assert values(broker, topic) == []
    assert values(broker, topic, committed=False) == [b"open", b"plain", b"later"]
    first.abort()
    await_values(broker, topic, b"plain", b"later")


def test_a_new_producer_fences_the_old_one_and_aborts_its_transaction(
    broker, new_topic, begin: Begin
) -> None:
    topic, transactional_id = new_topic(), new_name("fenced")
    old = begin(transactional_id)
    old.send(topic, b"old")
    new = begin(transactional_id)
    with pytest.raises(old.refused):
        old.commit()
    new.send(topic, b"new")
    new.commit()
    await_values(broker, topic, b"new")


def test_a_transaction_that_takes_too_long_is_aborted(broker, new_topic, begin: Begin) -> None:
    topic = new_topic()
    slow = begin(timeout_ms=5_000)
    slow.send(topic, b"slow")
    ConfluentKafka(broker.bootstrap_servers).write(topic, [Sent(b"plain")])
    await_values(broker, topic, b"plain")
    with pytest.raises(slow.refused):
        slow.commit()
    assert values(broker, topic) == [b"plain"]


def test_a_timeout_beyond_the_brokers_limit_is_refused(broker) -> None:
    with pytest.raises(KafkaException, match="INVALID_TRANSACTION_TIMEOUT"):
        ConfluentTransactor(broker.bootstrap_servers, new_name("long"), timeout_ms=900_001)


def test_offsets_are_committed_with_the_transaction(broker, new_topic, begin: Begin) -> None:
    topic, group = new_topic(), new_name("group")
    key = (topic, 0)
    producer = begin()
    producer.send(topic, b"a")
    producer.send_offsets({key: 5}, group)
    assert offset_of(broker, group, key) is None
    producer.commit()
    eventually(lambda: offset_of(broker, group, key) == 5)
    producer.begin()
    producer.send(topic, b"b")
    producer.send_offsets({key: 6}, group)
    producer.abort()
    await_values(broker, topic, b"a")
    assert offset_of(broker, group, key) == 5
    producer.begin()
    producer.send_offsets({key: 7}, group)
    producer.commit()
    eventually(lambda: offset_of(broker, group, key) == 7)


class Copier:
    """Copies from one topic to another in transactions, with its offsets: each record exactly once.

    It aborts every fourth transaction, and starts anew from the offsets that count.
    """

    def __init__(self, broker, source: str, target: str, group: str) -> None:
        self.failure: BaseException | None = None
        self.stop = threading.Event()
        self._servers = broker.bootstrap_servers
        self._topics = source, target
        self._group = group
        self._producer = ConfluentTransactor(self._servers, new_name("copier")).producer
        self._thread = threading.Thread(target=self._guarded, daemon=True)
        self._thread.start()

    def _guarded(self) -> None:
        try:
            turns = itertools.count(1)
            while not self.stop.is_set():
                self._copy(turns)
        except BaseException as failure:
            self.failure = failure

    def _copy(self, turns: Iterator[int]) -> None:
        """Until a transaction fails: then the consumer begins at its committed offsets."""
        source, _ = self._topics
        consumer = Consumer(
            {
                "bootstrap.servers": self._servers,
                "group.id": self._group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "session.timeout.ms": 10_000,
            }
        )
        consumer.subscribe([source])
        try:
            while not self.stop.is_set():
                messages = [each for each in consumer.consume(7, 0.2) if each.error() is None]
                if messages and not self._transact(consumer, messages, fails=next(turns) % 4 == 0):
                    return
        finally:
            consumer.close()

    def _transact(self, consumer: Consumer, messages, *, fails: bool) -> bool:
        _, target = self._topics
        self._producer.begin_transaction()
        try:
            for message in messages:
                self._producer.produce(target, message.value(), partition=message.partition())
            positions = consumer.position(consumer.assignment())
            self._producer.send_offsets_to_transaction(
                positions, consumer.consumer_group_metadata(), TIMEOUT_S
            )
            if fails:
                self._producer.abort_transaction(TIMEOUT_S)
                return False
            self._producer.commit_transaction(TIMEOUT_S)
        except KafkaException as failed:
            if not (failed.args[0].txn_requires_abort() or failed.args[0].retriable()):
                raise
            # There was a rebalance, for instance.
            self._producer.abort_transaction(TIMEOUT_S)
            return False
        return True

    def close(self) -> None:
        self.stop.set()
        self._thread.join(TIMEOUT_S)
        assert not self._thread.is_alive()
        if self.failure is not None:
            raise self.failure


def test_what_is_copied_in_transactions_is_copied_exactly_once(broker, new_topic) -> None:
    source, target, group = new_topic(2), new_topic(2), new_name("copiers")
    count = 60
    writer = ConfluentKafka(broker.bootstrap_servers)
    wanted = Counter()
    for partition in range(2):
        records = [b"%d:%d" % (partition, number) for number in range(count)]
        writer.write(source, [Sent(each) for each in records], partition=partition)
        wanted.update(records)

    def copied() -> Counter:
        return Counter(
            one.value
            for partition in range(2)
            for one in writer.read(target, partition=partition, isolation="read_committed")
        )

    copiers = [Copier(broker, source, target, group)]
    eventually(lambda: copiers[0].failure or copied(), COPIED_WITHIN_S)
    copiers.append(Copier(broker, source, target, group))
    eventually(
        lambda: any(each.failure for each in copiers) or copied().total() >= wanted.total(), COPIED_WITHIN_S
    )
    for each in copiers:
        each.close()
    assert copied() == wanted
    # The marker in the offsets topic may be the last.
    eventually(lambda: {offset_of(broker, group, (source, each)) for each in range(2)} == {count})
