"""Three brokers on one ZooKeeper: followers copy their leaders' records, and go on where leaders change."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from klog.config.broker import BrokerConfig
from klog.formats.names import TopicPartition
from klog.kernel.batch_builder import RecordData, build_batch
from klog.metadata.topics import create_topic, new_topic_id
from klog.replication.partition import Partition
from klog.server.metrics.broker import BrokerMetrics
from klog.server.startup.broker import Broker
from klog.server.startup.broker_state import BrokerState
from tests.peers.zookeeper import ZooKeeperServer
from tests.replication.fetching.parts import content
from tests.waiting import eventually

pytestmark = pytest.mark.kafka

IDS = (1, 2, 3)
TOPIC = "orders"


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory) -> Iterator[ZooKeeperServer]:
    with ZooKeeperServer(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server


class Cluster:
    """Brokers in this process."""

    def __init__(self, root: Path, zookeeper: ZooKeeperServer) -> None:
        self._root = root
        self._chroot = f"{zookeeper.hosts}/{root.name}"
        self.brokers: dict[int, Broker] = {}

    def start(self, broker_id: int) -> Broker:
        self.brokers[broker_id] = Broker(
            BrokerConfig(
                {
                    "broker.id": str(broker_id),
                    "log.dirs": str(self._root / str(broker_id)),
                    "listeners": "PLAINTEXT://127.0.0.1:0",
                    "zookeeper.connect": self._chroot,
                    "zookeeper.session.timeout.ms": "6000",
                    "zookeeper.connection.timeout.ms": "60000",
                    "replica.fetch.backoff.ms": "100",
                    "num.replica.fetchers": "2",
                    "log.cleaner.enable": "false",
                }
            )
        )
        return self.brokers[broker_id]

    def stop(self, broker_id: int) -> None:
        self.brokers.pop(broker_id).stop()

    def create(self, partitions: int) -> None:
        store = self.brokers[1].store
        assignment = {number: [IDS[(number + each) % 3] for each in range(3)] for number in range(partitions)}
        create_topic(store, TOPIC, new_topic_id(os.urandom), assignment, {}, IDS)
        for number in range(partitions):
            eventually(lambda number=number: len(self.replicas(number)) == len(self.brokers))

    def replicas(self, number: int) -> dict[int, Partition]:
        found = {
            broker_id: broker.replicas.partitions.get(TopicPartition(TOPIC, number))
            for broker_id, broker in self.brokers.items()
        }
        return {broker_id: partition for broker_id, partition in found.items() if partition is not None}

    def leader(self, number: int) -> Partition:
        leaders: list[Partition] = []

        def found() -> bool:
            leaders[:] = [each for each in self.replicas(number).values() if each.state.is_leader]
            return bool(leaders)

        eventually(found)
        return max(leaders, key=lambda each: each.state.leader_epoch)

    def write(self, number: int, count: int) -> None:
        leader = self.leader(number)
        for each in range(count):
            data = build_batch([RecordData(0, 1_700_000_000_000, b"%d" % each, b"v" * 100)])
            leader.append(memoryview(data), 1, 1_700_000_000_000)
            broker = self.brokers[leader.state.leader]
            broker.replicas.appended((TOPIC, number), high_watermark_moved=False)

    def agree(self, number: int) -> bool:
        leader = self.leader(number).log
        return all(
            each.log.log_end_offset == leader.log_end_offset
            and each.log.high_watermark == leader.log_end_offset
            and content(each.log) == content(leader)
            for each in self.replicas(number).values()
        )


@pytest.fixture
def cluster(tmp_path: Path, zookeeper: ZooKeeperServer, caplog) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path, zookeeper)
    for broker_id in IDS:
        cluster.start(broker_id)
    yield cluster
    for broker_id in reversed(list(cluster.brokers)):
        cluster.stop(broker_id)


def metrics_of(broker: Broker) -> str:
    metrics = BrokerMetrics()
    metrics.attach(broker)
    metrics.state_changed(BrokerState.RUNNING)
    return "".join(metrics.text())


def test_metrics_say_how_far_the_copies_are(cluster: Cluster) -> None:
    cluster.create(1)
    cluster.write(0, 10)
    eventually(lambda: cluster.agree(0))
    (follower, *_) = (each for each in IDS if each != cluster.leader(0).state.leader)
    size = len(content(cluster.leader(0).log))
    # The fetchers count after they have appended.
    counted = (
        'kafka_server_replicafetchermanager_maxlag{clientId="Replica"} 0',
        f"kafka_server_brokertopicmetrics_replicationbytesin_total {size}",
    )
    eventually(lambda: all(each in metrics_of(cluster.brokers[follower]) for each in counted))
    text = metrics_of(cluster.brokers[follower])
    assert 'replicafetchermanager_failedpartitionscount{clientId="Replica"} 0' in text
    assert f'topic="{TOPIC}",partition="0"}} 0' in text.partition("fetcherlagmetrics_consumerlag{")[2]
    sent = text.partition("kafka_server_fetcherstats_bytes_total{")[2].partition("\n")[0]
    assert sent.endswith(f" {size}")
    assert 'brokerHost="127.0.0.1"' in sent


def test_followers_copy_and_go_on_after_a_restart(cluster: Cluster) -> None:
    cluster.create(6)
    for number in range(6):
        cluster.write(number, 20)
    for number in range(6):
        eventually(lambda number=number: cluster.agree(number))
    names = {thread.name for thread in cluster.brokers[1].fetchers.threads.values()}
    assert names <= {f"ReplicaFetcherThread-{fetcher}-{broker}" for fetcher in (0, 1) for broker in (2, 3)}
    assert names
    cluster.stop(2)
    eventually(lambda: all(cluster.leader(number).state.leader != 2 for number in range(6)))
    for number in range(6):
        cluster.write(number, 5)
    cluster.start(2)
    for number in range(6):
        cluster.write(number, 5)
    for number in range(6):
        eventually(lambda number=number: len(cluster.replicas(number)) == 3)
        eventually(lambda number=number: cluster.agree(number))
        assert content(cluster.leader(number).log).count(b"v" * 100) == 30
