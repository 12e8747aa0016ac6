"""The clients that play against a broker: each has a thread, and keeps the history of what it did and saw.

They are librdkafka's, unmodified. A client that meets an error which it cannot go on from is closed, and a
new one takes its place, as an application would be restarted.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from tests.checker.histories import (
    Acknowledged,
    Commit,
    Observed,
    Outcome,
    Partition,
    RecordId,
    Transaction,
    Wait,
)
from tests.threads import join, started

INPUT: Final = "in"
OUTPUT: Final = "out"
INPUT_PARTITIONS: Final = 4
OUTPUT_PARTITIONS: Final = 3
SESSION_MS: Final = 6_000
TRANSACTION_TIMEOUT_MS: Final = 10_000
# An answer must come within this time of the broker's own, kills apart.
_CALL_TIMEOUT_S: Final = 60
# A call that has no answer by then, broker up or not, is given up with its client.
_HANGS_AFTER_S: Final = 15
# A proxy that cuts connections lets no large answer through.
_SMALL_FETCHES: Final = {"max.partition.fetch.bytes": 20_000}
_QUIET: Final = {"log_level": 0, "error_cb": lambda error: None, "reconnect.backoff.max.ms": 200}


def value_of(record: RecordId) -> bytes:
    return f"{record.producer}/{record.number}".encode()


def record_of(value: bytes) -> RecordId:
    producer, _, number = value.decode().rpartition("/")
    return RecordId(producer, int(number))


class HangingClientError(Exception):
    """A client's call has not returned in time."""


def in_time(call: Callable[[], object]) -> None:
    """Make a call that may never return: librdkafka waits for a coordinator that was killed without a limit
    of time (its issues 5456 and 5511). Raises `HangingClientError`, and what the call raises.
    """
    raised: list[BaseException] = []

    def guarded() -> None:
        try:
            call()
        except BaseException as error:
            raised.append(error)

    thread = started(guarded)
    thread.join(_HANGS_AFTER_S)
    if thread.is_alive():
        raise HangingClientError
    if raised:
        raise raised[0]


class Player:
    """A client in a thread of its own. `failure` is what ended it before its time."""

    def __init__(self, bootstrap: str, name: str, seed: int) -> None:
        self.name = name
        self.waits: list[Wait] = []
        self.failure: BaseException | None = None
        self._bootstrap = bootstrap
        self._chance = random.Random(f"{name}/{seed}")
        self._ending = threading.Event()
        self._thread = started(self._guarded)

    def _guarded(self) -> None:
        try:
            while not self._ending.is_set():
                self.play()
        except BaseException as failure:
            self.failure = failure

    def play(self) -> None:
        """Plays until it is to end or until its client cannot go on."""
        raise NotImplementedError

    def end(self) -> None:
        self._ending.set()

    def joined(self) -> None:
        join([self._thread])
        if self.failure is not None:
            raise self.failure

    def _config(self, **more: Any) -> dict[str, Any]:
        return {"bootstrap.servers": self._bootstrap, **_QUIET, **more}

    def _timed(self, what: str, call: Callable[[], object]) -> None:
        started_s = time.monotonic()
        try:
            call()
        finally:
            self.waits.append(Wait(self.name, what, started_s, time.monotonic()))


class IdempotentProducer(Player):
    """Writes numbered records to all partitions of the input; at the end it waits for the last answer.

    A Kafka broker that was killed remembers the last batch of each producer in its snapshot. If several were
    under way, a repeated one that is not the last is out of order, which ends the producer. Another one takes
    its place, which has a name of its own. klog remembers five.
    """

    def __init__(self, bootstrap: str, name: str, seed: int) -> None:
        self.acknowledged: list[Acknowledged] = []
        self.refused: list[str] = []
        self.ended_by_errors = 0
        super().__init__(bootstrap, name, seed)

    def play(self) -> None:
        producer = Producer(
            self._config(
                **{"enable.idempotence": True, "linger.ms": 2, "message.timeout.ms": 0, "acks": "all"},
                **{"batch.num.messages": self._chance.choice((1, 7, 50))},
                **{"max.in.flight.requests.per.connection": self._chance.choice((1, 5))},
            )
        )
        try:
            self._write(producer, f"{self.name}.{self.ended_by_errors}")
        except KafkaException as error:
            if not error.args[0].fatal():
                raise
            self.ended_by_errors += 1
            producer.purge()
            producer.flush(1)

    def _write(self, producer: Producer, name: str) -> None:
        number = 0
        while not self._ending.is_set():
            for _ in range(self._chance.randint(1, 20)):
                partition = self._chance.randrange(INPUT_PARTITIONS)
                value = value_of(RecordId(name, number))
                producer.produce(INPUT, value, partition=partition, on_delivery=self._delivered)
                number += 1
            # As fast on every machine: a poll returns early if there is anything to report.
            self._ending.wait(self._chance.uniform(0.01, 0.1))
            producer.poll(0)
            while len(producer) > 1_000 and not self._ending.is_set():
                producer.poll(0.1)
        self._timed("the last acknowledgements", lambda: producer.flush(2 * _CALL_TIMEOUT_S))
        assert len(producer) == 0, f"{name}: {len(producer)} records were never acknowledged"

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.refused.append(error.str())
            return
        partition = message.topic(), message.partition()
        self.acknowledged.append(Acknowledged(record_of(message.value()), partition, message.offset()))


class Reader(Player):
    """A member of a group: reads the input, and commits by hand what it has read of what it holds."""

    def __init__(self, bootstrap: str, name: str, seed: int, group: str) -> None:
        self.read: dict[Partition, set[int]] = {}
        self.commits: list[Commit] = []
        self._group = group
        super().__init__(bootstrap, name, seed)

    def play(self) -> None:
        consumer = Consumer(
            self._config(
                **{"group.id": self._group, "enable.auto.commit": False, "auto.offset.reset": "earliest"},
                **{"session.timeout.ms": SESSION_MS, "heartbeat.interval.ms": 300, "fetch.wait.max.ms": 50},
                **_SMALL_FETCHES,
            )
        )
        consumer.subscribe([INPUT])
        rounds = self._chance.randint(30, 150)
        try:
            while rounds and not self._ending.is_set():
                rounds -= 1
                self._read(consumer)
        finally:
            consumer.close()

    def _read(self, consumer: Consumer) -> None:
        ends: dict[Partition, int] = {}
        for message in consumer.consume(200, 0.1):
            if message.error() is None:
                partition = message.topic(), message.partition()
                self.read.setdefault(partition, set()).add(message.offset())
                ends[partition] = message.offset() + 1
        if ends:
            self._commit(consumer, ends)

    def _commit(self, consumer: Consumer, ends: dict[Partition, int]) -> None:
        started_s = time.monotonic()
        ended_s: float | None = None
        offsets = [TopicPartition(*partition, end) for partition, end in ends.items()]
        with suppress(KafkaException):
            answers = consumer.commit(offsets=offsets, asynchronous=False)
            if all(each.error is None for each in answers):
                ended_s = time.monotonic()
        self.commits += (Commit(partition, end, started_s, ended_s) for partition, end in ends.items())


class Observer(Player):
    """Fetches the committed offsets of a group again and again, without being a member."""

    def __init__(self, bootstrap: str, name: str, seed: int, group: str, *, stable: bool = False) -> None:
        self.observed: list[Observed] = []
        self._group = group
        self._stable = stable
        super().__init__(bootstrap, name, seed)

    def play(self) -> None:
        consumer = Consumer(self._config(**{"group.id": self._group, "enable.auto.commit": False}))
        try:
            while not self._ending.wait(self._chance.uniform(0.02, 0.2)):
                with suppress(KafkaException):
                    self._observe(consumer)
        finally:
            consumer.close()

    def _observe(self, consumer: Consumer) -> None:
        partitions = [TopicPartition(INPUT, number) for number in range(INPUT_PARTITIONS)]
        started_s = time.monotonic()
        found = consumer.committed(partitions, timeout=5)
        ended_s = time.monotonic()
        for each in found:
            if each.error is None:
                offset = max(each.offset, 0)  # a negative one says that there is none
                self.observed.append(Observed((each.topic, each.partition), offset, started_s, ended_s))


class Transformer(Player):
    """A member of a group that writes what it reads to the output, in transactions with its offsets."""

    def __init__(self, bootstrap: str, name: str, seed: int, group: str) -> None:
        self.transactions: list[Transaction] = []
        self._group = group
        self._number = 0
        super().__init__(bootstrap, name, seed)

    def play(self) -> None:
        producer = Producer(
            self._config(
                **{"transactional.id": self.name, "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS},
                **{"linger.ms": 1},
            )
        )
        consumer = Consumer(
            self._config(
                **{"group.id": self._group, "enable.auto.commit": False, "auto.offset.reset": "earliest"},
                **{"session.timeout.ms": SESSION_MS, "heartbeat.interval.ms": 300, "fetch.wait.max.ms": 50},
                **_SMALL_FETCHES,
                **{"isolation.level": "read_committed"},
            )
        )
        try:
            self._timed("its producer id", lambda: producer.init_transactions(_CALL_TIMEOUT_S))
            consumer.subscribe([INPUT])
            for _ in range(self._chance.randint(20, 80)):
                if self._ending.is_set():
                    return
                messages = [each for each in consumer.consume(40, 0.1) if each.error() is None]
                if messages and not self._transform(producer, consumer, messages):
                    return
        except (KafkaException, HangingClientError):
            return  # its client cannot go on; the next one fences it
        finally:
            consumer.close()

    def _transform(self, producer: Producer, consumer: Consumer, messages: Sequence[Message]) -> bool:
        """One transaction. False says that the clients cannot go on: an abort leaves wrong positions."""
        inputs: dict[Partition, tuple[int, int]] = {}
        records = []
        for message in messages:
            partition = message.topic(), message.partition()
            start, _ = inputs.get(partition, (message.offset(), 0))
            inputs[partition] = start, message.offset() + 1
            records += [RecordId(self.name, self._number), RecordId(self.name, self._number + 1)]
            self._number += 2
        name = f"{self.name} {len(self.transactions)}"
        outcome = Outcome.UNKNOWN
        try:
            producer.begin_transaction()
            for record in records:
                partition = record.number % OUTPUT_PARTITIONS
                producer.produce(OUTPUT, value_of(record), partition=partition)
            if self._chance.random() < 0.1:
                self._timed("its abort", lambda: producer.abort_transaction(_CALL_TIMEOUT_S))
                outcome = Outcome.ABORTED
            else:
                self._commit(producer, consumer, inputs)
                outcome = Outcome.COMMITTED
        finally:
            self.transactions.append(Transaction(name, records, inputs, outcome))
        return outcome is Outcome.COMMITTED

    def _commit(
        self, producer: Producer, consumer: Consumer, inputs: dict[Partition, tuple[int, int]]
    ) -> None:
        offsets = [TopicPartition(*partition, end) for partition, (_, end) in inputs.items()]
        group = consumer.consumer_group_metadata()
        in_time(lambda: producer.send_offsets_to_transaction(offsets, group, _HANGS_AFTER_S))
        self._timed("its commit", lambda: producer.commit_transaction(_CALL_TIMEOUT_S))
