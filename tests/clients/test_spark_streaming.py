"""Spark Structured Streaming with Spark's own Kafka source and sink, while queries and the broker end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from klog.testing.topics import create_topic
from tests.clients import applications
from tests.clients.applications import Application, RestartableBroker, rounds
from tests.clients.python_clients import ConfluentKafka, Sent
from tests.conftest import PEER_SKIP_PREFIX
from tests.peers import PeerUnavailableError
from tests.peers.kafka import KafkaPeer
from tests.peers.spark import spark_command, spark_jars

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(3600)]

PARTITIONS = 2
COUNT = 100


@pytest.fixture(params=["klog", "kafka3"])
def broker(request, tmp_path: Path, kafka3: KafkaPeer) -> Iterator[RestartableBroker]:
    make = applications.kafka(tmp_path / "broker", kafka3) if request.param == "kafka3" else None
    with make or applications.klog(tmp_path / "broker") as process:
        for topic in ("in", "out"):
            create_topic(process.bootstrap, topic, PARTITIONS, {})
        yield process


class Copies:
    """The program that copies topic `in` to topic `out` and that to a table, and what was written to `in`."""

    def __init__(self, broker: RestartableBroker, work: Path) -> None:
        self._bootstrap = broker.bootstrap
        self._work = work
        self.values: list[str] = []
        command = spark_command("CopyTopic", work, broker.bootstrap, work)
        self.program = Application(command, work / "spark.log", work)

    def write(self) -> None:
        client = ConfluentKafka(self._bootstrap)
        for partition in range(PARTITIONS):
            start = len(self.values)
            self.values += (f"value-{number:06}" for number in range(start, start + COUNT))
            records = [Sent(value.encode()) for value in self.values[start:]]
            client.write("in", records, partition=partition, idempotent=True)

    def in_topic(self) -> list[str]:
        client = ConfluentKafka(self._bootstrap)
        records = [each for number in range(PARTITIONS) for each in client.read("out", partition=number)]
        return sorted((record.value or b"").decode() for record in records)

    def await_all(self) -> None:
        """Waits until every value is in `out`."""
        self.program.await_that(lambda: sorted(set(self.in_topic())) == self.values)

    def in_table(self) -> list[str]:
        """The values in the table when the program stopped."""
        return sorted((self._work / "values.txt").read_text().split())


@pytest.fixture
def copies(broker, tmp_path: Path) -> Iterator[Copies]:
    try:
        spark_jars()
    except PeerUnavailableError as missing:
        # These jars are large, so they are nowhere required.
        pytest.skip(f"{PEER_SKIP_PREFIX}: {missing}")
    copying = Copies(broker, tmp_path)
    yield copying
    copying.program.kill()


def test_values_are_copied_exactly_when_queries_and_broker_restart(broker, copies: Copies) -> None:
    copies.write()
    copies.program.start()
    copies.await_all()
    copies.program.end_input()
    broker.restart()
    copies.write()
    copies.program.start()
    copies.await_all()
    copies.program.end_input()
    assert copies.in_topic() == copies.in_table() == copies.values


@pytest.mark.parametrize("broker", ["klog"], indirect=True)
def test_nothing_is_lost_when_the_broker_is_killed_under_queries(broker, copies: Copies) -> None:
    copies.program.start()
    for _ in rounds():
        copies.write()
        broker.crash()
        copies.await_all()
        broker.crash()
        copies.write()
        copies.await_all()
    copies.program.end_input()
    # After a failure Spark's sink may write a batch again. The source and the table are exact.
    assert copies.in_table() == copies.in_topic()
