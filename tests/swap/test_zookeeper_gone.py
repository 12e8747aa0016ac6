"""ZooKeeper stops while the broker runs, for a while or for good."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from tests.peers.kafka import KafkaPeer
from tests.peers.zookeeper import ZooKeeperServer
from tests.swap.clients import Admin, Writer, Written, read
from tests.swap.klog_process import Config, KlogBroker
from tests.swap.world import CONNECTION_MS
from tests.waiting import eventually

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

SESSION_MS = 1000


@pytest.fixture
def zookeeper(tmp_path: Path, kafka3: KafkaPeer) -> Iterator[ZooKeeperServer]:
    with ZooKeeperServer(tmp_path / "zookeeper", kafka3) as running:
        yield running


def on(zookeeper: ZooKeeperServer, work: Path) -> KlogBroker:
    config: Config = {
        "zookeeper.connect": zookeeper.hosts,
        "zookeeper.session.timeout.ms": SESSION_MS,
        "zookeeper.connection.timeout.ms": CONNECTION_MS,
    }
    return KlogBroker(work / "klog", config)


def is_registered(zookeeper: ZooKeeperServer) -> bool:
    client = KazooClient(zookeeper.hosts)
    client.start(60)
    try:
        return client.exists("/brokers/ids/0") is not None
    finally:
        client.stop()
        client.close()


def test_records_are_served_without_zookeeper_and_topics_are_created_once_it_is_back(
    zookeeper: ZooKeeperServer, tmp_path: Path
) -> None:
    acknowledged: Written = {}
    with on(zookeeper, tmp_path) as klog:
        klog.start()
        admin = Admin(klog.bootstrap)
        eventually(lambda: created(admin, "before", 2))
        writer = Writer(klog.bootstrap, acknowledged)
        writer.write("before", b"with a producer id")
        writer.finish()
        for round_number in range(2):
            zookeeper.kill()
            time.sleep(2 * SESSION_MS / 1000)
            for _ in range(50):
                writer.write("before", os.urandom(10))
            writer.finish()
            assert read(klog.bootstrap, acknowledged) == acknowledged
            zookeeper.start()
            eventually(lambda: is_registered(zookeeper))
            name = f"after-{round_number}"
            eventually(lambda name=name: created(admin, name))
            writer.write(name, b"works again")
            writer.finish()
        assert "Traceback" not in klog.log_text
        klog.stop()


def created(admin: Admin, name: str, partitions: int = 1) -> bool:
    """Creates the topic if it does not exist. Returns whether it exists: there may be no controller yet."""
    from confluent_kafka import KafkaException

    if name not in admin.topics():
        try:
            admin.create({name: (partitions, {})})
        except KafkaException:
            return False
    return True


def test_a_stop_without_zookeeper_is_clean(zookeeper: ZooKeeperServer, tmp_path: Path) -> None:
    with on(zookeeper, tmp_path) as klog:
        klog.start()
        eventually(lambda: created(Admin(klog.bootstrap), "t"))
        writer = Writer(klog.bootstrap, acknowledged := {})
        writer.write("t", b"kept")
        writer.finish()
        zookeeper.kill()
        time.sleep(SESSION_MS / 1000)
        # Asks for a group's coordinator: the creation of its topic waits for ZooKeeper.
        assert read(klog.bootstrap, acknowledged) == acknowledged
        started_s = time.monotonic()
        klog.stop()
        assert time.monotonic() - started_s < 20
        assert (klog.log_directories()[0] / ".kafka_cleanshutdown").exists()
        assert "Traceback" not in klog.log_text
        zookeeper.start()
        eventually(lambda: not is_registered(zookeeper))
        klog.start()
        assert "recovered" not in klog.log_text
        assert read(klog.bootstrap, acknowledged) == acknowledged
        klog.stop()


def test_the_broker_does_not_start_without_zookeeper_and_says_so(
    zookeeper: ZooKeeperServer, tmp_path: Path
) -> None:
    zookeeper.kill()
    with on(zookeeper, tmp_path) as klog:
        klog.spawn(zookeeper_connection_timeout_ms=1000)
        assert klog.ended() == 1
        assert zookeeper.hosts in klog.log_text
        assert "Traceback" not in klog.log_text
