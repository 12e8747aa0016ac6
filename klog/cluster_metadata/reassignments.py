"""Begins the reassignments that are in ZooKeeper's `/admin/reassign_partitions`, as a controller would.

Kafka before 2.4 keeps a reassignment there to its end, and has new replicas among those of the topic
meanwhile. Nothing marks them. So a replica of the target that is not in sync counts as one that is being
added: the old ones stay until it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from klog.cluster_metadata.kraft_values import UNKNOWN_DIRECTORY
from klog.cluster_metadata.model import Cluster, Partition
from klog.formats.names import TopicPartition
from klog.metadata.values import ReplicaAssignment


def with_begun_reassignments(cluster: Cluster) -> tuple[Cluster, tuple[str, ...]]:
    """The cluster in which requested reassignments are under way, and which partitions these move.

    Requests that no controller would take stay as they are: for partitions that do not exist, or to no valid
    list of brokers.
    """
    topics = {name: dict(each.partitions) for name, each in cluster.topics.items()}
    waiting: dict[TopicPartition, tuple[int, ...]] = {}
    moving = []
    for (name, number), target in sorted(cluster.requested_reassignments.items()):
        partition = topics.get(name, {}).get(number)
        if partition is None or not _is_valid(target):
            waiting[TopicPartition(name, number)] = target
            continue
        topics[name][number] = _begun(partition, target)
        moving.append(f"{name}-{number}")
    if not moving:
        return cluster, ()
    begun = {name: replace(each, partitions=topics[name]) for name, each in cluster.topics.items()}
    return replace(cluster, topics=begun, requested_reassignments=waiting), tuple(moving)


def _is_valid(target: Sequence[int]) -> bool:
    return bool(target) and min(target) >= 0 and len(set(target)) == len(target)


def _begun(partition: Partition, target: tuple[int, ...]) -> Partition:
    present = partition.assignment
    found = present.reassign_to(target)
    if partition.state is not None:
        behind = set(target).difference(partition.state.isr)
        adding = tuple(each for each in found.replicas if each in behind or each in found.adding)
        found = ReplicaAssignment(found.replicas, adding, found.removing)
    known = dict(zip(present.replicas, partition.directories, strict=False))
    directories = tuple(known.get(each, UNKNOWN_DIRECTORY) for each in found.replicas) if known else ()
    return replace(partition, assignment=found, directories=directories)
