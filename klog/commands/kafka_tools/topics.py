"""Prints topics as `kafka-topics` of Kafka 3.9 does, for scripts that read its output."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from klog.admin.topics import Partition, Topic
from klog.client.admin import EligibleReplicas
from klog.formats.java_hash import hash_of_string
from klog.formats.names import TopicPartition

_HASH_MAP_SLOTS = 16
_NOT_TOLD = "N/A"


def described(
    topics: Iterable[Topic],
    eligible: Mapping[TopicPartition, EligibleReplicas] | None,
    *,
    with_topics: bool,
    with_partitions: bool,
) -> Iterator[str]:
    """The lines of `--describe`; `eligible` is None if the cluster does not tell eligible leader replicas."""
    for topic in topics:
        if with_topics:
            yield _topic_line(topic)
        if with_partitions:
            for partition in topic.partitions:
                where = TopicPartition(topic.name, partition.partition)
                yield _partition_line(topic, partition, None if eligible is None else eligible.get(where))


def _topic_line(topic: Topic) -> str:
    parts = [f"Topic: {topic.name}"]
    if topic.topic_id is not None:
        parts.append(f"TopicId: {topic.topic_id}")
    values = {each.name: each.value for each in topic.settings if not each.is_default}
    ordered = in_hash_map_order([each.name for each in topic.settings])
    configs = ",".join(f"{name}={values[name]}" for name in ordered if name in values)
    parts += [
        f"PartitionCount: {len(topic.partitions)}",
        f"ReplicationFactor: {topic.replication_factor}",
        f"Configs: {configs}",
    ]
    return "\t".join(parts)


def _partition_line(topic: Topic, partition: Partition, eligible: EligibleReplicas | None) -> str:
    return "\t".join(
        (
            "",
            f"Topic: {topic.name}",
            f"Partition: {partition.partition}",
            f"Leader: {partition.leader if partition.leader >= 0 else 'none'}",
            f"Replicas: {_ids(partition.replicas)}",
            f"Isr: {_ids(partition.isr)}",
            f"Elr: {_NOT_TOLD if eligible is None else _ids(eligible.eligible)}",
            f"LastKnownElr: {_NOT_TOLD if eligible is None else _ids(eligible.last_known)}",
        )
    )


def _ids(brokers: Sequence[int]) -> str:
    return ",".join(map(str, brokers))


def in_hash_map_order(names: Sequence[str]) -> list[str]:
    """The names in the order in which Java's HashMap gives them after they were put in one by one."""
    slots = _HASH_MAP_SLOTS
    while len(names) > slots * 3 // 4:
        slots *= 2

    def slot(name: str) -> int:
        hashed = hash_of_string(name)
        return (hashed ^ hashed >> 16) & (slots - 1)

    return sorted(names, key=slot)
