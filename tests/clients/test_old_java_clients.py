"""Java's clients of Kafka 0.8 to 0.11: they write, read, commit, and go on after a restart.

The same tests run on klog and on Kafka 3.9.1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from kazoo.client import KazooClient

import klog
from klog.testing.topics import create_topic
from tests.clients.old_records import CODECS, EACH, new_lines, old_lines, produce_new, read_by_new
from tests.conftest import give_up
from tests.peers import KafkaPeer, PeerUnavailableError, ZooKeeperBroker
from tests.peers.broker import SINGLE_BROKER
from tests.peers.old_clients import JAVA_VERSIONS, SCALA_VERSIONS, java_client, scala_client
from tests.peers.zookeeper import ZooKeeperServer
from tests.swap.klog_process import KlogBroker

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

COUNT = EACH * len(CODECS)


def lines(client: Callable[..., str], program: str, version: str, *args: object) -> list[str]:
    try:
        return client(program, version, *args).splitlines()
    except PeerUnavailableError as missing:
        give_up(f"Kafka's client {version}", missing)


@pytest.mark.parametrize("version", JAVA_VERSIONS)
def test_what_an_old_producer_writes(broker, new_topic, version: str) -> None:
    topic = new_topic()
    written = lines(java_client, "OldProduce", version, broker.bootstrap_servers, topic, "all", EACH, *CODECS)
    assert written == [str(offset) for offset in range(COUNT)]
    assert read_by_new(broker.bootstrap_servers, topic, COUNT) == old_lines()
    batches = klog.open(str(broker.partition_dir(topic))).batches()
    assert {(batch.magic, batch.codec) for batch in batches} == {(2, codec) for codec in CODECS}


@pytest.mark.parametrize("version", JAVA_VERSIONS[1:])
def test_an_old_group_reads_and_goes_on_where_it_committed(broker, new_topic, version: str) -> None:
    topic = new_topic()
    produce_new(broker.bootstrap_servers, topic)
    lines(java_client, "OldProduce", version, broker.bootstrap_servers, topic, "1", EACH, *CODECS)
    expected = new_lines() + old_lines(COUNT)
    asked = broker.bootstrap_servers, topic, f"group of {topic}"
    begun = lines(java_client, "OldConsume", version, *asked, 15)
    assert begun == expected[: len(begun)]
    assert 15 <= len(begun) < len(expected)
    rest = len(expected) - len(begun)
    assert lines(java_client, "OldConsume", version, *asked, rest) == expected[len(begun) :]


# The consumer in Scala, which needs ZooKeeper


@dataclass
class WithZooKeeper:
    """A broker, and the ZooKeeper of its cluster."""

    bootstrap: str
    zookeeper: str


@pytest.fixture(scope="module", params=["klog", "kafka3"])
def cluster(
    request: pytest.FixtureRequest, kafka3: KafkaPeer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[WithZooKeeper]:
    work: Path = tmp_path_factory.mktemp(request.param)
    if request.param == "kafka3":
        with ZooKeeperBroker(work, SINGLE_BROKER, kafka3) as kafka:
            yield WithZooKeeper(kafka.bootstrap, f"127.0.0.1:{kafka.zookeeper_port}")
        return
    with ZooKeeperServer(work / "zookeeper", kafka3) as server:
        config = {**SINGLE_BROKER, "zookeeper.connect": server.hosts}
        with KlogBroker(work / "klog", config) as ours:
            ours.start()
            yield WithZooKeeper(ours.bootstrap, server.hosts)
            assert ours.complaints == []
            ours.stop()


@pytest.mark.parametrize("storage", ["zookeeper", "kafka"])
@pytest.mark.parametrize("version", SCALA_VERSIONS)
def test_the_consumer_in_scala_keeps_offsets_in_zookeeper_or_kafka(
    cluster: WithZooKeeper, version: str, storage: str
) -> None:
    topic, group = f"scala-{version}-{storage}", f"group-{version}-{storage}"
    create_topic(cluster.bootstrap, topic, 1, {})
    produce_new(cluster.bootstrap, topic)
    asked = cluster.zookeeper, topic, group
    expected = new_lines()
    assert lines(scala_client, "ScalaConsume", version, *asked, 15, storage) == expected[:15]
    assert lines(scala_client, "ScalaConsume", version, *asked, COUNT - 15, storage) == expected[15:]
    assert offset_in_zookeeper(cluster, group, topic) == (b"40" if storage == "zookeeper" else None)


def offset_in_zookeeper(cluster: WithZooKeeper, group: str, topic: str) -> bytes | None:
    client = KazooClient(cluster.zookeeper)
    client.start()
    try:
        path = f"/consumers/{group}/offsets/{topic}/0"
        return client.get(path)[0] if client.exists(path) else None
    finally:
        client.stop()
        client.close()
