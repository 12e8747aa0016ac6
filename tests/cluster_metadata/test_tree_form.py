"""A tree holds a cluster as Kafka's brokers would have written it, and gives the same cluster back."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given

from klog.client.admin import Resource, ResourceType
from klog.cluster_metadata import tree_form, tree_output
from klog.cluster_metadata.model import Cluster, DelegationToken, Partition, ScramUser, Topic
from klog.formats.errors import KlogError, StorageError, UsageError
from klog.formats.names import TopicPartition
from klog.metadata import paths
from klog.metadata.cluster import create_persistent_nodes, get_or_create_cluster_id
from klog.metadata.embedded import FILE_NAME, EmbeddedStore
from klog.metadata.errors import InvalidZnodeError
from klog.metadata.local import TreeSession
from klog.metadata.store import MetadataStore, Operation, required
from klog.metadata.values import LeaderAndIsr, ReplicaAssignment
from klog.metadata.zookeeper import ZooKeeperStore
from klog.security.authorization import acl_znodes
from klog.security.quotas.entities import QuotaEntity
from tests.cluster_metadata.trees import empty_tree, live_tree
from tests.cluster_strategies import clusters
from tests.metadata.samples import live_nodes
from tests.peers import KafkaPeer
from tests.peers.zookeeper import ZooKeeperServer

TOKEN = b"""{"version":3,"owner":"User:a","tokenRequester":"User:b","renewers":["User:c"],"issueTimestamp":1,
"maxTimestamp":9,"expiryTimestamp":5,"tokenId":"id"}"""


@pytest.fixture(scope="module")
def zookeeper(kafka3: KafkaPeer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    with ZooKeeperServer(tmp_path_factory.mktemp("zookeeper"), kafka3) as server:
        yield server


def read(store: MetadataStore) -> Cluster:
    return tree_form.read(store, "tree").cluster


@given(clusters)
def test_what_a_tree_can_hold_comes_back_equal(cluster: Cluster) -> None:
    tree = empty_tree()
    held, losses = tree_output.held(cluster)
    assert tree_output.write(tree, cluster) == losses
    assert read(tree) == held
    assert (held == cluster) == (losses == ())
    assert tree_output.held(held) == (held, ())


def test_the_tree_of_a_live_kafka_cluster_is_read() -> None:
    reading = tree_form.read(live_tree(), "ZooKeeper")
    cluster = reading.cluster
    assert reading.notes == ()
    assert cluster.cluster_id == "iuvGZtffTPmwwhc6461t6Q"
    assert (cluster.controller_epoch, cluster.next_producer_id) == (2, 3000)
    assert sorted(cluster.topics) == ["__consumer_offsets", "__transaction_state", "cmp", "codecs", "t1"]
    assert cluster.topics["t1"].topic_id == "Ms7dVHaNQuSV5FEQS031AA"
    assert cluster.topics["t1"].partitions[0] == Partition(
        ReplicaAssignment((1, 2)), LeaderAndIsr(1, 4, (2, 1), partition_epoch=5)
    )
    assert cluster.configs[Resource(ResourceType.TOPIC, "t1")] == {"retention.ms": "100000"}
    assert cluster.configs[Resource(ResourceType.BROKER, "")] == {"log.cleaner.threads": "2"}
    assert Resource(ResourceType.BROKER, "1") not in cluster.configs  # its node holds none
    assert list(cluster.scram) == [ScramUser("alice", "SCRAM-SHA-256")]
    assert cluster.quotas == {QuotaEntity("alice", "c1"): {"producer_byte_rate": 1024.0}}
    assert {broker_id: broker.endpoints[0].port for broker_id, broker in cluster.brokers.items()}.keys() == {
        1,
        2,
    }


def test_a_written_tree_has_the_nodes_of_a_live_one() -> None:
    tree = empty_tree()
    tree_output.write(tree, read(live_tree()))
    live = live_nodes()
    # Nodes of sessions, of notifications, and of what is written when it is first used.
    passing = ("/brokers/ids/", "/config/changes/", "/controller", "/feature", "/config/brokers/")
    expected = {path: node.data for path, node in live.items() if not path.startswith(passing)}
    found = tree.get_many(list(expected))
    written = {path: node and _json(node.data) for path, node in zip(expected, found, strict=True)}
    assert written == {path: _json(data) for path, data in expected.items()} | {
        # Who took the last block of producer ids is of no use.
        "/latest_producer_id_block": {
            "version": 1,
            "broker": -1,
            "block_start": "2000",
            "block_end": "2999",
        },
        # The controller's epoch is that of the cluster.
        **{
            path: _json(data) | {"controller_epoch": 2}
            for path, data in expected.items()
            if path.endswith("/state")
        },
    }


def _json(data: bytes | None) -> Any:
    """What a node holds, without an order of members."""
    return data and json.loads(data)


def test_a_token_of_kafka_is_read() -> None:
    tree = empty_tree()
    tree.create("/delegation_token/tokens/id", TOKEN, make_parents=True)
    assert read(tree).tokens == {"id": DelegationToken("User:a", "User:b", ("User:c",), 1, 9, 5)}


def test_reassignments_deletions_and_requests_are_read() -> None:
    tree = live_tree()
    moving = (
        '{"partitions":{"0":[1,2,3]},"adding_replicas":{"0":[3]},"removing_replicas":{"0":[1]},"version":3}'
    )
    tree.set("/brokers/topics/cmp", moving.encode())
    tree.create("/admin/delete_topics/codecs")
    asked = '{"version":1,"partitions":[{"topic":"t1","partition":0,"replicas":[3]}]}'
    tree.create("/admin/reassign_partitions", asked.encode())
    tree.create("/admin/preferred_replica_election", b'{"version":1,"partitions":[]}')
    tree.create("/migration", b"{}")
    tree.create("/consumers/g")
    reading = tree_form.read(tree, "ZooKeeper")
    assert reading.cluster.reassignments == {
        TopicPartition("cmp", 0): ReplicaAssignment((1, 2, 3), (3,), (1,))
    }
    assert reading.cluster.deletions == {"codecs"}
    assert reading.cluster.requested_reassignments == {TopicPartition("t1", 0): (3,)}
    assert sorted(note.split(" ")[:3] for note in reading.notes) == [
        ["a", "migration", "to"],
        ["an", "election", "of"],
        ["the", "offsets", "of"],
    ]


@pytest.mark.parametrize(
    ("path", "data"),
    [
        ("/brokers/topics/t1", b"{"),
        ("/brokers/topics/t1/partitions/0/state", b'{"leader":"x"}'),
        ("/cluster/id", b"[]"),
        ("/config/topics/t1", b"no"),
        ("/config/users/alice", b'{"config":{"SCRAM-SHA-256":"salt=,"}}'),
        ("/config/users/alice/clients/c1", b'{"config":{"producer_byte_rate":"fast"}}'),
        ("/controller_epoch", b"-1"),
    ],
)
def test_an_invalid_node_is_named_and_may_be_left_out(path: str, data: bytes) -> None:
    tree = live_tree()
    tree.set(path, data)
    with pytest.raises(InvalidZnodeError, match=path):
        read(tree)
    problems: list[KlogError] = []
    reading = tree_form.read(tree, "ZooKeeper", problems.append)
    assert len(problems) == 1
    assert len(reading.cluster.topics) >= 4


def test_an_unknown_config_of_a_user_is_noted() -> None:
    tree = live_tree()
    tree.set("/config/users/alice", b'{"config":{"colour":"red"}}')
    assert tree_form.read(tree, "ZooKeeper").notes == (
        "users/alice has a config that is neither a quota nor a credential: colour",
    )


def test_a_tree_that_is_not_empty_stays_as_it_is() -> None:
    tree = live_tree()
    before = read(tree)
    with pytest.raises(StorageError, match="not empty"):
        tree_output.write(tree, Cluster(cluster_id="x"))
    assert read(tree) == before


def test_a_tree_with_the_nodes_that_brokers_make_at_their_start_is_empty() -> None:
    tree = empty_tree()
    create_persistent_nodes(tree, (*paths.PERSISTENT, *acl_znodes.PERSISTENT))
    cluster = tree_output.held(read(live_tree())).cluster
    tree_output.write(tree, cluster)
    assert read(tree) == cluster


@pytest.mark.parametrize(("path", "data"), [("/latest_producer_id_block", b"x"), ("/brokers/seqid", b"")])
def test_a_node_with_data_or_a_used_counter_is_not_empty(path: str, data: bytes) -> None:
    tree = empty_tree()
    create_persistent_nodes(tree)
    tree.set(path, data)
    with pytest.raises(StorageError, match="not empty"):
        tree_output.write(tree, Cluster(cluster_id="x"))


def test_a_cluster_without_its_secrets_is_not_written() -> None:
    tree = empty_tree()
    with pytest.raises(UsageError, match="the SCRAM-SHA-256 credential of user alice"):
        tree_output.write(tree, read(live_tree()).without_secrets())
    assert tree.children("/") == []


class _KilledError(Exception):
    """The writer's process ends."""


class _KilledAfter:
    """A tree whose writer is killed after some multis, which it does one after the other."""

    def __init__(self, tree: TreeSession, multis: int) -> None:
        self._tree = tree
        self._left = multis

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tree, name)

    def multi(self, operations: Sequence[Operation]) -> Any:
        return required(self.multi_many([operations])[0])

    def multi_many(self, multis: Sequence[Sequence[Operation]]) -> Any:
        outcomes = []
        for operations in multis:
            if self._left <= 0:
                raise _KilledError
            self._left -= 1
            outcomes += self._tree.multi_many([operations])
        return outcomes


def wide_cluster() -> Cluster:
    """A cluster whose nodes need some multis."""
    cluster = replace(tree_output.held(read(live_tree())).cluster, generated_broker_ids=3)
    partition = Partition(ReplicaAssignment((1, 2)), LeaderAndIsr(1, 4, (2, 1)))
    topics = {f"wide-{number}": Topic(None, dict.fromkeys(range(5), partition)) for number in range(20)}
    return replace(cluster, topics={**cluster.topics, **topics})


@pytest.mark.parametrize("multis", range(10))
def test_a_write_that_is_killed_goes_on_and_no_broker_starts_before_its_end(multis: int) -> None:
    tree, cluster = empty_tree(), wide_cluster()
    with pytest.raises(_KilledError):
        tree_output.write(cast("MetadataStore", _KilledAfter(tree, multis)), cluster)
    if multis:
        with pytest.raises(InvalidZnodeError, match="/cluster/id says that the tree was not written"):
            read(tree)
        with pytest.raises(InvalidZnodeError, match="/cluster/id says that the tree was not written"):
            get_or_create_cluster_id(tree, "x")
        for refuse in (tree_output.require_writable, tree_output.write):
            with pytest.raises(StorageError, match="another cluster's metadata was not written to its end"):
                refuse(tree, replace(cluster, controller_epoch=99))
        create_persistent_nodes(tree)  # a broker that tried to start
    tree_output.require_writable(tree, cluster)
    tree_output.write(tree, cluster)
    assert read(tree) == cluster
    for refuse in (tree_output.require_writable, tree_output.write):
        with pytest.raises(StorageError, match="not empty"):
            refuse(tree, cluster)


def test_a_killed_write_that_left_a_gap_is_completed() -> None:
    """After a lost connection, later writes may be done before earlier ones are repeated."""
    tree, cluster = empty_tree(), wide_cluster()
    with pytest.raises(_KilledError):
        tree_output.write(cast("MetadataStore", _KilledAfter(tree, 9)), cluster)
    gap = "/brokers/topics/wide-0/partitions/1"
    tree.delete(f"{gap}/state")
    tree.delete(gap)
    tree_output.write(tree, cluster)
    assert read(tree) == cluster


def test_progress_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree_output, "_TOGETHER", 100)
    told: list[tuple[int, int]] = []
    tree_output.write(empty_tree(), wide_cluster(), lambda *numbers: told.append(numbers))
    assert [done for done, _ in told[:2]] == [100, 200]
    assert told[-1][0] == told[-1][1] > 200


def test_klogs_embedded_tree_is_written_and_read_again(tmp_path: Path) -> None:
    cluster = tree_output.held(read(live_tree())).cluster
    store = EmbeddedStore(tmp_path / FILE_NAME)
    tree_output.write(store, cluster)
    store.close()
    store = EmbeddedStore(tmp_path / FILE_NAME)
    assert read(store) == cluster
    store.close()


@pytest.mark.kafka
def test_a_real_zookeeper_is_written_and_read_again(zookeeper: ZooKeeperServer) -> None:
    cluster = replace(tree_output.held(read(live_tree())).cluster, generated_broker_ids=3)
    store = ZooKeeperStore(f"{zookeeper.hosts}/chroot", session_timeout_ms=6_000)
    try:
        tree_output.write(store, cluster)
        assert read(store) == cluster
    finally:
        store.close()
