"""The metadata of the cluster that comes back: the topics that are restored, on their new brokers.

The backup's metadata says configs, ACLs, users and quotas. Without it, a topic keeps all its records until
its retention is set, and the coordinators' topics are compacted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from klog.backup.moment.decisions import TRANSACTION_TOPIC
from klog.backup.restoring.log_directories import Written
from klog.backup.restoring.plan import RestorePlan
from klog.client.admin import Resource, ResourceType
from klog.cluster_metadata.model import Cluster, Partition, Topic
from klog.formats.constants import INT32_MAX
from klog.formats.names import CONSUMER_OFFSETS, TopicPartition
from klog.metadata.assignment import assign_replicas
from klog.metadata.producer_ids import BLOCK_SIZE
from klog.metadata.values import LeaderAndIsr, ReplicaAssignment
from klog.storage.repair.segment_scan import IndexSettings

KEEPS_ALL: Final = {"cleanup.policy": "delete", "retention.bytes": "-1", "retention.ms": "-1"}
"""The configs of a topic of which none are known."""

_INTERNAL: Final = {
    CONSUMER_OFFSETS: {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": "104857600",
    },
    TRANSACTION_TOPIC: {
        "cleanup.policy": "compact",
        "compression.type": "uncompressed",
        "segment.bytes": "104857600",
        "unclean.leader.election.enable": "false",
    },
}

Replicas = Mapping[TopicPartition, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class RestoredCluster:
    """The metadata, and in words what of it could not come back."""

    cluster: Cluster
    losses: tuple[str, ...] = ()


def assigned(plan: RestorePlan, brokers: Iterable[int], replication_factor: int) -> Replicas:
    """The replicas of each partition, placed by Kafka's rules. Raises `MetadataError` for too few brokers."""
    counts: dict[str, int] = {}
    for each in plan.partitions:
        counts[each.target.topic] = max(counts.get(each.target.topic, 0), each.target.partition + 1)
    racks = dict.fromkeys(brokers)
    found: dict[TopicPartition, tuple[int, ...]] = {}
    for number, (topic, partitions) in enumerate(sorted(counts.items())):
        placed = assign_replicas(
            racks, partitions, replication_factor, lambda _below: 0, fixed_start=number % max(len(racks), 1)
        )
        found |= {TopicPartition(topic, partition): replicas for partition, replicas in placed.items()}
    return found


def index_settings(cluster: Cluster | None, topics: Iterable[str]) -> dict[str, IndexSettings]:
    """How the topics' indexes are made, by their configs; `cluster` is the backup's metadata."""
    found = {}
    for topic in topics:
        configs = topic_configs(cluster, topic) or {}
        usual = IndexSettings()
        found[topic] = IndexSettings(
            _number(configs.get("index.interval.bytes"), usual.interval_bytes),
            _number(configs.get("segment.index.bytes"), usual.max_bytes),
        )
    return found


def restored_cluster(
    known: Cluster | None, cluster_id: str, plan: RestorePlan, written: Written, replicas: Replicas
) -> RestoredCluster:
    """The metadata of what was restored; `known` is that of the backup."""
    names = {each.target.topic: each.view.partition.topic for each in plan.partitions}
    topics = {topic: _topic(topic, plan, written, replicas) for topic in names}
    found = known or Cluster()
    losses = found.hidden_secrets
    configs = {
        resource: {name: value for name, value in values.items() if value is not None}
        for resource, values in found.configs.items()
        if resource.type != ResourceType.TOPIC
    }
    for topic, original in names.items():
        values = topic_configs(known, original)
        if values is None:
            values = _INTERNAL.get(original, KEEPS_ALL)
            if original not in _INTERNAL:
                losses.append(unknown_configs(topic))
        if values:
            configs[Resource(ResourceType.TOPIC, topic)] = dict(values)
    largest = max((each.largest_producer_id for each in written.values()), default=-1)
    next_block = (largest // BLOCK_SIZE + 1) * BLOCK_SIZE
    cluster = replace(
        found,
        cluster_id=cluster_id,
        topics=topics,
        configs={resource: values for resource, values in configs.items() if values},
        scram={user: credential for user, credential in found.scram.items() if credential is not None},
        next_producer_id=max(found.next_producer_id, next_block),
        brokers={},
        controllers={},
        voters={},
        deletions=frozenset(),
        requested_reassignments={},
    )
    return RestoredCluster(cluster, tuple(losses))


def _topic(topic: str, plan: RestorePlan, written: Written, replicas: Replicas) -> Topic:
    ids = [each.view.topic_id for each in plan.partitions if each.target.topic == topic]
    partitions = {
        partition.partition: Partition(
            ReplicaAssignment(assignment),
            LeaderAndIsr(assignment[0], _next_epoch(written, partition), assignment),
        )
        for partition, assignment in replicas.items()
        if partition.topic == topic
    }
    return Topic(next((each for each in ids if each is not None), None), partitions)


def _next_epoch(written: Written, partition: TopicPartition) -> int:
    """The epoch above that of the records. One that leaves no room for elections is damage."""
    latest = written[partition].latest_epoch if partition in written else -1
    return latest + 1 if latest < INT32_MAX // 2 else 0


def unknown_configs(topic: str) -> str:
    """What is said of a topic that gets `KEEPS_ALL`."""
    return f"the configs of topic {topic}: it keeps all records until its retention is set"


def topic_configs(cluster: Cluster | None, topic: str) -> Mapping[str, str] | None:
    """The configs that the backup's metadata has for a topic; None if it does not know the topic."""
    if cluster is None or topic not in cluster.topics:
        return None
    found = cluster.configs.get(Resource(ResourceType.TOPIC, topic), {})
    return {name: value for name, value in found.items() if value is not None}


def _number(text: str | None, usual: int) -> int:
    return int(text) if text is not None and text.isdecimal() else usual
