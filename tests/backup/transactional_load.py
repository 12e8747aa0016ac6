"""Clients that write transactions over several partitions and offsets of groups, and note what they did."""

from __future__ import annotations

import random
import threading
import time
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from tests.checker.players import HangingClientError, in_time

TOPIC = "orders"
PARTITIONS = 5
INPUT = "input"


def now_ms() -> int:
    return int(time.time() * 1000)


@dataclass(slots=True)
class Attempt:
    """The transaction number `number` of a client: a record in each of `partitions`, and its number as the
    offset of the client's group. `ends_ms` is when the client asked to end it, `ended_ms` when it was told
    that it has ended.
    """

    number: int
    partitions: list[int]
    is_commit: bool
    ends_ms: int = 1 << 60
    ended_ms: int = 1 << 60


class Client(threading.Thread):
    """Writes transactions one after the other until it is stopped."""

    def __init__(self, bootstrap: str, name: str, seed: int, timeout_s: int = 30) -> None:
        super().__init__(daemon=True)
        self.timeout_s = timeout_s
        self.bootstrap, self.name, self.seed = bootstrap, name, seed
        self.attempts: list[Attempt] = []
        self.stopping = threading.Event()
        self.failure: Exception | None = None

    def run(self) -> None:
        try:
            self._write()
        except Exception as error:
            self.failure = error

    def stop(self) -> None:
        self.stopping.set()
        self.join()
        if self.failure is not None:
            raise self.failure

    def _write(self) -> None:
        chance = random.Random(self.seed)
        while not self.stopping.is_set():
            self._write_with_new_clients(chance)

    def _write_with_new_clients(self, chance: random.Random) -> None:
        """Until the producer hangs. What it has left open is aborted when the next one begins."""
        address = {"bootstrap.servers": self.bootstrap, "reconnect.backoff.max.ms": 200}
        silent = {"log_level": 0, "error_cb": lambda error: None}
        producer = Producer({**address, **silent, "transactional.id": self.name, "linger.ms": 0})
        consumer = Consumer({**address, **silent, "group.id": self.name})
        producer.init_transactions(self.timeout_s)
        while not self.stopping.is_set():
            chosen = chance.sample(range(PARTITIONS), chance.randint(1, PARTITIONS))
            attempt = Attempt(len(self.attempts) + 1, chosen, chance.random() < 0.75)
            self.attempts.append(attempt)
            producer.begin_transaction()
            try:
                self._play(attempt, producer, consumer, chance)
            except KafkaException as error:
                if not error.args[0].txn_requires_abort():
                    raise
                attempt.is_commit = False
                producer.abort_transaction(self.timeout_s)
            except HangingClientError:
                attempt.is_commit = False
                break
            attempt.ended_ms = now_ms()
        consumer.close()

    def _play(self, attempt: Attempt, producer: Producer, consumer: Consumer, chance: random.Random) -> None:
        for partition in attempt.partitions:
            producer.produce(TOPIC, value=f"{self.name} {attempt.number}", partition=partition)
            if chance.random() < 0.3:
                producer.flush()
        place, group = TopicPartition(INPUT, 0, attempt.number), consumer.consumer_group_metadata()
        in_time(lambda: producer.send_offsets_to_transaction([place], group, self.timeout_s))
        producer.flush()
        time.sleep(chance.random() / 100)
        attempt.ends_ms = now_ms()
        if attempt.is_commit:
            producer.commit_transaction(self.timeout_s)
        else:
            producer.abort_transaction(self.timeout_s)
