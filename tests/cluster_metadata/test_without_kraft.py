"""What a cluster of KRaft becomes for brokers without it: the same by `adopt` and in each form of a tree."""

from __future__ import annotations

from pathlib import Path

import pytest

from klog.client.admin import Resource, ResourceType
from klog.cluster_metadata import conversion
from klog.cluster_metadata.conversion_plan import Target
from klog.cluster_metadata.forms import Reading
from klog.cluster_metadata.model import Broker, Cluster, Partition, Topic
from klog.cluster_metadata.sources import read_source
from klog.cluster_metadata.without_kraft import cluster_without_kraft
from klog.config.password_encoder import PasswordEncoder
from klog.formats.errors import UsageError
from klog.metadata.values import LeaderAndIsr, ReplicaAssignment

BROKER = Resource(ResourceType.BROKER, "1")
PASSWORD = "ssl.keystore.password"
ENCRYPTED = PasswordEncoder("s3cret").encode("wonder")


def without_isr() -> Cluster:
    partition = Partition(ReplicaAssignment((1, 2, 3)), LeaderAndIsr(-1, 7, ()), eligible_leaders=(2, 3))
    return Cluster("c" * 22, {"t": Topic("ey5g-FnqTD-kdOop3hS1Qw", {0: partition})})


def with_configs(**configs: str | None) -> Cluster:
    return Cluster(configs={BROKER: {name.replace("_", "."): value for name, value in configs.items()}})


def to_tree(cluster: Cluster, directory: Path, **reading: bool) -> tuple[Cluster, tuple[str, ...]]:
    target = Target(0, bytes, place=str(directory))
    plan = conversion.plan(Reading(cluster, "KRaft directory", **reading), conversion.Form.TREE, target)
    plan.write()
    return read_source(str(directory)).cluster, plan.losses


def test_eligible_leaders_become_the_isr_also_in_a_tree_of_klog(tmp_path: Path) -> None:
    found, _ = cluster_without_kraft(without_isr())
    assert found.topics["t"].partitions[0].state == LeaderAndIsr(-1, 7, (2, 3))
    written, losses = to_tree(without_isr(), tmp_path / "new")
    assert written.topics["t"].partitions[0].state == LeaderAndIsr(-1, 7, (2, 3))
    assert "eligible leaders" in losses


def test_a_plain_password_is_named_and_left_out_and_one_that_is_encrypted_stays() -> None:
    found, kept_back = cluster_without_kraft(
        with_configs(ssl_keystore_password="wonder", log_cleaner_threads="2")
    )
    assert found.configs == {BROKER: {"log.cleaner.threads": "2"}}
    assert kept_back == (f"{PASSWORD} of broker 1 is not taken over: set it again",)
    encrypted = with_configs(ssl_keystore_password=ENCRYPTED)
    assert cluster_without_kraft(encrypted) == (encrypted, ())


def test_a_config_of_brokers_that_nobody_knows_stays(tmp_path: Path) -> None:
    cluster = with_configs(of_a_plugin="x")
    assert cluster_without_kraft(cluster) == (cluster, ())
    with pytest.raises(UsageError, match=r"secrets were left out: of\.a\.plugin"):
        to_tree(with_configs(of_a_plugin=None), tmp_path / "new")


def test_a_tree_of_klog_is_not_made_of_a_cluster_that_runs(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="brokers are running: 1"):
        to_tree(Cluster("c", brokers={1: Broker()}), tmp_path / "new", is_live=True)
    assert not (tmp_path / "new").exists()
