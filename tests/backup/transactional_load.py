"""Clients that write transactions over several partitions and offsets of groups, and note what they did."""

from __future__ import annotations

import random
import threading
import time
from dataclasses import dataclass

from confluent_kafka import Consumer, Producer, TopicPartition

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

    def __init__(self, bootstrap: str, name: str, seed: int) -> None:
        super().__init__(daemon=True)
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
        producer = Producer(
            {"bootstrap.servers": self.bootstrap, "transactional.id": self.name, "linger.ms": 0}
        )
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": self.name})
        metadata = consumer.consumer_group_metadata()
        producer.init_transactions(30)
        number = 0
        while not self.stopping.is_set():
            number += 1
            chosen = chance.sample(range(PARTITIONS), chance.randint(1, PARTITIONS))
            attempt = Attempt(number, chosen, chance.random() < 0.75)
            self.attempts.append(attempt)
            producer.begin_transaction()
            for partition in chosen:
                producer.produce(TOPIC, value=f"{self.name} {number}", partition=partition)
                if chance.random() < 0.3:
                    producer.flush()
            producer.send_offsets_to_transaction([TopicPartition(INPUT, 0, number)], metadata)
            producer.flush()
            time.sleep(chance.random() / 100)
            attempt.ends_ms = now_ms()
            if attempt.is_commit:
                producer.commit_transaction(30)
            else:
                producer.abort_transaction(30)
            attempt.ended_ms = now_ms()
        consumer.close()
