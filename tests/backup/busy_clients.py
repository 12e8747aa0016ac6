"""Clients that write records with keys and commit offsets of a group, and note when they were told what."""

from __future__ import annotations

import random
import threading
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from tests.backup.transactional_load import now_ms

COMPACTED: Final = "compacted"
SHORTENED: Final = "shortened"
"""Its old segments are deleted."""
KEYED: Final = {
    COMPACTED: {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "segment.ms": "500"},
    SHORTENED: {"retention.bytes": "20000", "segment.ms": "500"},
}
GROUP: Final = "readers"
NEVER: Final = 1 << 60
_TIMEOUT_MS: Final = 120_000
_SILENT: Final = {"log_level": 0, "error_cb": lambda error: None, "reconnect.backoff.max.ms": 200}


@dataclass(frozen=True)
class Sent:
    """A record that was acknowledged at an offset."""

    key: str
    value: str
    sent_ms: int
    acknowledged_ms: int


class _Thread(threading.Thread):
    def __init__(self, bootstrap: str, seed: int) -> None:
        super().__init__(daemon=True)
        self.bootstrap = bootstrap
        self.chance = random.Random(seed)
        self.stopping = threading.Event()
        self.failure: Exception | None = None

    def run(self) -> None:
        try:
            self.work()
        except Exception as error:
            self.failure = error

    def work(self) -> None:
        raise NotImplementedError

    def stop(self) -> None:
        self.stopping.set()
        self.join()
        if self.failure is not None:
            raise self.failure


class KeyedWriter(_Thread):
    """An idempotent producer that writes the same into a compacted log and into one that is shortened."""

    def __init__(self, bootstrap: str, seed: int) -> None:
        super().__init__(bootstrap, seed)
        self.sent: dict[str, dict[int, Sent]] = {topic: {} for topic in KEYED}

    def work(self) -> None:
        config = {"enable.idempotence": True, "message.timeout.ms": _TIMEOUT_MS, "linger.ms": 5}
        producer = Producer({"bootstrap.servers": self.bootstrap, **config, **_SILENT})
        number = 0
        while not self.stopping.wait(0.005):
            number += 1
            key, value = f"k{self.chance.randrange(20)}", f"{number} " * self.chance.randrange(1, 60)
            for topic in KEYED:
                report = partial(self._acknowledged, topic, key, value, now_ms())
                producer.produce(topic, value, key, partition=0, on_delivery=report)
            producer.poll(0)
        assert producer.flush(_TIMEOUT_MS / 1000) == 0

    def _acknowledged(
        self, topic: str, key: str, value: str, sent_ms: int, error: KafkaError | None, message: Message
    ) -> None:
        assert error is None, error
        if message.offset() >= 0:  # a repeated request that was in the log already tells none
            self.sent[topic][message.offset()] = Sent(key, value, sent_ms, now_ms())


@dataclass
class Commit:
    """Offset of the group that was asked for, and when the coordinator said that it is there."""

    offset: int
    asked_ms: int
    acknowledged_ms: int = NEVER


@dataclass
class Commits:
    """What all members did, in the order of their requests."""

    all: list[Commit] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def possible(self, at_ms: int) -> set[int]:
        """The offsets that the group may have at a moment: none is older than one acknowledged before it was
        asked for.
        """
        known = [each for each in self.all if each.asked_ms <= at_ms]
        done = [each.asked_ms for each in known if each.acknowledged_ms < at_ms]
        newest_ms = max(done, default=-1)
        return {each.offset for each in known if each.acknowledged_ms >= newest_ms}

    def has_one_before(self, at_ms: int) -> bool:
        return any(each.acknowledged_ms < at_ms for each in self.all)


class Member(_Thread):
    """A member that joins, reads, commits and leaves again and again: the group rebalances."""

    def __init__(self, bootstrap: str, seed: int, commits: Commits) -> None:
        super().__init__(bootstrap, seed)
        self.commits = commits

    def work(self) -> None:
        while not self.stopping.is_set():
            config = {"group.id": GROUP, "auto.offset.reset": "earliest", "enable.auto.commit": False}
            times = {"session.timeout.ms": 6000, "heartbeat.interval.ms": 500}
            consumer = Consumer({"bootstrap.servers": self.bootstrap, **config, **times, **_SILENT})
            consumer.subscribe(list(KEYED))
            for _ in range(self.chance.randrange(20, 60)):
                message = consumer.poll(0.1)
                if message is not None and message.error() is None and message.topic() == SHORTENED:
                    self._commit(consumer, message.offset() + 1)
                if self.stopping.is_set():
                    break
            consumer.close()

    def _commit(self, consumer: Consumer, offset: int) -> None:
        commit = Commit(offset, now_ms())
        with self.commits.lock:
            self.commits.all.append(commit)
        try:
            consumer.commit(offsets=[TopicPartition(SHORTENED, 0, offset)], asynchronous=False)
        except KafkaException:
            return  # the group rebalances, or the answer was lost
        commit.acknowledged_ms = now_ms()
