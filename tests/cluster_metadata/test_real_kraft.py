"""Real Kafka starts on directories that klog formats, without a log: the snapshot is enough."""

from __future__ import annotations

import json
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
    ScramUser,
    SupportedVersions,
    Topic,
    Voter,
    VoterEndpoint,
)
from klog.metadata.values import LeaderAndIsr, ReplicaAssignment
from klog.protocol.acls import Acl, AclOperation, AclResourceType, PatternType, Permission, ResourcePattern
from klog.security.authentication.scram_credentials import ScramCredential
from klog.security.quotas.entities import QuotaEntity
from tests.conftest import give_up
from tests.peers import PeerUnavailableError
from tests.peers.broker import KRaftBroker, free_port
from tests.peers.kafka import DUMP_TOOL, KAFKA_3, KAFKA_4, KafkaPeer
from tests.peers.metadata_shell import metadata_shell, metadata_shell_jars
from tests.waiting import eventually

pytestmark = pytest.mark.kafka
PATTERN = ResourcePattern(AclResourceType.TOPIC, "t", PatternType.LITERAL)


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


def test_kafka_4_shows_what_was_meant_in_a_snapshot_of_klog(tmp_path: Path) -> None:
    """By `kafka-metadata-shell`, and by `kafka-dump-log`."""
    try:
        metadata_shell_jars()
    except PeerUnavailableError as missing:
        give_up("kafka-metadata-shell", missing)
    topic_id, level = new_id(os.urandom), level_of("4.1")
    moving = ReplicaAssignment((3, 1), adding=(3,), removing=(1,))
    alice = QuotaEntity(user="alice")
    cluster = Cluster(
        "zsiXsM12QjO3SJygbMVE2g",
        {"t": Topic(topic_id, {0: Partition(moving, LeaderAndIsr(-1, 5, (1,), partition_epoch=2))})},
        {
            Resource(ResourceType.TOPIC, "t"): {"retention.ms": "3600029"},
            Resource(ResourceType.BROKER, ""): {"log.cleaner.threads": "2"},
            Resource(ResourceType.GROUP, "g"): {"consumer.session.timeout.ms": "46000"},
        },
        frozenset({Acl(PATTERN, "User:alice", "*", AclOperation.WRITE, Permission.DENY)}),
        {ScramUser("alice", "SCRAM-SHA-256"): ScramCredential(b"salt", b"stored", b"server", 4099)},
        {alice: {"producer_byte_rate": 1048577.0}},
        features={METADATA_VERSION: level, **features_at(level, {}, {})},
        next_producer_id=5000,
        controller_epoch=7,
    )
    directory = str(tmp_path / "logs")
    node = Node(1, frozenset(Role), with_directory_ids([directory], os.urandom), directory)
    kraft_output.write(cluster, Layout((node,)), now_ms=int(time.time() * 1000))
    (snapshot,) = Path(directory).glob("__cluster_metadata-0/*.checkpoint")
    shown = metadata_shell(snapshot, "tree", "/image")
    squeezed = " ".join(shown.split())
    for meant in (
        "StandardAcl(resourceType=TOPIC, resourceName=t, patternType=LITERAL, principal=User:alice, host=*, ",
        "operation=WRITE, permissionType=DENY)",
        "user(alice): producer_byte_rate: 1048577.0",
        "BROKER: log.cleaner.threads: 2",
        "GROUP:g: consumer.session.timeout.ms: 46000",
        "TOPIC:t: retention.ms: 3600029",
        "finalized_group.version: 1 finalized_transaction.version: 2 metadataVersion: Optional[4.1-IV1]",
        "nextProducerId: 5000",
        "SCRAM-SHA-256: alice: ScramCredentialData(",
        "iterations=4099",
        f"byId: {topic_id}: 0: PartitionRegistration(replicas=[3, 1], ",
        (
            "isr=[1], removingReplicas=[1], addingReplicas=[3], elr=[], lastKnownElr=[], leader=-1,"
            " leaderRecoveryState=RECOVERED, leaderEpoch=5, partitionEpoch=2)"
        ),
        "byName: t: 0: PartitionRegistration(",
    ):
        assert meant in squeezed, shown
    dumped = KafkaPeer(KAFKA_4).java(DUMP_TOOL, "--cluster-metadata-decoder", "--files", str(snapshot))
    records = [
        json.loads(line.partition("payload:")[2])
        for line in dumped.stdout.decode().splitlines()
        if "payload:" in line and '"type"' in line
    ]
    by_type = {each["type"]: each["data"] for each in records}
    assert by_type["PARTITION_RECORD"]["addingReplicas"] == [3]
    assert by_type["ACCESS_CONTROL_ENTRY_RECORD"]["principal"] == "User:alice"
    assert {
        (each["data"]["name"], each["data"]["value"]) for each in records if each["type"] == "CONFIG_RECORD"
    } == {
        ("retention.ms", "3600029"),
        ("log.cleaner.threads", "2"),
        ("consumer.session.timeout.ms", "46000"),
    }
