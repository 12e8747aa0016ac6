"""`klog.testing` starts a cluster with its ZooKeeper, makes it fail, and leaves nothing behind."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import klog.testing
from klog.client.errors import RefusedError
from klog.formats.errors import KlogError, UsageError
from klog.testing import KlogCluster
from tests.processes import child
from tests.testing.test_broker_process import is_alive
from tests.waiting import eventually


@pytest.fixture(scope="module")
def shared() -> Iterator[KlogCluster]:
    with klog.testing.cluster(config={"num.partitions": 2}) as cluster:
        yield cluster


@pytest.fixture
def cluster(shared: KlogCluster) -> KlogCluster:
    shared.restore()
    return shared


def others(cluster: KlogCluster, broker_id: int) -> set[int]:
    return set(cluster.brokers) - {broker_id}


def test_three_brokers_know_each_other_and_have_one_controller(cluster: KlogCluster) -> None:
    cluster.await_members()
    assert cluster.controller() in cluster.brokers
    assert len(cluster.bootstrap_servers.split(",")) == 3


def test_a_topic_is_on_all_brokers_and_has_the_configs_of_the_cluster(cluster: KlogCluster) -> None:
    cluster.create_topic("spread", partitions=-1)
    assert {cluster.leader("spread", number) for number in (0, 1)} <= set(cluster.brokers)
    cluster.await_in_sync("spread")
    assert set(cluster.in_sync("spread", 1)) == set(cluster.brokers)
    with pytest.raises(RefusedError, match="TOPIC_ALREADY_EXISTS"):
        cluster.create_topic("spread")


def test_another_broker_leads_after_a_kill_and_the_killed_one_comes_back(cluster: KlogCluster) -> None:
    cluster.create_topic("killed")
    killed = cluster.leader("killed")
    address = cluster.brokers[killed].bootstrap_servers
    cluster.kill(killed)
    assert cluster.leader("killed") in others(cluster, killed)
    assert cluster.controller() in others(cluster, killed)
    cluster.start(killed)
    cluster.await_members()
    cluster.await_in_sync("killed")
    assert cluster.brokers[killed].bootstrap_servers == address


def test_a_paused_broker_loses_its_partitions_and_comes_back(cluster: KlogCluster) -> None:
    cluster.create_topic("paused")
    paused = cluster.leader("paused")
    before = cluster.brokers[paused].pid
    cluster.pause(paused)
    assert cluster.leader("paused") in others(cluster, paused)
    cluster.resume(paused)
    cluster.await_members()
    cluster.await_in_sync("paused")
    assert cluster.brokers[paused].pid == before


def test_a_broker_cut_off_zookeeper_loses_its_partitions_and_comes_back(cluster: KlogCluster) -> None:
    cluster.create_topic("cut")
    cut = cluster.leader("cut")
    cluster.partition(cut, "zookeeper")
    eventually(lambda: cluster.leader("cut") != cut)
    cluster.heal()
    cluster.await_members()
    cluster.await_in_sync("cut")


def test_brokers_go_on_after_zookeeper_was_down(cluster: KlogCluster) -> None:
    cluster.zookeeper.kill()
    cluster.zookeeper.start()
    cluster.await_members()
    cluster.create_topic("afterwards")


def test_names_that_are_no_nodes_are_refused(cluster: KlogCluster) -> None:
    with pytest.raises(UsageError, match="7 is neither a broker id"):
        cluster.partition(0, 7)


def test_configs_that_the_cluster_sets_are_refused() -> None:
    with pytest.raises(UsageError, match=r"sets broker\.id itself"):
        KlogCluster(2, {"broker.id": 7})


def test_a_cluster_ends_with_the_process_that_started_it() -> None:
    program = """if True:
        import time, klog.testing
        with klog.testing.cluster(2) as cluster:
            pids = [each.pid for each in cluster.brokers.values()]
            works = [each.log_path.parent for each in cluster.brokers.values()]
            print(cluster.zookeeper.pid, *pids, flush=True)
            print(cluster.zookeeper.log_path.parent, *works, flush=True)
            time.sleep(600)
    """
    with child([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as parent:
        pids = list(map(int, parent.stdout.readline().split()))
        works = list(map(Path, parent.stdout.readline().split()))
        assert len(pids) == len(works) == 3
        parent.kill()
        parent.wait()
        eventually(lambda: not any(map(is_alive, pids)))
        eventually(lambda: not any(work.exists() for work in works))


def test_a_cluster_without_java_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(KlogError, match="there is no java in JAVA_HOME"):
        klog.testing.cluster().__enter__()


def test_the_fixture_gives_each_test_a_whole_cluster(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        "def test_it(klog_cluster):\n    klog_cluster.kill(1)\n"
        "def test_whole(klog_cluster):\n    assert all(each.pid for each in klog_cluster.brokers.values())\n"
        "def test_failed(klog_cluster):\n    assert 1 == 2\n"
    )
    command = [sys.executable, "-m", "pytest", "-p", "klog.testing.plugin", "--rootdir", ".", "test_it.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, check=False, text=True)
    assert "2 passed" in done.stdout, done.stdout + done.stderr
    assert "1 failed" in done.stdout
    assert "klog cluster's logs" in done.stdout
    assert "-- broker 2 --" in done.stdout
