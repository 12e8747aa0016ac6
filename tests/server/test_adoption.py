"""Which topics `klog adopt` puts back, and which directories it leaves."""

from __future__ import annotations

from contextlib import closing

import pytest

from klog.config.broker import BrokerConfig
from klog.formats.names import TopicPartition
from klog.metadata.cluster import create_persistent_nodes
from klog.metadata.configs import read_config, write_config
from klog.metadata.embedded import EmbeddedStore
from klog.metadata.topics import read_partition_states
from klog.metadata.values import (
    LeaderAndIsr,
    LeaderIsrAndControllerEpoch,
    ReplicaAssignment,
    TopicAssignment,
)
from klog.server.logs.unowned_logs import StoredReplica
from klog.server.startup.adoption import Adoption, AdoptionPlan, adopt, plan_adoption, with_configs

ME = 7


def replica(number: int, topic_id: str | None = "id", epoch: int = 3, topic: str = "t") -> StoredReplica:
    return StoredReplica(f"/d/{topic}-{number}", TopicPartition(topic, number), topic_id, epoch)


def plan(
    replicas: list[StoredReplica], *topics: TopicAssignment, allow_missing: bool = False
) -> AdoptionPlan:
    known = {topic.topic: topic for topic in topics}
    return plan_adoption(replicas, known, frozenset(), {}, ME, allow_missing=allow_missing)


def test_a_topic_comes_back_with_its_id_and_epochs_above_those_of_its_records() -> None:
    (found,) = plan([replica(1, epoch=-1), replica(0)]).adoptions
    mine = ReplicaAssignment((ME,))
    assert found.assignment == TopicAssignment("t", "id", {0: mine, 1: mine})
    assert (found.epochs, found.empty, found.is_new) == ({0: 4, 1: 0}, (), True)


def test_a_topic_without_an_id_comes_back_without_one() -> None:
    (found,) = plan([replica(0, None)]).adoptions
    assert found.assignment.topic_id is None


def test_partitions_that_were_added_later_are_added_again() -> None:
    present = TopicAssignment("t", "id", {0: ReplicaAssignment((ME,))})
    (found,) = plan([replica(0), replica(1)], present).adoptions
    assert (list(found.assignment.partitions), found.epochs, found.is_new) == ([0, 1], {1: 4}, False)


def test_a_missing_partition_comes_back_empty_only_if_asked() -> None:
    left = plan([replica(0), replica(2)])
    assert not left.adoptions
    assert all("partitions 1 have no directory" in each.why for each in left.left)
    (found,) = plan([replica(0), replica(2)], allow_missing=True).adoptions
    assert (found.empty, found.epochs) == ((1,), {0: 4, 1: 0, 2: 4})


def test_directories_with_two_topic_ids_are_left() -> None:
    found = plan([replica(0, "one"), replica(1, "two")])
    assert not found.adoptions
    assert [each.why for each in found.left] == ["the directories have different topic ids: one, two"] * 2


def test_directories_of_another_topic_of_the_name_or_of_other_brokers_are_left() -> None:
    other = TopicAssignment("t", "new", {})
    assert [each.replica.path for each in plan([replica(0)], other).left] == ["/d/t-0"]
    elsewhere = TopicAssignment("t", "id", {0: ReplicaAssignment((8,))})
    found = plan([replica(0)], elsewhere)
    assert not found.adoptions
    assert [each.why for each in found.left] == ["its replicas are on other brokers: 8"]


def test_an_invalid_znode_leaves_the_directories_of_its_topic() -> None:
    found = plan_adoption([replica(0)], {}, frozenset({"t"}), {}, ME)
    assert [each.why for each in found.left] == ["the topic's znode is invalid"]


def test_a_leader_epoch_below_that_of_the_records_is_raised() -> None:
    where = TopicPartition("t", 0)
    present = TopicAssignment("t", "id", {0: ReplicaAssignment((ME,))})
    for stored, raised in ((2, 4), (3, None)):
        state = LeaderIsrAndControllerEpoch(LeaderAndIsr(ME, stored, (ME,)), 1)
        found = plan_adoption([replica(0)], {"t": present}, frozenset(), {where: state}, ME)
        epochs = {key: each.leader_and_isr.leader_epoch for key, each in found.raised.items()}
        assert epochs == ({} if raised is None else {where: raised})


@pytest.mark.parametrize(
    ("latest", "next_epoch"), [(-1, 0), (2**30 - 2, 2**30 - 1), (2**31 - 1, 0), (2**31 - 2, 0)]
)
def test_an_epoch_that_leaves_no_room_for_elections_is_damage(latest: int, next_epoch: int) -> None:
    (found,) = plan([replica(0, epoch=latest)]).adoptions
    assert found.epochs == {0: next_epoch}


def test_the_coordinators_topics_come_back_compacted_and_others_keep_all_records(tmp_path) -> None:
    """With another cleanup policy, committed offsets would be deleted with age, or pile up for ever."""
    found = plan([replica(0, topic=name) for name in ("t", "__consumer_offsets", "__transaction_state")])
    config = BrokerConfig({"transaction.state.log.min.isr": "1"})
    with closing(EmbeddedStore(tmp_path / "metadata")) as store:
        create_persistent_nodes(store)
        found = with_configs(store, found, config, {})
        adopt(store, found, ME)
        configs = {each.assignment.topic: topic_config(store, each) for each in found.adoptions}
        states = read_partition_states(store, [TopicPartition("__consumer_offsets", 0)])
    assert states[TopicPartition("__consumer_offsets", 0)].leader_and_isr.leader == ME
    assert configs["t"]["retention.ms"] == "-1"
    assert configs["__consumer_offsets"] == {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": "104857600",
    }
    assert configs["__transaction_state"] == {
        "cleanup.policy": "compact",
        "compression.type": "uncompressed",
        "min.insync.replicas": "1",
        "segment.bytes": "104857600",
        "unclean.leader.election.enable": "false",
    }


def test_configs_that_are_given_are_written_and_those_in_the_metadata_stay(tmp_path) -> None:
    found = plan([replica(0, topic=name) for name in ("given", "stored", "both", "none")])
    given = {"given": {"retention.ms": "5"}, "both": {"cleanup.policy": "compact"}, "other": {"a": "b"}}
    with closing(EmbeddedStore(tmp_path / "metadata")) as store:
        create_persistent_nodes(store)
        for name in ("stored", "both"):
            write_config(store, f"topics/{name}", {"retention.ms": "9"})
        found = with_configs(store, found, BrokerConfig({}), given)
        adopt(store, found, ME)
        configs = {each.assignment.topic: topic_config(store, each) for each in found.adoptions}
    assert configs["given"] == {"retention.ms": "5"}
    assert configs["stored"] == {"retention.ms": "9"}
    assert configs["both"] == {"cleanup.policy": "compact"}
    assert configs["none"]["retention.ms"] == "-1"
    assert found.keeps_all_records
    without = [each.assignment.topic for each in found.adoptions if each.configs is None]
    assert without == ["stored"]


def topic_config(store: EmbeddedStore, adoption: Adoption) -> dict[str, str]:
    return dict(read_config(store, f"topics/{adoption.assignment.topic}"))
