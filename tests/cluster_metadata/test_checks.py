"""What `klog metadata diff` and `check` find in values and in log directories."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings

from klog.client.admin import Resource, ResourceType
from klog.cluster_metadata import kraft_form
from klog.cluster_metadata.comparison import HIDDEN, Difference, Item, differences
from klog.cluster_metadata.consistency import problems_of
from klog.cluster_metadata.directory_check import directory_problems
from klog.cluster_metadata.model import METADATA_VERSION, Cluster, Partition, Topic
from klog.formats import meta_properties
from klog.formats.errors import UsageError
from klog.metadata.values import LeaderAndIsr, ReplicaAssignment
from klog.protocol.acls import Acl, AclOperation, AclResourceType, PatternType, Permission, ResourcePattern
from klog.security.quotas.entities import DEFAULT, QuotaEntity
from tests.cluster_strategies import clusters
from tests.corpora import FIXTURES

LOGS = FIXTURES / "k4-kraft" / "logs"
FIXTURE = kraft_form.read([str(LOGS)]).cluster
ONE = "m-one"


def changed_partition(**changes: object) -> Cluster:
    topic = FIXTURE.topics[ONE]
    partition = replace(topic.partitions[0], **changes)  # type: ignore[arg-type]
    return replace(FIXTURE, topics={**FIXTURE.topics, ONE: replace(topic, partitions={0: partition})})


# --- comparison ---


@settings(max_examples=25)
@given(clusters)
def test_a_cluster_does_not_differ_from_itself_nor_from_itself_without_secrets(cluster: Cluster) -> None:
    assert differences(cluster, cluster) == []
    assert differences(cluster, cluster.without_secrets()) == []


@settings(max_examples=25)
@given(clusters, clusters)
def test_there_are_differences_exactly_if_clusters_differ(a: Cluster, b: Cluster) -> None:
    found = differences(a, b)
    assert bool(found) == (a != b)
    assert [(item, right, left) for item, left, right in found] == differences(b, a)


def test_a_difference_names_the_member_and_both_values() -> None:
    state = LeaderAndIsr(1, 2, (1,), partition_epoch=1)
    other = replace(changed_partition(state=state), next_producer_id=2000)
    assert differences(FIXTURE, other) == [
        Difference(Item("cluster", "", "nextProducerId"), 1000, 2000),
        Difference(Item("partition", "m-one-0", "isr"), [], [1]),
        Difference(Item("partition", "m-one-0", "leader"), -1, 1),
        Difference(Item("partition", "m-one-0", "leaderEpoch"), 1, 2),
    ]


def test_what_one_lacks_is_none() -> None:
    other = replace(FIXTURE, quotas={}, acls=frozenset())
    assert differences(FIXTURE, other) == [
        Difference(Item("quota", "ip 127.0.0.9", "connection_creation_rate"), 10.0, None),
        Difference(Item("quota", "user Zoë, client-id <default>", "producer_byte_rate"), 1048576.0, None),
        Difference(Item("acl", "TOPIC m- PREFIXED User:alice * READ ALLOW", ""), "yes", None),
    ]


def test_values_of_secrets_are_not_shown() -> None:
    broker = Resource(ResourceType.BROKER, "1")
    a = Cluster(configs={broker: {"ssl.key.password": "one"}})
    b = Cluster(configs={broker: {"ssl.key.password": "two"}})
    item = Item("config", "broker 1", "ssl.key.password")
    assert differences(a, b) == [Difference(item, HIDDEN, HIDDEN)]
    assert differences(a, Cluster()) == [Difference(item, HIDDEN, None)]


# --- a cluster alone ---


def test_the_metadata_of_kafka_has_no_problems() -> None:
    assert list(problems_of(FIXTURE)) == []


@pytest.mark.parametrize(
    ("cluster", "where", "what"),
    [
        (replace(FIXTURE, cluster_id=None), "cluster", "has no id"),
        (replace(FIXTURE, features={METADATA_VERSION: 6}), METADATA_VERSION, "level 6 is below 7 (3.3-IV3)"),
        (replace(FIXTURE, features={}), METADATA_VERSION, "is not there"),
        (replace(FIXTURE, migration_state=2), "migration", "has begun and not ended"),
        (
            replace(FIXTURE, topics={**FIXTURE.topics, "z": Topic(FIXTURE.topics[ONE].topic_id, {})}),
            "z",
            "has the topic id of m-one",
        ),
        (replace(FIXTURE, topics={**FIXTURE.topics, "z": Topic(None, {})}), "z", "has no topic id"),
        (
            replace(
                FIXTURE,
                topics={
                    **FIXTURE.topics,
                    "z": Topic("A" * 21 + "Q", {2: Partition(ReplicaAssignment((1,)))}),
                },
            ),
            "z",
            "has no partition 0, 1, but later ones",
        ),
        (changed_partition(assignment=ReplicaAssignment((1, 1))), "m-one-0", "names a broker twice"),
        (changed_partition(assignment=ReplicaAssignment(())), "m-one-0", "has no replicas"),
        (
            changed_partition(assignment=ReplicaAssignment((1,), (2,))),
            "m-one-0",
            "adding replicas 2 are not among",
        ),
        (changed_partition(directories=("A" * 22,) * 2), "m-one-0", "has 2 directories for 1 replicas"),
        (
            changed_partition(state=LeaderAndIsr(-1, 1, (2,))),
            "m-one-0",
            "its ISR 2 has brokers that are no replicas",
        ),
        (changed_partition(state=LeaderAndIsr(1, 1, ())), "m-one-0", "its leader 1 is not in its ISR (none)"),
        (replace(FIXTURE, deletions=frozenset({"x"})), "deletion of x", "there is no such topic"),
        (
            replace(FIXTURE, configs={Resource(ResourceType.TOPIC, "x"): {"retention.ms": "1"}}),
            "configs of topic x",
            "there is no such topic",
        ),
        (
            replace(FIXTURE, configs={Resource(ResourceType.TOPIC, ONE): {"retention.ms": "long"}}),
            "configs of topic m-one",
            "Invalid value long for configuration retention.ms",
        ),
        (
            replace(
                FIXTURE,
                acls=frozenset(
                    {
                        Acl(
                            ResourcePattern(AclResourceType.TOPIC, "t", PatternType.LITERAL),
                            "alice",
                            "*",
                            AclOperation.READ,
                            Permission.ALLOW,
                        )
                    }
                ),
            ),
            "ACL of ",
            "its principal has no type: alice",
        ),
    ],
)
def test_a_problem_says_where_and_what(cluster: Cluster, where: str, what: str) -> None:
    found = [each for each in problems_of(cluster) if what in each.what]
    assert [each.where.startswith(where) for each in found] == [True]


# --- with log directories ---


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    return Path(shutil.copytree(LOGS, tmp_path / "logs"))


def found(cluster: Cluster, *directories: Path) -> list[tuple[str, str]]:
    return [
        (Path(each.where).name, each.what)
        for each in directory_problems(cluster, [str(directory) for directory in directories])
    ]


def test_the_directories_of_the_fixture_are_those_of_its_metadata(logs: Path) -> None:
    assert found(FIXTURE, logs) == []


def test_a_partition_without_a_directory_is_named(logs: Path) -> None:
    shutil.rmtree(logs / "m-many-3")
    assert found(FIXTURE, logs) == [("m-many-3", "has no directory on broker 1: it would come back empty")]


def test_a_replica_that_is_being_added_needs_no_directory_before_it_is_in_sync(logs: Path) -> None:
    shutil.rmtree(logs / "m-many-3")
    topic = FIXTURE.topics["m-many"]

    def moving(isr: tuple[int, ...]) -> Cluster:
        old = topic.partitions[3]
        assert old.state is not None
        state = replace(old.state, leader=-1, isr=isr)
        moved = Partition(ReplicaAssignment((1, 2), adding=(1,), removing=(2,)), state)
        partitions = {**topic.partitions, 3: moved}
        return replace(FIXTURE, topics={**FIXTURE.topics, "m-many": replace(topic, partitions=partitions)})

    assert found(moving((2,)), logs) == []
    assert found(moving((1, 2)), logs) == [
        ("m-many-3", "has no directory on broker 1: it would come back empty")
    ]


def test_a_directory_without_an_owner_is_named(logs: Path) -> None:
    (logs / "m-one-7").mkdir()
    (logs / "other-0").mkdir()
    assert found(FIXTURE, logs) == [
        ("m-one-7", "has no owner: the topic has no partition 7"),
        ("other-0", "has no owner: there is no such topic"),
    ]
    elsewhere = changed_partition(assignment=ReplicaAssignment((2, 3)), directories=())
    assert ("m-one-0", "has no owner: the replicas are on 2,3") in found(elsewhere, logs)


def test_a_topic_id_that_differs_is_named(logs: Path) -> None:
    (logs / "m-one-0" / "partition.metadata").write_text("version: 0\ntopic_id: ey5g-FnqTD-kdOop3hS1Qw")
    ((where, what),) = found(FIXTURE, logs)
    assert where == "m-one-0"
    assert what.startswith("has topic id ey5g-FnqTD-kdOop3hS1Qw, the metadata frJNbmKCSHu4o8p06x_jmw")


def test_a_replica_in_another_directory_than_the_metadata_says_is_named(logs: Path) -> None:
    cluster = changed_partition(directories=("S3bGnjVJR-WENkNtQu8u2g",))
    assert found(cluster, logs) == [
        ("m-one-0", "is in directory 0GGzwpLNmJPrCrKx-lOUsQ, the metadata says S3bGnjVJR-WENkNtQu8u2g")
    ]
    unassigned = changed_partition(directories=("A" * 21 + "Q",))
    assert found(unassigned, logs) == []


def test_a_partition_in_two_directories_is_named(logs: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(logs / "m-one-0", other / "m-one-0")
    shutil.copy(logs / "meta.properties", other)
    assert found(FIXTURE, logs, other) == [("m-one-0", f"is m-one-0, as {logs / 'm-one-0'} is, too")]


def test_a_directory_of_another_cluster_or_of_none_is_named(logs: Path) -> None:
    identity = meta_properties.create(1, node_id=1, cluster_id="zsiXsM12QjO3SJygbMVE2g")
    (logs / "meta.properties").write_bytes(meta_properties.build(identity))
    ((where, what),) = found(FIXTURE, logs)
    assert (where, what.split(",")[0]) == ("logs", "belongs to cluster zsiXsM12QjO3SJygbMVE2g")
    (logs / "meta.properties").unlink()
    with pytest.raises(UsageError, match="no id of a broker"):
        found(FIXTURE, logs)
    without_identity = list(directory_problems(FIXTURE, [str(logs)], 1))
    assert [each.what for each in without_identity] == ["has no meta.properties: it belongs to no broker yet"]


def test_the_default_entity_has_a_name() -> None:
    other = replace(FIXTURE, quotas={QuotaEntity(DEFAULT): {"request_percentage": 5.0}})
    names = {each.item.name for each in differences(other, replace(FIXTURE, quotas={}))}
    assert names == {"user <default>"}
