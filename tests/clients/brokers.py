"""The brokers for the tests with clients: klog, and Kafka 3.9, which shows that the tests are right."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import pytest

import klog.testing
from klog.testing.topics import create_topic
from tests.peers import KafkaPeer, KRaftBroker, ZooKeeperBroker

CONFIG: Mapping[str, str | int] = {
    "num.partitions": 2,
    "log.retention.ms": -1,
    "message.max.bytes": 1_000_000,
    "group.initial.rebalance.delay.ms": 0,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 500,
}


class Broker(Protocol):
    """What the tests need of a broker."""

    bootstrap_servers: str
    log_dirs: Sequence[Path]

    def create_topic(self, topic: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        """Returns when the topic can be written to."""

    def partition_dir(self, topic: str, partition: int = 0) -> Path: ...

    def log_text(self) -> str: ...


class _Kafka:
    """Real Kafka, with the same configs."""

    def __init__(self, broker: ZooKeeperBroker, log_dirs: Sequence[Path]) -> None:
        self._log_path = broker.log_path
        self.bootstrap_servers = broker.bootstrap
        self.log_dirs = log_dirs

    def create_topic(self, topic, partitions=1, config=None) -> None:
        create_topic(self.bootstrap_servers, topic, partitions, config or {})

    def partition_dir(self, topic, partition=0) -> Path:
        (found,) = (path for each in self.log_dirs if (path := each / f"{topic}-{partition}").is_dir())
        return found

    def log_text(self) -> str:
        return self._log_path.read_text("utf-8", "replace")


@contextmanager
def klog_broker(config: Mapping[str, str | int] | None = None) -> Iterator[Broker]:
    """klog, with two log directories."""
    with klog.testing.broker({**CONFIG, **(config or {})}, log_dir_count=2) as process:
        yield process


@contextmanager
def kafka_broker(
    peer: KafkaPeer, work: Path, config: Mapping[str, str | int] | None = None
) -> Iterator[Broker]:
    """Kafka of the peer's version, with two log directories."""
    log_dirs = [work / "log-dir-0", work / "log-dir-1"]
    given = {**CONFIG, **(config or {}), "log.dirs": ",".join(map(str, log_dirs))}
    with ZooKeeperBroker(work, given, peer) as broker:
        yield _Kafka(broker, log_dirs)


@contextmanager
def klog_or_kafka4(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, config: Mapping[str, str | int]
) -> Iterator[str]:
    """The address of klog or of Kafka 4, as the fixture's parameter says ("klog", "kafka4")."""
    if request.param == "klog":
        with klog_broker(config) as broker:
            yield broker.bootstrap_servers
        return
    peer = request.getfixturevalue("kafka4")
    with KRaftBroker(tmp_path_factory.mktemp("kafka4"), config, peer) as kafka:
        yield kafka.bootstrap
