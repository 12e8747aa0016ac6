"""Real Kafka starts on directories that klog formats, without a log: the snapshot is enough."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from klog.client.admin import Resource, ResourceType
from klog.cluster_metadata import kraft_form, kraft_output
from klog.cluster_metadata.kraft_layout import Layout, Node, Role, new_id, with_directory_ids
from klog.cluster_metadata.metadata_versions import features_at, level_of
from klog.cluster_metadata.model import (
    METADATA_VERSION,
    Cluster,
    Partition,
    SupportedVersions,
    Topic,
    Voter,
    VoterEndpoint,
)
from klog.metadata.values import LeaderAndIsr, ReplicaAssignment
from tests.peers.broker import KRaftBroker, free_port
from tests.peers.kafka import DUMP_TOOL, KAFKA_3, KAFKA_4, KafkaPeer
from tests.waiting import eventually

pytestmark = pytest.mark.kafka


@pytest.mark.parametrize("quorum", ["static", "dynamic"])
@pytest.mark.parametrize("version", [KAFKA_3, KAFKA_4])
def test_a_combined_node_starts_on_a_snapshot_and_goes_on(version: str, quorum: str, tmp_path: Path) -> None:
    level = level_of(version[:3])
    partitions = {
        number: Partition(ReplicaAssignment((1,)), LeaderAndIsr(-1, 5, (1,), partition_epoch=2))
        for number in range(3)
    }
    cluster = Cluster(
        "zsiXsM12QjO3SJygbMVE2g",
        {"t": Topic(new_id(os.urandom), partitions)},
        {Resource(ResourceType.TOPIC, "t"): {"retention.ms": "3600029"}},
        features={METADATA_VERSION: level, **features_at(level, {}, {})},
        next_producer_id=5000,
        controller_epoch=7,
    )
    directory, port = str(tmp_path / "logs"), free_port()
    ids = with_directory_ids([directory], os.urandom)
    voter = Voter(ids[directory], (VoterEndpoint("CONTROLLER", "127.0.0.1", port),), SupportedVersions(0, 1))
    node = Node(1, frozenset(Role), ids, directory)
    layout = Layout((node,), {1: voter} if quorum == "dynamic" else {})
    kraft_output.write(cluster, layout, now_ms=int(time.time() * 1000))
    peer = KafkaPeer(version)
    _require_that_kafka_reads(peer, Path(directory))
    broker_port = free_port()
    config = {"listeners": f"PLAINTEXT://127.0.0.1:{broker_port},CONTROLLER://127.0.0.1:{port}"}
    if quorum == "static":
        config["controller.quorum.voters"] = f"1@127.0.0.1:{port}"
    else:
        config |= {
            "controller.quorum.voters": "",
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{port}",
        }
    with KRaftBroker(tmp_path, config, peer):
        address = {"bootstrap.servers": f"127.0.0.1:{broker_port}", "log_level": 0}
        admin = AdminClient(address)
        eventually(lambda: _leaders(admin) == [1, 1, 1])
        producer = Producer({**address, "transactional.id": "x"})
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce("t", b"x", partition=0)
        producer.commit_transaction(30)
    after = kraft_form.read([directory]).cluster
    assert after.topics["t"].topic_id == cluster.topics["t"].topic_id
    assert after.topics["t"].partitions[0].directories == (ids[directory],)
    assert {name: after.configs[name] for name in cluster.configs} == cluster.configs
    assert after.next_producer_id == 6000
    assert {name: after.features[name] for name in cluster.features} == cluster.features
    assert after.controller_epoch > 7


def _require_that_kafka_reads(peer: KafkaPeer, directory: Path) -> None:
    snapshots = [directory / "bootstrap.checkpoint", *directory.glob("__cluster_metadata-0/*.checkpoint")]
    assert len(snapshots) == 2
    files = ",".join(map(str, snapshots))
    done = peer.java(DUMP_TOOL, "--cluster-metadata-decoder", "--files", files)
    text = done.stdout.decode()
    assert (done.returncode, text.count("SnapshotHeader"), text.count("SnapshotFooter")) == (0, 2, 2)
    assert text.count("isvalid: true") == 6
    assert '"type":"PARTITION_RECORD"' in text


def _leaders(admin: AdminClient) -> list[int]:
    found = admin.list_topics(timeout=10).topics.get("t")
    return [] if found is None else [each.leader for each in found.partitions.values()]
