"""A broker of a cluster hands over what it leads when it is stopped, and stops at once on a second signal."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

import klog.testing
from klog.testing import KlogCluster
from tests.waiting import eventually

PARTITIONS = 6
CLEAN = ".kafka_cleanshutdown"


@pytest.fixture(scope="module")
def shared() -> Iterator[KlogCluster]:
    # Only a handover moves a leadership, because no session expires.
    with klog.testing.cluster(config={"zookeeper.session.timeout.ms": 10_000}) as cluster:
        cluster.create_topic("alone", partitions=3, replication_factor=1)
        yield cluster


@pytest.fixture
def cluster(shared: KlogCluster) -> KlogCluster:
    shared.restore()
    shared.await_members()
    return shared


def log_since(cluster: KlogCluster, broker_id: int, before: str) -> str:
    return cluster.brokers[broker_id].log_text()[len(before) :]


@pytest.mark.parametrize("is_controller", [False, True], ids=["member", "controller"])
def test_a_stopped_broker_has_handed_over_what_others_can_lead(
    cluster: KlogCluster, is_controller: bool
) -> None:
    controller = cluster.controller()
    stopped = controller if is_controller else (controller + 1) % 3
    topic = f"t-{stopped}"
    cluster.create_topic(topic, partitions=PARTITIONS)
    before = cluster.brokers[stopped].log_text()
    cluster.stop(stopped)
    assert {cluster.leader(topic, each) for each in range(PARTITIONS)} <= set(cluster.brokers) - {stopped}
    said = log_since(cluster, stopped, before)
    assert said.index("the controller lets this broker stop") < said.index("stopped cleanly")
    assert all((each / CLEAN).exists() for each in cluster.brokers[stopped].log_dirs)
    cluster.start(stopped)
    cluster.await_members()
    assert cluster.leader("alone", 0) in cluster.brokers


def test_a_second_signal_ends_the_wait_for_the_controller(cluster: KlogCluster) -> None:
    stopped = (cluster.controller() + 1) % 3
    broker = cluster.brokers[stopped]
    before = broker.log_text()
    cluster.pause(cluster.controller())
    os.kill(broker.pid, signal.SIGTERM)
    eventually(lambda: "SIGTERM: stopping" in log_since(cluster, stopped, before))
    os.kill(broker.pid, signal.SIGINT)
    eventually(lambda: "stopped cleanly" in log_since(cluster, stopped, before))
    said = log_since(cluster, stopped, before)
    assert "SIGINT again: stopping without waiting for other brokers" in said
    assert "the broker stops without handing over all that it leads" in said
    assert all((each / CLEAN).exists() for each in broker.log_dirs)
    broker.kill()  # it has ended already


def test_a_broker_that_is_alone_asks_nobody() -> None:
    with klog.testing.broker() as broker:
        broker.stop()
        assert "controlled shutdown" not in broker.log_text()
        assert "hand" not in broker.log_text()
