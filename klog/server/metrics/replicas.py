"""Metrics of replicas: Kafka's `kafka.server:type=ReplicaManager` and `kafka.cluster:type=Partition`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from klog.drivers.isr_changes import IsrCounts
from klog.replication.partition import Partition
from klog.server.metrics.exposition import Labels, Metric, Sample, counter, gauge

_PREFIX: Final = "kafka_server_replicamanager_"
_PARTITIONS_A_TURN: Final = 500


class _InSync(NamedTuple):
    """How well one partition is replicated: 0 everywhere if another broker leads it, as in Kafka."""

    is_leader: bool = False
    is_under_replicated: bool = False
    in_sync: int = 0
    replicas: int = 0
    is_under_min_isr: bool = False
    is_at_min_isr: bool = False
    is_reassigning: bool = False
    last_stable_offset_lag: int = 0


_FOLLOWS: Final = _InSync()
_OF_ALL_LED: Final = (
    ("leadercount", "is_leader", "partitions that this broker leads"),
    ("underreplicatedpartitions", "is_under_replicated", "led partitions with replicas out of sync"),
    ("underminisrpartitioncount", "is_under_min_isr", "led partitions below min.insync.replicas"),
    ("atminisrpartitioncount", "is_at_min_isr", "led partitions at min.insync.replicas"),
    ("reassigningpartitions", "is_reassigning", "led partitions whose replicas are being changed"),
)
_OF_A_PARTITION: Final = (
    ("underreplicated", "is_under_replicated", "1 if replicas are out of sync"),
    ("insyncreplicascount", "in_sync", "in-sync replicas"),
    ("replicascount", "replicas", "replicas"),
    ("underminisr", "is_under_min_isr", "1 if below min.insync.replicas"),
    ("atminisr", "is_at_min_isr", "1 if at min.insync.replicas"),
    ("laststableoffsetlag", "last_stable_offset_lag", "records from the last stable offset on"),
)


def replica_metrics(
    partitions: Sequence[Partition], offline: int, counts: IsrCounts, pause: Callable[[], None]
) -> Iterator[Metric]:
    """The metrics of all replicas; `offline` is the number of those on failed disks."""
    found: list[_InSync] = []
    for number, partition in enumerate(partitions):
        if number % _PARTITIONS_A_TURN == 0:
            pause()
        found.append(_in_sync(partition))
    yield gauge(f"{_PREFIX}partitioncount", "replicas on this broker", len(partitions))
    for name, field, help_text in _OF_ALL_LED:
        yield gauge(f"{_PREFIX}{name}", help_text, sum(getattr(each, field) for each in found))
    yield gauge(f"{_PREFIX}offlinereplicacount", "replicas on failed disks", offline)
    yield counter(f"{_PREFIX}isrshrinks_total", "ISRs that lost members", counts.shrinks)
    yield counter(f"{_PREFIX}isrexpands_total", "ISRs that won members", counts.expands)
    yield counter(f"{_PREFIX}failedisrupdates_total", "changes of ISRs that were refused", counts.failures)
    labels: list[Labels] = [each.topic_partition._asdict() for each in partitions]
    for name, field, help_text in _OF_A_PARTITION:
        samples = (Sample(label, getattr(each, field)) for label, each in zip(labels, found, strict=True))
        yield Metric(f"kafka_cluster_partition_{name}", "gauge", help_text, samples)


def _in_sync(partition: Partition) -> _InSync:
    state = partition.state
    if not state.is_leader:
        return _FOLLOWS
    assignment, in_sync = state.assignment, len(state.isr.committed)
    # A replica that a reassignment adds is not missing yet.
    wanted = sum(each not in assignment.adding for each in assignment.replicas)
    beyond_minimum = in_sync - partition.min_in_sync_replicas
    log = partition.log
    return _InSync(
        is_leader=True,
        is_under_replicated=wanted > in_sync,
        in_sync=in_sync,
        replicas=len(assignment.replicas),
        is_under_min_isr=beyond_minimum < 0,
        is_at_min_isr=beyond_minimum == 0,
        is_reassigning=bool(assignment.adding or assignment.removing),
        last_stable_offset_lag=log.high_watermark - log.last_stable_offset,
    )
