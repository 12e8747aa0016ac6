"""Single brokers of three kinds that are killed and started under load, on the same files and ports."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import klog.testing
from tests.cluster.tree import Tree
from tests.peers.broker import Config, KRaftBroker, ZooKeeperBroker, free_port
from tests.peers.zookeeper import ZooKeeperServer
from tests.waiting import eventually

# A run takes what the broker has noted as replicated. Logs are cleaned and shortened all the time.
CONFIG: Final[Config] = {
    "offsets.topic.num.partitions": 3,
    "transaction.state.log.num.partitions": 2,
    "replica.high.watermark.checkpoint.interval.ms": 100,
    "log.cleaner.backoff.ms": 200,
    "log.retention.check.interval.ms": 300,
    "log.retention.ms": -1,
}
_SESSION_MS: Final = 1500


@dataclass(frozen=True)
class BusyBroker:
    """A broker that runs. `start` is for one that was killed."""

    bootstrap: str
    directory: Path
    start: Callable[[], object]
    kill: Callable[[], object]
    stop: Callable[[], object]


class _Kafka:
    """Kafka in a work directory: the newest process there."""

    def __init__(self, make: Callable[[], ZooKeeperBroker | KRaftBroker]) -> None:
        self._make = make
        self._running = make()

    def start(self) -> None:
        self._running = self._make()

    def kill(self) -> None:
        self._running.kill()

    def stop(self) -> None:
        self._running.stop()


@contextmanager
def kafka_3(work: Path) -> Iterator[BusyBroker]:
    """Kafka 3.9 with ZooKeeper."""
    address = f"127.0.0.1:{free_port()}"
    with ZooKeeperServer(work / "zookeeper") as zookeeper, Tree(zookeeper.hosts) as tree:
        config: Mapping[str, str | int] = {
            **CONFIG,
            "listeners": f"PLAINTEXT://{address}",
            "zookeeper.connect": zookeeper.hosts,
            "zookeeper.session.timeout.ms": _SESSION_MS,
        }

        def make() -> ZooKeeperBroker:
            eventually(lambda: not tree.brokers())
            return ZooKeeperBroker(work / "broker", config)

        with _running(address, work / "broker" / "logs", make) as found:
            yield found


@contextmanager
def kafka_4(work: Path) -> Iterator[BusyBroker]:
    """Kafka 4.1, broker and controller in one."""
    address, controller = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    config: Mapping[str, str | int] = {
        **CONFIG,
        "listeners": f"PLAINTEXT://{address},CONTROLLER://{controller}",
        "controller.quorum.voters": f"1@{controller}",
    }
    with _running(address, work / "logs", lambda: KRaftBroker(work, config)) as found:
        yield found


@contextmanager
def _running(
    address: str, directory: Path, make: Callable[[], ZooKeeperBroker | KRaftBroker]
) -> Iterator[BusyBroker]:
    kafka = _Kafka(make)
    try:
        yield BusyBroker(address, directory, kafka.start, kafka.kill, kafka.stop)
    finally:
        kafka.kill()


@contextmanager
def klog_broker(work: Path) -> Iterator[BusyBroker]:
    with klog.testing.broker(dict(CONFIG)) as broker:
        directory = broker.log_dirs[0]
        yield BusyBroker(broker.bootstrap_servers, directory, broker.start, broker.kill, broker.stop)


BROKERS: Final[Mapping[str, Callable[[Path], AbstractContextManager[BusyBroker]]]] = {
    "kafka-3.9": kafka_3,
    "kafka-4.1": kafka_4,
    "klog": klog_broker,
}
