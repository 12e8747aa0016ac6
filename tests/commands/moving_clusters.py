"""Clusters of three brokers of each kind, for tests of commands that move replicas.

Each broker has two log directories.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka.admin import AdminClient, BrokerMetadata, TopicMetadata

import klog.testing
from tests.cluster.members import Kind
from tests.commands.three_brokers import await_all_known, three_brokers
from tests.peers import KRaftBroker
from tests.peers.broker import Config, free_port, new_cluster_id
from tests.peers.kafka import KafkaPeer
from tests.waiting import eventually

# With a low rate one fetch goes through, and no other one for as long as the windows last.
_REPLICATED: Config = {
    "default.replication.factor": 3,
    "offsets.topic.replication.factor": 3,
    "replication.quota.window.num": 120,
}


def _log_dirs(work: Path) -> str:
    return ",".join(str(work / name) for name in ("a", "b"))


@contextmanager
def _kafka3(request: pytest.FixtureRequest, work: Path) -> Iterator[str]:
    peer: KafkaPeer = request.getfixturevalue("kafka3")
    with three_brokers(Kind.KAFKA, peer, work, _REPLICATED) as brokers:
        yield brokers.bootstrap


class _Member(KRaftBroker):
    """A broker of a cluster of several, of which the first is the controller, too."""

    @property
    def bootstrap(self) -> str:
        return str(self.config["listeners"]).partition(",")[0].removeprefix("PLAINTEXT://")


@contextmanager
def kraft_brokers(peer: KafkaPeer, work: Path, count: int, more: Config) -> Iterator[list[KRaftBroker]]:
    """Brokers 0, 1 and so on of one cluster of Kafka 4, which all know each other."""
    cluster_id = new_cluster_id()
    with ExitStack() as stack:
        brokers: list[KRaftBroker] = []
        for number in range(count):
            own = work / str(number)
            config = {**more, "node.id": number, "log.dirs": _log_dirs(own)}
            port, controller = free_port(), free_port()
            if brokers:
                config |= {
                    "process.roles": "broker",
                    "controller.quorum.voters": brokers[0].config["controller.quorum.voters"],
                    "listeners": f"PLAINTEXT://127.0.0.1:{port}",
                }
            else:
                config |= {
                    "controller.quorum.voters": f"0@127.0.0.1:{controller}",
                    "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
                }
            brokers.append(stack.enter_context(_Member(own, config, peer, cluster_id=cluster_id)))
        await_all_known([int(each.bootstrap.rpartition(":")[2]) for each in brokers])
        yield brokers


@contextmanager
def _kafka4(request: pytest.FixtureRequest, work: Path) -> Iterator[str]:
    with kraft_brokers(request.getfixturevalue("kafka4"), work, 3, _REPLICATED) as brokers:
        yield ",".join(each.bootstrap for each in brokers)


@contextmanager
def _klog(request: pytest.FixtureRequest, work: Path) -> Iterator[str]:
    with klog.testing.cluster(3, {**_REPLICATED, "log.retention.ms": -1}, log_dir_count=2) as cluster:
        cluster.await_members()
        yield cluster.bootstrap_servers


STARTERS: dict[str, Callable] = {"klog": _klog, "kafka3": _kafka3, "kafka4": _kafka4}
"""How to start a cluster of each kind; it yields `host:port,host:port,host:port`. The ids are 0, 1 and 2."""

KINDS: Final = [pytest.param(kind, marks=() if kind == "klog" else pytest.mark.kafka) for kind in STARTERS]


def on_every_broker(cluster: str, holds: Callable[[TopicMetadata], bool], topic: str) -> None:
    """Wait until the metadata of a topic is as it must be on every broker: a tool may ask any of them."""

    def on_one(broker: BrokerMetadata) -> bool:
        admin = AdminClient({"bootstrap.servers": f"{broker.host}:{broker.port}"})
        return holds(admin.list_topics(topic, timeout=60).topics[topic])

    brokers = AdminClient({"bootstrap.servers": cluster}).list_topics(timeout=60).brokers.values()
    eventually(lambda: all(map(on_one, brokers)))


def await_replicas(cluster: str, topic: str, *replicas: Sequence[int]) -> None:
    """Wait until every broker knows that the partitions have these replicas, in any order."""

    def holds(found: TopicMetadata) -> bool:
        return {number: {*each.replicas} for number, each in found.partitions.items()} == {
            number: {*each} for number, each in enumerate(replicas)
        }

    on_every_broker(cluster, holds, topic)
