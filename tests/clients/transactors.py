"""One interface for the transactional producers of confluent-kafka, kafka-python, aiokafka and Java.

A new `Transactor` has initialised its transactional id: it has fenced the older producers with this id.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

import aiokafka
import confluent_kafka
import kafka

from tests.peers.java_server import JavaServer
from tests.peers.kafka import QUICK_FLAGS, KafkaPeer

TIMEOUT_S = 60
Offsets = Mapping[tuple[str, int], int]


class Transactor(Protocol):
    """A transactional producer. `refused` is what its methods raise when it has been fenced."""

    refused: type[Exception]

    def begin(self) -> None: ...

    def send(self, topic: str, value: bytes, partition: int = 0) -> None:
        """Returns when the record is written."""

    def send_offsets(self, offsets: Offsets, group: str) -> None: ...

    def commit(self) -> None: ...

    def abort(self) -> None: ...

    def close(self) -> None: ...


class ConfluentTransactor:
    """librdkafka."""

    refused = confluent_kafka.KafkaException

    def __init__(self, servers: str, transactional_id: str, timeout_ms: int = 60_000) -> None:
        self._servers = servers
        self.producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": servers,
                "transactional.id": transactional_id,
                "transaction.timeout.ms": timeout_ms,
                "log_level": 0,
                "error_cb": lambda error: None,
            }
        )
        self.producer.init_transactions(TIMEOUT_S)

    def begin(self) -> None:
        self.producer.begin_transaction()

    def send(self, topic: str, value: bytes, partition: int = 0) -> None:
        errors: list[Any] = []
        self.producer.produce(topic, value, partition=partition, on_delivery=lambda e, _: errors.append(e))
        assert self.producer.flush(TIMEOUT_S) == 0
        if errors != [None]:
            raise confluent_kafka.KafkaException(errors[0])

    def send_offsets(self, offsets: Offsets, group: str) -> None:
        consumer = confluent_kafka.Consumer({"bootstrap.servers": self._servers, "group.id": group})
        positions = [confluent_kafka.TopicPartition(*key, offset) for key, offset in offsets.items()]
        self.producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), TIMEOUT_S)
        consumer.close()

    def commit(self) -> None:
        self.producer.commit_transaction(TIMEOUT_S)

    def abort(self) -> None:
        self.producer.abort_transaction(TIMEOUT_S)

    def close(self) -> None:
        with suppress(confluent_kafka.KafkaException):  # the transaction may be over
            self.producer.abort_transaction(TIMEOUT_S)


class KafkaPythonTransactor:
    """kafka-python."""

    refused = kafka.errors.KafkaError

    def __init__(self, servers: str, transactional_id: str, timeout_ms: int = 60_000) -> None:
        self.producer = kafka.KafkaProducer(
            bootstrap_servers=servers, transactional_id=transactional_id, transaction_timeout_ms=timeout_ms
        )
        self.producer.init_transactions()

    def begin(self) -> None:
        self.producer.begin_transaction()

    def send(self, topic: str, value: bytes, partition: int = 0) -> None:
        self.producer.send(topic, value, partition=partition).get(TIMEOUT_S)

    def send_offsets(self, offsets: Offsets, group: str) -> None:
        positions = {
            kafka.TopicPartition(*key): kafka.OffsetAndMetadata(offset, "", -1)
            for key, offset in offsets.items()
        }
        self.producer.send_offsets_to_transaction(positions, group)

    def commit(self) -> None:
        self.producer.commit_transaction()

    def abort(self) -> None:
        self.producer.abort_transaction()

    def close(self) -> None:
        self.producer.close(timeout=TIMEOUT_S)


class AioKafkaTransactor:
    """aiokafka, whose loop runs during calls only."""

    refused = aiokafka.errors.KafkaError

    def __init__(self, servers: str, transactional_id: str, timeout_ms: int = 60_000) -> None:
        self._loop = asyncio.new_event_loop()
        self._run(self._start(servers, transactional_id, timeout_ms))

    async def _start(self, servers: str, transactional_id: str, timeout_ms: int) -> None:
        self.producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=servers, transactional_id=transactional_id, transaction_timeout_ms=timeout_ms
        )
        await self.producer.start()

    def _run(self, what: Any) -> None:
        self._loop.run_until_complete(asyncio.wait_for(what, TIMEOUT_S))

    def begin(self) -> None:
        self._run(self.producer.begin_transaction())

    def send(self, topic: str, value: bytes, partition: int = 0) -> None:
        self._run(self.producer.send_and_wait(topic, value, partition=partition))

    def send_offsets(self, offsets: Offsets, group: str) -> None:
        positions = {aiokafka.TopicPartition(*key): offset for key, offset in offsets.items()}
        self._run(self.producer.send_offsets_to_transaction(positions, group))

    def commit(self) -> None:
        self._run(self.producer.commit_transaction())

    def abort(self) -> None:
        self._run(self.producer.abort_transaction())

    def close(self) -> None:
        self._run(self.producer.stop())
        self._loop.close()


class JavaRefusedError(Exception):
    """What a Java producer has thrown."""


class JavaTransactors(JavaServer):
    """A JVM whose producers do what they are told. `make` makes one."""

    def __init__(self, peer: KafkaPeer) -> None:
        super().__init__(peer.command("Transactors", jvm_flags=QUICK_FLAGS))
        self._names = itertools.count()

    def tell(self, *words: object) -> None:
        (answer,) = self.ask(*words)
        if answer != "ok":
            raise JavaRefusedError(answer)

    def make(self, servers: str, transactional_id: str, timeout_ms: int = 60_000) -> Transactor:
        name = str(next(self._names))
        self.tell("new", name, servers, transactional_id, timeout_ms)
        return JavaTransactor(self.tell, name)


@dataclass(frozen=True)
class JavaTransactor:
    """Kafka's own producer."""

    tell: Callable[..., None]
    name: str
    refused: type[Exception] = JavaRefusedError

    def begin(self) -> None:
        self.tell("begin", self.name)

    def send(self, topic: str, value: bytes, partition: int = 0) -> None:
        self.tell("send", self.name, topic, partition, value.decode())

    def send_offsets(self, offsets: Offsets, group: str) -> None:
        for (topic, partition), offset in offsets.items():
            self.tell("offsets", self.name, group, topic, partition, offset)

    def commit(self) -> None:
        self.tell("commit", self.name)

    def abort(self) -> None:
        self.tell("abort", self.name)

    def close(self) -> None:
        self.tell("close", self.name)


TRANSACTORS: dict[str, Callable[..., Transactor]] = {
    "confluent-kafka": ConfluentTransactor,
    "kafka-python": KafkaPythonTransactor,
    "aiokafka": AioKafkaTransactor,
}
