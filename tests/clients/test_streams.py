"""Kafka Streams of version 3.9 counts words while its broker and itself are stopped and killed."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import pytest

from klog.testing.topics import create_topic
from tests.clients import applications
from tests.clients.applications import Application, RestartableBroker, rounds
from tests.clients.python_clients import ConfluentKafka, Sent
from tests.peers.connect_streams import connect_streams_jars, streams_command
from tests.peers.kafka import KafkaPeer

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(3600)]

PARTITIONS = 2
LINES = 200
WORDS = [f"word-{number}" for number in range(12)]


@pytest.fixture(params=["klog", "kafka3"])
def broker(request, tmp_path: Path, kafka3: KafkaPeer) -> Iterator[RestartableBroker]:
    assert connect_streams_jars()
    make = applications.kafka(tmp_path / "broker", kafka3) if request.param == "kafka3" else None
    with make or applications.klog(tmp_path / "broker") as process:
        for topic in ("lines", "counts"):
            create_topic(process.bootstrap, topic, PARTITIONS, {})
        yield process


class WordCount:
    """The program, the lines that were written for it, and the counts that it wrote."""

    def __init__(
        self, broker: RestartableBroker, work: Path, guarantee: str, session_ms: int = 6_000
    ) -> None:
        self._bootstrap = broker.bootstrap
        self._random = random.Random(11)
        self.expected: Counter[str] = Counter()
        configs = {
            "application.id": "word-count",
            "bootstrap.servers": broker.bootstrap,
            "processing.guarantee": guarantee,
            "state.dir": work / "state",
            "num.stream.threads": 2,
            "commit.interval.ms": 100,
            "statestore.cache.max.bytes": 0,
            "consumer.session.timeout.ms": session_ms,
            "consumer.heartbeat.interval.ms": 500,
            "consumer.auto.offset.reset": "earliest",
        }
        settings = [f"{name}={value}" for name, value in configs.items()]
        command = streams_command("WordCount", "lines", "counts", *settings)
        self.program = Application(command, work / "streams.log", work)

    def __enter__(self) -> Self:
        self.program.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self.program.kill()

    def write(self) -> None:
        client = ConfluentKafka(self._bootstrap)
        for partition in range(PARTITIONS):
            words = [self._random.choices(WORDS, k=3) for _ in range(LINES // PARTITIONS)]
            lines = [Sent(" ".join(each).encode()) for each in words]
            client.write("lines", lines, partition=partition, idempotent=True)
            self.expected.update(word for each in words for word in each)

    def counts(self) -> dict[str, list[int]]:
        """The counts of each word in the order of the topic."""
        client, found = ConfluentKafka(self._bootstrap), defaultdict(list)
        for partition in range(PARTITIONS):
            for record in client.read("counts", partition=partition, isolation="read_committed"):
                assert record.key is not None
                assert record.value is not None
                found[record.key.decode()].append(int(record.value))
        return found

    def await_counts(self) -> None:
        def counted() -> bool:
            counts = self.counts()
            return all(max(counts.get(word, [0])) >= self.expected[word] for word in self.expected)

        self.program.await_that(counted)

    def assert_exact(self) -> None:
        """Each record was counted once, and each count was written once, in order."""
        steps = {word: list(range(1, self.expected[word] + 1)) for word in self.expected}
        assert self.counts() == steps


def test_counts_are_exact_when_everything_stops_cleanly(broker, tmp_path: Path) -> None:
    # A session that ends under way would have records counted twice.
    with WordCount(broker, tmp_path, "at_least_once", session_ms=20_000) as words:
        words.write()
        words.await_counts()
        words.program.end_input()
        broker.restart()
        words.write()
        words.program.start()
        words.await_counts()
        words.program.end_input()
        words.assert_exact()


@pytest.mark.parametrize("broker", ["klog"], indirect=True)
def test_every_record_is_counted_when_the_broker_is_killed(broker, tmp_path: Path) -> None:
    with WordCount(broker, tmp_path, "at_least_once") as words:
        for _ in rounds():
            words.write()
            words.await_counts()
            words.write()
            broker.crash()
            words.await_counts()


def test_counts_are_exactly_once_when_program_and_broker_are_killed(broker, tmp_path: Path) -> None:
    with WordCount(broker, tmp_path, "exactly_once_v2") as words:
        for _ in rounds():
            words.write()
            words.await_counts()
            words.write()
            broker.crash()
            words.await_counts()
            words.write()
            words.program.kill()
            words.program.start()
            words.await_counts()
        words.program.end_input()
        words.assert_exact()
