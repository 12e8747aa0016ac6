"""Reads from a cluster what a plan starts from: brokers with racks, partitions with replicas and sizes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from klog.admin.reassign.values import BrokerPlace, ClusterState, PartitionState
from klog.admin.requests.reassignments import list_reassignments
from klog.admin.topic_selection import TopicSelection, select_topics
from klog.admin.topics import Topic, find_topics
from klog.client.cluster import Cluster
from klog.client.errors import ClientError
from klog.client.log_dirs import LogDir, describe_log_dirs
from klog.formats.constants import NO_LEADER
from klog.formats.errors import KlogError
from klog.formats.names import TopicPartition


@dataclass(frozen=True, slots=True)
class ClusterReading:
    """A cluster's state, and why some brokers did not tell the sizes of their replicas."""

    state: ClusterState
    failures: Mapping[int, KlogError]


def read_cluster(cluster: Cluster, selection: TopicSelection) -> ClusterReading:
    """The brokers that are alive, and the partitions of the selected topics.

    Raises UnknownTopicError for topics that do not exist, ClientError if a partition is being moved,
    ChannelError.
    """
    topics = select_topics(cluster, selection)
    brokers = read_brokers(cluster)
    _check_idle(cluster, {topic.name for topic in topics})
    found = describe_log_dirs(cluster)
    sizes = _sizes(found.dirs)
    return ClusterReading(ClusterState(brokers, _partitions(topics, sizes)), found.failures)


def read_partitions(cluster: Cluster) -> tuple[PartitionState, ...]:
    """All partitions without their sizes, sorted. Raises RefusedError, ChannelError."""
    return _partitions(find_topics(cluster), {})


def _partitions(
    topics: Iterable[Topic], sizes: Mapping[TopicPartition, Mapping[int, int]]
) -> tuple[PartitionState, ...]:
    return tuple(
        PartitionState(
            (name := TopicPartition(topic.name, part.partition)),
            part.replicas,
            None if part.leader == NO_LEADER else part.leader,
            part.isr,
            _size(sizes.get(name, {}), part.leader),
        )
        for topic in topics
        for part in topic.partitions
    )


def read_brokers(cluster: Cluster) -> tuple[BrokerPlace, ...]:
    """The brokers that are alive, sorted. Raises ChannelError."""
    found = cluster.metadata(()).brokers
    return tuple(
        sorted(
            (BrokerPlace(int(broker.node_id), broker.rack) for broker in found),
            key=lambda broker: broker.broker_id,
        )
    )


def _check_idle(cluster: Cluster, topics: Iterable[str]) -> None:
    """Check that no partition of these topics is being moved. Raises ClientError."""
    wanted = set(topics)
    running = [each.partition for each in list_reassignments(cluster) if each.partition.topic in wanted]
    if running:
        more = f" and {len(running) - 1} more" if len(running) > 1 else ""
        raise ClientError(
            f"partitions are being moved: {running[0]}{more}",
            cure="plan again when they are done (`klog reassign watch`), or cancel them",
        )


def _sizes(dirs: Sequence[LogDir]) -> dict[TopicPartition, dict[int, int]]:
    sizes: dict[TopicPartition, dict[int, int]] = {}
    for directory in dirs:
        for replica in directory.replicas:
            if not replica.is_future:
                sizes.setdefault(replica.partition, {})[directory.broker_id] = replica.size_bytes
    return sizes


def _size(by_broker: Mapping[int, int], leader: int) -> int:
    """What a new replica has to copy: what the leader has, or the most that a replica has."""
    return by_broker.get(leader, max(by_broker.values(), default=0))
