"""ZooKeeper's data are lost: `klog adopt` puts the topics of a broker's directories back into a new tree."""

from __future__ import annotations

import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from tests.peers.kafka import KafkaPeer
from tests.peers.zookeeper import ZooKeeperServer
from tests.swap.clients import Admin, Writer, Written, read
from tests.swap.klog_process import REPOSITORY
from tests.swap.test_odd_trees import Cluster
from tests.waiting import eventually

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


def adopt(cluster: Cluster, *options: str) -> subprocess.CompletedProcess[str]:
    code = "from klog.commands.main import main; main()"
    config = cluster.work / "klog" / "klog.properties"
    return subprocess.run(
        [sys.executable, "-c", code, "adopt", "--yes", "--config", str(config), *options],
        capture_output=True,
        check=False,
        text=True,
        cwd=REPOSITORY,
        timeout=60,
    )


def test_topics_that_zookeeper_lost_are_served_again_by_klog_and_by_kafka(
    tmp_path: Path, kafka3: KafkaPeer
) -> None:
    written: Written = {}
    with (
        ZooKeeperServer(tmp_path / "zookeeper", kafka3) as zookeeper,
        closing(Cluster("lost", tmp_path, zookeeper)) as cluster,
    ):
        with cluster.klog() as klog:
            Admin(klog.bootstrap).create({"t": (2, {})})
            writer = Writer(klog.bootstrap, written)
            writer.write("t", b"kept")
            writer.finish()
            running = adopt(cluster)
            klog.stop()
        assert running.returncode == 1, "the broker holds the directory"
        eventually(lambda: not cluster.has("/brokers/ids/7"))
        cluster.remove("")
        before = sorted(path.name for path in cluster.logs.iterdir())
        dry = adopt(cluster, "--dry-run")
        assert (dry.returncode, "t: 2 partitions would be adopted" in dry.stdout) == (0, True), dry.stderr
        assert not cluster.has("/brokers/topics/t")
        done = adopt(cluster)
        assert (done.returncode, "t: 2 partitions adopted" in done.stdout) == (0, True), done.stderr
        assert sorted(path.name for path in cluster.logs.iterdir()) == before
        with cluster.klog() as klog:
            eventually(lambda: Admin(klog.bootstrap).led() >= {("t", 0), ("t", 1)})
            assert read(klog.bootstrap, written) == written
            assert "no owner" not in klog.log_text
            klog.stop()
        with cluster.kafka() as kafka:
            eventually(lambda: Admin(kafka.bootstrap).led() >= {("t", 0), ("t", 1)})
            assert read(kafka.bootstrap, written) == written
