"""AlterReplicaLogDirs: moves replicas between the log directories of this broker.

Rules: Kafka's `KafkaApis.handleAlterReplicaLogDirsRequest` and `ReplicaManager.alterReplicaLogDirs`; KIP-113.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from klog.formats.names import TopicPartition
from klog.protocol.entity_fields import Entity
from klog.protocol.error_codes import ErrorCode
from klog.server.handlers.answers import entity_of, part, send_answer
from klog.server.network.request import Request


@dataclass(frozen=True, slots=True)
class AlterReplicaLogDirsHandler:
    """Answers AlterReplicaLogDirs requests; `alter` begins the moves."""

    alter: Callable[[Mapping[TopicPartition, str]], Mapping[TopicPartition, ErrorCode]]

    def handle(self, request: Request) -> None:
        """Begin the moves, and answer when they have begun."""
        targets = {
            TopicPartition(topic.name, number): directory.path
            for directory in entity_of(request).dirs
            for topic in directory.topics
            for number in topic.partitions
        }
        by_topic: dict[str, list[Entity]] = {}
        for (topic, number), error in self.alter(targets).items():
            by_topic.setdefault(topic, []).append(
                part(request, "AlterReplicaLogDirPartitionResult", partition_index=number, error_code=error)
            )
        results = tuple(
            part(request, "AlterReplicaLogDirTopicResult", topic_name=topic, partitions=tuple(partitions))
            for topic, partitions in by_topic.items()
        )
        send_answer(request, results=results)
