"""AlterReplicaLogDirs: moves replicas between the log directories of this broker.

Rules: Kafka's `KafkaApis.handleAlterReplicaLogDirsRequest` and `ReplicaManager.alterReplicaLogDirs`; KIP-113.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from klog.formats.names import TopicPartition
from klog.protocol.error_codes import ErrorCode
from klog.server.handlers.answers import by_topic, entity_of, partition_error, send_answer
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
        results = by_topic(self.alter(targets).items(), partition_error, topic="topic_name")
        send_answer(request, results=results)
