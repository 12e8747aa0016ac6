"""Proposes an assignment as `kafka-reassign-partitions --generate` does.

The partitions of each topic are assigned anew as those of a new topic (KIP-36), whatever their sizes are and
wherever they are now. The tool starts at a random broker; here the caller passes the choice in.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence

from klog.admin.reassign.values import BrokerPlace, PartitionAssignment, PartitionState
from klog.formats.errors import UsageError
from klog.formats.names import TopicPartition
from klog.metadata.assignment import Racks, RandomBelow, assign_replicas


def current_assignment(partitions: Iterable[PartitionState]) -> list[PartitionAssignment]:
    """Where the replicas of the partitions are, sorted."""
    return [
        PartitionAssignment(part.partition, part.replicas)
        for part in sorted(partitions, key=lambda part: part.partition)
    ]


def generate(
    partitions: Iterable[PartitionState], racks: Racks, random_below: RandomBelow
) -> list[PartitionAssignment]:
    """The proposed assignment of all partitions, sorted. Every topic must have all of its partitions.

    A topic keeps the replication factor of its first partition. `racks` has the brokers to use. Raises
    InvalidReplicationFactorError if they are too few.
    """
    by_topic: dict[str, dict[int, Sequence[int]]] = {}
    for part in sorted(partitions, key=lambda part: part.partition):
        by_topic.setdefault(part.partition.topic, {})[part.partition.partition] = part.replicas
    return [
        PartitionAssignment(TopicPartition(topic, number), replicas)
        for topic, current in by_topic.items()
        for number, replicas in assign_replicas(
            racks, len(current), len(current[min(current)]), random_below
        ).items()
    ]


def racks_to_use(brokers: Iterable[BrokerPlace], wanted: Sequence[int], *, rack_aware: bool) -> Racks:
    """The wanted brokers that are alive, with their racks if these count.

    As Kafka's tool, this leaves out brokers that are not alive. Raises UsageError for a broker that is wanted
    twice, and if some brokers have a rack and some have none.
    """
    twice = [broker for broker, count in Counter(wanted).items() if count > 1]
    if twice:
        raise UsageError(f"Broker list contains duplicate entries: {twice}", cure="name each broker once")
    alive = {broker.broker_id: broker.rack for broker in brokers if broker.broker_id in wanted}
    if not rack_aware:
        return dict.fromkeys(alive)
    if None in alive.values() and any(rack is not None for rack in alive.values()):
        raise UsageError(
            "Not all brokers have rack information",
            cure="add --disable-rack-aware to make replica assignment without rack information",
        )
    return alive


def check_topics(wanted: Sequence[str], known: Collection[str]) -> None:
    """Check the topics that are to be reassigned. Raises UsageError for duplicates and unknown topics."""
    twice = [topic for topic, count in Counter(wanted).items() if count > 1]
    if twice:
        raise UsageError(
            f"List of topics to reassign contains duplicate entries: {twice}", cure="name each topic once"
        )
    for topic in wanted:
        if topic not in known:
            raise UsageError(f"Topic {topic} not found", cure="`klog topics list` shows what exists")
