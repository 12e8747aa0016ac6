"""What handlers remember of partitions is forgotten with the state of the cluster in which it was found."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from pathlib import Path

import pytest

from klog.formats.names import TopicPartition
from klog.protocol.interbroker.stop_replica import EPOCH_DURING_DELETE, StopReplicaPartitionState
from klog.server.handlers.remembered_targets import RememberedTargets
from tests.control_requests import stop_replica
from tests.server.handlers.parts import TOPIC, Broker


@pytest.fixture
def broker(tmp_path: Path) -> Broker:
    broker = Broker(tmp_path)
    broker.lead()
    return broker


@pytest.fixture
def remembered(broker: Broker) -> RememberedTargets[str, object]:
    return RememberedTargets(broker.lookup)


def delete(broker: Broker) -> None:
    state = StopReplicaPartitionState(
        partition_index=0, leader_epoch=EPOCH_DURING_DELETE, delete_partition=True
    )
    broker.replicas.stop_replicas(stop_replica({TopicPartition(TOPIC, 0): state}))


def test_targets_are_remembered_while_nothing_changes(remembered) -> None:
    remembered.present().by_key["key"] = "target"
    assert remembered.present().by_key == {"key": "target"}


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
    remembered.present().by_key["key"] = "target"
    change(broker)
    assert remembered.present().by_key == {}


def test_a_deleted_partition_is_not_kept_alive(broker, remembered) -> None:
    targets = remembered.present()
    targets.by_key["key"] = targets.replicas[TOPIC, 0]
    log = weakref.ref(broker.replicas.partitions[TOPIC, 0].log)
    del targets
    delete(broker)
    gc.collect()
    assert log() is None
