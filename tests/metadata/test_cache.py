"""The metadata cache of a broker, as the controller's updates make it."""

from __future__ import annotations

from klog.formats.names import TopicPartition, encode_uuid
from klog.metadata.cache import MetadataCache
from klog.metadata.values import BrokerRegistration, Endpoint
from klog.protocol.interbroker.update_metadata import (
    LEADER_DURING_DELETE,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
)
from tests.control_requests import update_metadata, update_metadata_state

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
ONE = BrokerRegistration(
    1, (Endpoint("PLAIN", "PLAINTEXT", "one", 9092), Endpoint("TLS", "SSL", "one", 9093)), "rack"
)
TWO = BrokerRegistration(2, (Endpoint("PLAIN", "PLAINTEXT", "two", 9092),))
IDS = {"t": encode_uuid(b"the id of t 1234"), "u": encode_uuid(b"the id of u 1234")}
ANOTHER_ID = encode_uuid(b"another id of t ")


def state(
    partition: TopicPartition, leader: int, epoch: int = 0
) -> tuple[TopicPartition, UpdateMetadataPartitionState]:
    return partition, update_metadata_state(
        partition.partition, leader, (1, 2), leader_epoch=epoch, isr=(leader,)
    )


def update(
    *states: tuple[TopicPartition, UpdateMetadataPartitionState],
    brokers: tuple[BrokerRegistration, ...] = (ONE, TWO),
    controller: int = 1,
) -> UpdateMetadataRequest:
    return update_metadata(dict(states), IDS, brokers, controller_id=controller)


def test_partitions_are_merged_and_brokers_replaced() -> None:
    cache = MetadataCache()
    assert cache.update(update(state(T0, 1), state(U0, 2))) == ()
    assert cache.update(update(state(T1, 2), state(T0, 2, 1), brokers=(TWO,))) == ()
    now = cache.snapshot
    assert {topic: sorted(partitions) for topic, partitions in now.topics.items()} == {"t": [0, 1], "u": [0]}
    assert now.partition(T0) == state(T0, 2, 1)[1]
    assert now.partition(TopicPartition("t", 7)) is None
    assert now.partition(TopicPartition("v", 0)) is None
    assert list(now.brokers) == [2]
    assert now.topic_ids == IDS
    assert now.topic_names == {IDS["t"]: "t", IDS["u"]: "u"}


def test_an_update_without_partitions_replaces_only_the_brokers() -> None:
    cache = MetadataCache()
    cache.update(update(state(T0, 1)))
    cache.update(update(brokers=(ONE,), controller=-1))
    assert cache.snapshot.partition(T0) == state(T0, 1)[1]
    assert list(cache.snapshot.brokers) == [1]
    assert cache.snapshot.controller_id is None


def test_a_topic_is_removed_with_its_last_partition() -> None:
    cache = MetadataCache()
    cache.update(update(state(T0, 1), state(T1, 1), state(U0, 1)))
    assert cache.update(update(state(T0, LEADER_DURING_DELETE))) == (T0,)
    assert list(cache.snapshot.topics["t"]) == [1]
    assert cache.snapshot.topic_ids == IDS
    assert cache.update(update(state(T1, LEADER_DURING_DELETE))) == (T1,)
    assert "t" not in cache.snapshot.topics
    assert cache.snapshot.topic_ids == {"u": IDS["u"]}
    assert cache.update(update(state(T1, LEADER_DURING_DELETE))) == (T1,)


def test_a_topic_that_is_created_again_has_only_its_new_id() -> None:
    cache = MetadataCache()
    cache.update(update(state(T0, 1)))
    cache.update(update_metadata(dict([state(T0, 2)]), {"t": ANOTHER_ID}, (ONE, TWO)))
    assert cache.snapshot.topic_names == {ANOTHER_ID: "t"}


def test_a_snapshot_never_changes() -> None:
    cache = MetadataCache()
    cache.update(update(state(T0, 1)))
    before = cache.snapshot
    cache.update(update(state(T0, LEADER_DURING_DELETE), state(U0, 1)))
    assert before.partition(T0) == state(T0, 1)[1]
    assert before.partition(U0) is None


def test_the_initial_brokers_are_replaced_by_the_first_update() -> None:
    cache = MetadataCache()
    cache.set_initial_brokers({1: ONE})
    assert cache.snapshot.brokers == {1: ONE}
    assert cache.snapshot.controller_id is None
    assert not cache.wait_for(lambda _: True, 0)
    cache.update(update(brokers=(TWO,), controller=2))
    assert cache.wait_for(lambda _: True, 0)
    assert not cache.wait_for(lambda found: "t" in found.topics, 0)
    cache.set_initial_brokers({1: ONE})
    assert list(cache.snapshot.brokers) == [2]
    assert cache.snapshot.controller_id == 2
    cache.update(update(state(T0, 2)))
    assert cache.wait_for(lambda found: "t" in found.topics, 0)
