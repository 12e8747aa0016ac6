"""What a stopped cluster's metadata becomes for nodes of KRaft, and how their properties files are read."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from klog.client.admin import Resource, ResourceType
from klog.cluster_metadata.directory_check import Replica
from klog.cluster_metadata.kraft_layout import Layout, Node, Role
from klog.cluster_metadata.kraft_preparation import Prepared, prepared
from klog.cluster_metadata.metadata_versions import LATEST, LEVELS, features_at, level_of, name_of
from klog.cluster_metadata.model import (
    METADATA_VERSION,
    Broker,
    Cluster,
    Controller,
    Partition,
    SupportedVersions,
    Topic,
    Voter,
    VoterEndpoint,
)
from klog.cluster_metadata.node_properties import layout_of, read
from klog.config.password_encoder import PasswordEncoder
from klog.formats.errors import UsageError
from klog.formats.names import TopicPartition
from klog.metadata.values import LeaderAndIsr, ReplicaAssignment

TOPIC_ID, A_ID, B_ID = "ey5g-FnqTD-kdOop3hS1Qw", "frJNbmKCSHu4o8p06x_jmw", "0GGzwpLNmJPrCrKx-lOUsQ"
UNKNOWN = "A" * 22
TOPIC = Resource(ResourceType.TOPIC, "t")
BROKER = Resource(ResourceType.BROKER, "1")
LAYOUT = Layout((Node(1, frozenset(Role), {"/a": A_ID, "/b": B_ID}, "/a"),))


def prepare(
    cluster: Cluster,
    *,
    level: str = LATEST,
    replicas: Mapping[TopicPartition, Replica] | None = None,
    secret: str | None = None,
) -> Prepared:
    features = {METADATA_VERSION: level_of(level)}
    return prepared(cluster, LAYOUT, {1: replicas or {}}, features, secret, random.Random(1).randbytes)


def with_topic(topic_id: str | None = TOPIC_ID, state: LeaderAndIsr | None = None) -> Cluster:
    return Cluster("c", {"t": Topic(topic_id, {0: Partition(ReplicaAssignment((1, 2)), state)})})


def test_partitions_of_a_stopped_cluster_keep_the_isr_and_have_no_leader() -> None:
    found = prepare(with_topic(state=LeaderAndIsr(2, 5, (2,)))).cluster
    assert found.topics["t"].partitions[0].state == LeaderAndIsr(-1, 5, (2,))
    never_led = prepare(with_topic()).cluster
    assert never_led.topics["t"].partitions[0].state == LeaderAndIsr(-1, 0, (1, 2))


def test_a_topic_without_an_id_gets_that_of_its_directories_or_a_new_one() -> None:
    drawn = prepare(with_topic(None))
    assert drawn.cluster.topics["t"].topic_id not in (None, TOPIC_ID)
    assert "topics without an id get one: t" in drawn.changes
    replicas = {TopicPartition("t", 0): Replica("/a/t-0", A_ID, None)}
    assert prepare(with_topic(None), replicas=replicas).cluster.topics["t"].topic_id == A_ID
    assert prepare(with_topic(), replicas=replicas).cluster.topics["t"].topic_id == TOPIC_ID


def test_a_replica_that_is_here_gets_the_id_of_its_directory() -> None:
    replicas = {TopicPartition("t", 0): Replica("/b/t-0", TOPIC_ID, None)}
    found = prepare(with_topic(), replicas=replicas).cluster
    assert found.topics["t"].partitions[0].directories == (B_ID, UNKNOWN)
    assert prepare(with_topic()).cluster.topics["t"].partitions[0].directories == ()


def test_registrations_of_kraft_stay_fenced_and_others_go() -> None:
    cluster = Cluster(
        "c", brokers={1: Broker(incarnation_id=A_ID), 2: Broker()}, controllers={3: Controller()}
    )
    found = prepare(cluster).cluster
    assert found.brokers == {1: Broker(incarnation_id=A_ID, is_fenced=True)}
    assert found.controllers == {}


@pytest.mark.parametrize(
    ("resource", "configs", "found"),
    [
        (TOPIC, {"message.format.version": "2.0", "retention.ms": "1"}, {"retention.ms": "1"}),
        (TOPIC, {"message.downconversion.enable": "true"}, None),
        (TOPIC, {"segment.bytes": "100000"}, {"segment.bytes": "1048576"}),
        (TOPIC, {"segment.bytes": "2000000"}, {"segment.bytes": "2000000"}),
        (
            TOPIC,
            {"message.timestamp.difference.max.ms": "7"},
            {"message.timestamp.before.max.ms": "7", "message.timestamp.after.max.ms": "7"},
        ),
        (
            BROKER,
            {"log.segment.bytes": "14", "log.message.downconversion.enable": "true"},
            {"log.segment.bytes": "1048576"},
        ),
        (
            BROKER,
            {"advertised.listeners": "PLAINTEXT://h:1", "log.cleaner.threads": "2"},
            {"log.cleaner.threads": "2"},
        ),
    ],
)
def test_configs_that_kafka_4_refuses_are_changed_and_named(
    resource: Resource, configs: dict[str, str | None], found: dict[str, str] | None
) -> None:
    cluster = Cluster("c", configs={resource: configs})
    made = prepare(cluster)
    assert made.cluster.configs == ({} if found is None else {resource: found})
    named = [change for change in made.changes if any(name in change for name in configs)]
    assert bool(named) == (configs != found)
    assert prepare(cluster, level="3.9").cluster.configs == {resource: configs}


def test_passwords_are_decrypted_by_the_secret_or_left_out() -> None:
    stored = PasswordEncoder("s", iterations=10).encode("hidden")
    cluster = Cluster("c", configs={BROKER: {"ssl.keystore.password": stored}})
    assert prepare(cluster, secret="s").cluster.configs == {BROKER: {"ssl.keystore.password": "hidden"}}
    without = prepare(cluster)
    assert without.cluster.configs == {}
    assert "ssl.keystore.password of broker 1 is encrypted and left out" in without.changes[0]
    with pytest.raises(UsageError, match=r"ssl\.keystore\.password of broker 1"):
        prepare(cluster, secret="other")


# --- features ---


def test_eligible_leaders_need_the_registrations_of_all_brokers() -> None:
    """Real Kafka 4.1 elects no leader for partitions of a broker that it takes for crashed."""
    registered = {each: Broker(incarnation_id=A_ID) for each in (1, 2)}
    cluster = replace(with_topic(), features={"eligible.leader.replicas.version": 1})
    found = prepare(replace(cluster, brokers=registered)).cluster
    assert found.features["eligible.leader.replicas.version"] == 1
    with pytest.raises(UsageError, match=r"eligible\.leader\.replicas\.version cannot be on"):
        prepare(replace(cluster, brokers={1: registered[1]}))


@pytest.mark.parametrize(
    ("leader", "isr", "eligible", "last", "then", "then_last"),
    [
        (2, (2,), (), (), (2,), (2,)),
        (2, (1, 2), (), (), (1, 2), (2,)),
        (-1, (), (2, 1), (1,), (2, 1), (1,)),
        (-1, (1,), (2,), (-1,), (1, 2), (1,)),
        (-1, (), (), (2,), (), (2,)),
    ],
)
def test_with_eligible_leaders_a_partition_is_as_if_all_brokers_had_stopped(
    leader: int,
    isr: tuple[int, ...],
    eligible: tuple[int, ...],
    last: tuple[int, ...],
    then: tuple[int, ...],
    then_last: tuple[int, ...],
) -> None:
    """Kafka 4.1 would never give a leader to one whose only in-sync replica is on a broker that crashed."""
    registered = {each: Broker(incarnation_id=A_ID) for each in (1, 2)}
    partition = Partition(
        ReplicaAssignment((1, 2)),
        LeaderAndIsr(leader, 5, isr),
        eligible_leaders=eligible,
        last_known_eligible_leaders=last,
    )
    features = {"eligible.leader.replicas.version": 1}
    cluster = Cluster("c", {"t": Topic(TOPIC_ID, {0: partition})}, features=features, brokers=registered)

    made = prepare(cluster)

    found = made.cluster.topics["t"].partitions[0]
    assert found.state == LeaderAndIsr(-1, 5, ())
    assert ("eligible leaders are all replicas that were in sync" in "".join(made.changes)) == (
        last != then_last
    )
    assert (found.eligible_leaders, found.last_known_eligible_leaders) == (then, then_last)


def test_where_no_eligible_leaders_are_kept_they_become_the_isr() -> None:
    partition = Partition(ReplicaAssignment((1, 2)), LeaderAndIsr(-1, 5, ()), eligible_leaders=(2,))
    found = prepare(Cluster("c", {"t": Topic(TOPIC_ID, {0: partition})})).cluster
    assert found.topics["t"].partitions[0] == Partition(partition.assignment, LeaderAndIsr(-1, 5, (2,)))


def test_levels_have_kafkas_names() -> None:
    assert [level_of(each) for each in ("3.3", "3.9", "4.0", "4.1", "4.0-IV1", "17")] == [
        7,
        21,
        25,
        27,
        23,
        17,
    ]
    assert name_of(LEVELS["4.1-IV1"]) == "4.1-IV1"
    with pytest.raises(UsageError, match=r"metadata\.version 2\.8 is unknown"):
        level_of("2.8")


@pytest.mark.parametrize(
    ("level", "present", "chosen", "found"),
    [
        ("3.9", {"group.version": 1}, {}, {}),
        ("4.0", {}, {}, {"group.version": 1, "transaction.version": 2}),
        (
            "4.1",
            {"transaction.version": 1},
            {"share.version": 1},
            {"group.version": 1, "transaction.version": 1, "share.version": 1},
        ),
        (
            "4.1",
            {"eligible.leader.replicas.version": 1},
            {"group.version": 0},
            {"transaction.version": 2, "eligible.leader.replicas.version": 1},
        ),
    ],
)
def test_features_are_those_chosen_then_those_present_then_the_defaults(
    level: str, present: dict[str, int], chosen: dict[str, int], found: dict[str, int]
) -> None:
    assert features_at(level_of(level), present, chosen) == found


def test_a_feature_that_the_metadata_version_has_not_is_refused() -> None:
    with pytest.raises(UsageError, match=r"metadata\.version 3\.9-IV0 has no feature group\.version"):
        features_at(21, {}, {"group.version": 1})


# --- properties files ---

STATIC = "controller.quorum.voters=1@h:9093\n"
DYNAMIC = "controller.quorum.bootstrap.servers=h:9093\n"


def properties(path: Path, name: str, text: str) -> str:
    (path / name).write_text(text)
    return str(path / name)


def layout(*files: str) -> Layout:
    return layout_of([read(file) for file in files], random.Random(1).randbytes)


def test_a_combined_node_has_its_log_directories_and_that_of_the_metadata(tmp_path: Path) -> None:
    file = properties(
        tmp_path,
        "server.properties",
        f"process.roles=broker, controller\nnode.id=1\nlog.dirs=/a, /b/\nmetadata.log.dir=/m\n{STATIC}",
    )
    (node,) = layout(file).nodes
    assert (node.node_id, node.roles, node.metadata_directory) == (1, frozenset(Role), "/m")
    assert list(node.directories) == ["/m", "/a", "/b"]


def test_a_controller_uses_the_directory_of_the_metadata_only(tmp_path: Path) -> None:
    file = properties(tmp_path, "c", f"process.roles=controller\nnode.id=1\nlog.dirs=/a,/b\n{STATIC}")
    assert list(layout(file).nodes[0].directories) == ["/a"]


def test_voters_of_a_dynamic_quorum_are_the_controllers(tmp_path: Path) -> None:
    listeners = "listeners=CONTROLLER://:9093\nadvertised.listeners=CONTROLLER://h:9093\n"
    controller = properties(
        tmp_path, "c", f"process.roles=controller\nnode.id=7\nlog.dirs=/c\n{DYNAMIC}{listeners}"
    )
    broker = properties(tmp_path, "b", f"process.roles=broker\nnode.id=1\nlog.dirs=/b\n{DYNAMIC}")
    found = layout(controller, broker)
    directory_id = found.nodes[0].directories["/c"]
    endpoints = (VoterEndpoint("CONTROLLER", "h", 9093),)
    assert found.voters == {7: Voter(directory_id, endpoints, SupportedVersions(0, 1))}


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["node.id=1\nlog.dirs=/a\n"], "--voters names the controllers"),
        (["process.roles=admin\nnode.id=1\nlog.dirs=/a\n"], "process.roles=admin is not valid"),
        (["process.roles=broker\nlog.dirs=/a\n"], r"node.id=\(not set\) is not valid"),
        (["process.roles=broker\nnode.id=1\n"], "sets neither log.dirs nor metadata.log.dir"),
        (["process.roles=broker\nnode.id=1\nlog.dirs=/a\n"], "sets neither controller.quorum.voters"),
        (
            ["process.roles=controller\nnode.id=1\nlog.dirs=/a\ncontroller.quorum.voters=1@h:1,2@h:2\n"],
            "names voter 2, and no --config is that controller's",
        ),
        (
            [f"process.roles=controller\nnode.id={n}\nlog.dirs=/{n}\n{STATIC}" for n in (1, 2)],
            "does not name controller 2",
        ),
        (
            [f"process.roles=broker\nnode.id=1\nlog.dirs=/{n}\n{STATIC}" for n in (1, 2)],
            "node.id 1 is also in",
        ),
        ([f"process.roles=broker\nnode.id={n}\nlog.dirs=/a\n{STATIC}" for n in (1, 2)], "/a is also in"),
        (
            [f"process.roles=controller\nnode.id=1\nlog.dirs=/a\n{DYNAMIC}listeners=CONTROLLER://:9093\n"],
            "no host and port of listener CONTROLLER",
        ),
    ],
)
def test_properties_that_say_too_little_or_contradict_each_other_are_refused(
    texts: list[str], message: str, tmp_path: Path
) -> None:
    files = [properties(tmp_path, f"{number}.properties", text) for number, text in enumerate(texts)]
    with pytest.raises(UsageError, match=message):
        layout(*files)


# --- reassignments that ZooKeeper has in a node of their own ---


def requested(
    target: tuple[int, ...], replicas: tuple[int, ...], isr: tuple[int, ...] | None
) -> tuple[Prepared, Partition]:
    state = None if isr is None else LeaderAndIsr(isr[0], 5, isr)
    topics = {"t": Topic(TOPIC_ID, {0: Partition(ReplicaAssignment(replicas), state)})}
    wanted = {TopicPartition("t", 0): target}
    found = prepare(Cluster("c", topics, requested_reassignments=wanted))
    return found, found.cluster.topics["t"].partitions[0]


@pytest.mark.parametrize(
    ("target", "replicas", "isr", "becomes"),
    [
        ((3, 4), (1, 2), (1, 2), ReplicaAssignment((3, 4, 1, 2), (3, 4), (1, 2))),
        ((1, 3), (1, 2), (1, 2), ReplicaAssignment((1, 3, 2), (3,), (2,))),
        # Kafka before 2.4 has begun: the new replica is there, and not in sync.
        ((3,), (3, 1), (1,), ReplicaAssignment((3, 1), (3,), (1,))),
        # It had not removed the old one yet.
        ((3,), (3, 1), (1, 3), ReplicaAssignment((3, 1), (), (1,))),
        # Only the order changes.
        ((2, 1), (1, 2), (1, 2), ReplicaAssignment((2, 1))),
        ((3,), (1,), None, ReplicaAssignment((3, 1), (3,), (1,))),
    ],
)
def test_a_reassignment_that_was_requested_begins(
    target: tuple[int, ...],
    replicas: tuple[int, ...],
    isr: tuple[int, ...] | None,
    becomes: ReplicaAssignment,
) -> None:
    found, partition = requested(target, replicas, isr)
    assert partition.assignment == becomes
    assert found.cluster.requested_reassignments == {}
    assert "reassignments that were requested begin: t-0" in found.changes


@pytest.mark.parametrize("target", [(), (1, 1), (-1,)])
def test_a_reassignment_to_no_valid_brokers_stays_a_request(target: tuple[int, ...]) -> None:
    found, partition = requested(target, (1, 2), (1, 2))
    assert partition.assignment == ReplicaAssignment((1, 2))
    assert found.cluster.requested_reassignments == {TopicPartition("t", 0): target}


def test_replicas_that_come_with_a_reassignment_have_no_directory_yet() -> None:
    topics = {"t": Topic(TOPIC_ID, {0: Partition(ReplicaAssignment((1,)), None, (A_ID,))})}
    wanted = {TopicPartition("t", 0): (2,)}
    found = prepare(Cluster("c", topics, requested_reassignments=wanted)).cluster
    assert found.topics["t"].partitions[0].directories == (UNKNOWN, A_ID)


def test_the_id_of_a_directory_that_is_gone_is_left_out() -> None:
    """With KIP-966, Kafka 4.1 strikes out the eligible leaders of a partition if a replica has such an id."""
    topics = {"t": Topic(TOPIC_ID, {0: Partition(ReplicaAssignment((1, 2)), None, (TOPIC_ID, TOPIC_ID))})}
    found = prepare(Cluster("c", topics)).cluster.topics["t"].partitions[0]
    assert found.directories == (UNKNOWN, TOPIC_ID), "the directories of broker 2 are elsewhere"
