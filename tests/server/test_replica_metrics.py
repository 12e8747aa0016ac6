"""Metrics of replicas: which partitions lack in-sync replicas, and how often ISRs change."""

from __future__ import annotations

from pathlib import Path

import pytest

from klog.drivers.isr_changes import IsrCounts
from klog.protocol.interbroker.leader_and_isr import LeaderAndIsrPartitionState
from klog.replication.partition import Partition
from klog.server.metrics.exposition import render
from klog.server.metrics.replicas import replica_metrics
from tests.server.handlers.parts import BROKER, OTHER_BROKER, TOPIC, Broker
from tests.server.test_metrics import values

BOTH = (BROKER, OTHER_BROKER)


@pytest.fixture
def broker(tmp_path: Path) -> Broker:
    return Broker(tmp_path, {TOPIC: {"min.insync.replicas": "2"}})


def found(broker: Broker, counts: IsrCounts | None = None) -> dict[str, float]:
    metrics = replica_metrics(
        list(broker.replicas.partitions.values()), 3, counts or IsrCounts(), lambda: None
    )
    return values(list(render(metrics)))


def of_broker(broker: Broker) -> tuple[float, ...]:
    metrics = found(broker)
    names = ("underreplicatedpartitions", "underminisrpartitioncount", "atminisrpartitioncount")
    return tuple(metrics[f"kafka_server_replicamanager_{name}"] for name in names)


def of_partition(broker: Broker, name: str, number: int = 0) -> float:
    return found(broker)[f'kafka_cluster_partition_{name}{{topic="{TOPIC}",partition="{number}"}}']


def reassigned(partition: Partition, replicas, adding, isr) -> None:
    request = LeaderAndIsrPartitionState(
        partition_index=0,
        controller_epoch=1,
        leader=BROKER,
        leader_epoch=5,
        isr=isr,
        partition_epoch=9,
        replicas=replicas,
        adding_replicas=adding,
    )
    partition.apply(request)


def test_partitions_are_counted_by_their_in_sync_replicas(broker: Broker) -> None:
    broker.lead(partition=0, replicas=BOTH)
    broker.lead(partition=1, replicas=BOTH, isr=(BROKER,))
    broker.lead(partition=2, replicas=BOTH, leader=OTHER_BROKER)
    assert of_broker(broker) == (1, 1, 1)
    metrics = found(broker)
    assert metrics["kafka_server_replicamanager_partitioncount"] == 3
    assert metrics["kafka_server_replicamanager_leadercount"] == 2
    assert metrics["kafka_server_replicamanager_offlinereplicacount"] == 3


def test_each_partition_has_its_own_values_and_none_on_a_follower(broker: Broker) -> None:
    broker.lead(partition=0, replicas=BOTH)
    broker.lead(partition=1, replicas=BOTH, isr=(BROKER,))
    broker.lead(partition=2, replicas=BOTH, leader=OTHER_BROKER)
    names = ("underreplicated", "insyncreplicascount", "replicascount", "underminisr", "atminisr")
    assert [of_partition(broker, name, 0) for name in names] == [0, 2, 2, 0, 1]
    assert [of_partition(broker, name, 1) for name in names] == [1, 1, 2, 1, 0]
    assert [of_partition(broker, name, 2) for name in names] == [0, 0, 0, 0, 0]


def test_a_replica_that_is_being_added_does_not_make_a_partition_under_replicated(broker: Broker) -> None:
    partition = broker.lead(replicas=BOTH)
    reassigned(partition, (*BOTH, 3), (3,), BOTH)
    assert of_broker(broker)[0] == 0
    assert found(broker)["kafka_server_replicamanager_reassigningpartitions"] == 1
    reassigned(partition, (*BOTH, 3), (3,), (BROKER,))
    assert of_broker(broker)[0] == 1


def test_an_open_transaction_shows_as_lag_of_the_last_stable_offset(broker: Broker) -> None:
    broker.lead()
    broker.append(producer_id=9, producer_epoch=0, base_sequence=0, is_transactional=True)
    broker.append(2)
    assert of_partition(broker, "laststableoffsetlag") == 3
    broker.end_transaction(aborted=False)
    assert of_partition(broker, "laststableoffsetlag") == 0


def test_changes_of_isrs_are_counted(broker: Broker) -> None:
    metrics = found(broker, IsrCounts(expands=2, shrinks=3, failures=4))
    prefix = "kafka_server_replicamanager_"
    assert metrics[f"{prefix}isrexpands_total"] == 2
    assert metrics[f"{prefix}isrshrinks_total"] == 3
    assert metrics[f"{prefix}failedisrupdates_total"] == 4
