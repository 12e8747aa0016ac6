"""What handlers remember of partitions is forgotten with the state of the cluster in which it was found."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest

from klog.formats.names import TopicPartition, encode_uuid
from klog.protocol.interbroker.stop_replica import EPOCH_DURING_DELETE, StopReplicaPartitionState
from klog.server.handlers.data.remembered_targets import RememberedTargets
from tests.control_requests import stop_replica
from tests.server.handlers.parts import OTHER_BROKER, TOPIC, TOPIC_UUID, Broker


@pytest.fixture
def broker(tmp_path: Path) -> Broker:
    broker = Broker(tmp_path)
    broker.lead()
    return broker


@pytest.fixture
def remembered(broker: Broker) -> RememberedTargets:
    return RememberedTargets(broker.lookup)


def delete(broker: Broker) -> None:
    state = StopReplicaPartitionState(
        partition_index=0, leader_epoch=EPOCH_DURING_DELETE, delete_partition=True
    )
    broker.replicas.stop_replicas(stop_replica({TopicPartition(TOPIC, 0): state}))


@pytest.mark.parametrize(("topic", "by_id"), [(TOPIC.encode(), False), (TOPIC_UUID.bytes, True)])
def test_targets_are_remembered_while_nothing_changes(broker, remembered, topic, by_id) -> None:
    target = remembered.find(topic, 0, by_id=by_id)
    assert target.partition is broker.replicas.partitions[TOPIC, 0]
    assert (target.key, target.topic_id) == ((TOPIC, 0), TOPIC_UUID if by_id else None)
    assert remembered.find(topic, 0, by_id=by_id) is target


def test_names_and_ids_are_not_confused(broker) -> None:
    name = "name-of-sixteen_"
    broker.lead(name, topic_id=None)
    remembered = RememberedTargets(broker.lookup)
    assert remembered.find(name.encode(), 0, by_id=False) is not None
    assert remembered.find(name.encode(), 0, by_id=True) is None


def test_what_is_not_here_or_not_known_is_no_target(broker, remembered) -> None:
    broker.lead("untold", tell=False)
    broker.tell("elsewhere", leader=OTHER_BROKER)
    for topic, index in ((b"unknown", 0), (b"untold", 0), (b"elsewhere", 0), (TOPIC.encode(), 1)):
        assert remembered.find(topic, index, by_id=False) is None
    assert remembered.find(bytes(16), 0, by_id=True) is None


def test_a_partition_of_another_topic_id_is_no_target(broker, remembered) -> None:
    other = UUID(int=5)
    broker.tell(topic_id=encode_uuid(other.bytes))
    assert broker.lookup.topic_name(other) == TOPIC
    assert remembered.find(other.bytes, 0, by_id=True) is None


@pytest.mark.parametrize(
    "change",
    [
        lambda broker: broker.tell(partition=1),
        lambda broker: broker.lead(partition=1, tell=False),
        lambda broker: broker.lead(epoch=1, tell=False),
        delete,
    ],
    ids=["metadata", "a new replica", "a leader epoch", "a deletion"],
)
def test_a_change_forgets_all_targets(broker, remembered, change: Callable[[Broker], object]) -> None:
    target = remembered.find(TOPIC.encode(), 0, by_id=False)
    change(broker)
    assert remembered.find(TOPIC.encode(), 0, by_id=False) is not target


def test_a_deleted_partition_is_not_kept_alive(broker, remembered) -> None:
    remembered.find(TOPIC.encode(), 0, by_id=False)
    log = weakref.ref(broker.replicas.partitions[TOPIC, 0].log)
    delete(broker)
    gc.collect()
    assert log() is None
