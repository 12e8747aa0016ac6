"""DescribeProducers: shows the producers that a partition's log knows, to find hanging transactions.

Rules: Kafka's `KafkaApis.handleDescribeProducersRequest`, `UnifiedLog.activeProducers`; KIP-664. A follower
answers as well as a leader.
"""

from __future__ import annotations

from dataclasses import dataclass

from klog.metadata.errors import InvalidTopicError
from klog.metadata.topics import validate_topic_name
from klog.protocol.error_codes import ErrorCode
from klog.replication.partition import Partition, PartitionError
from klog.server.handlers.answers import Struct, entity_of, send_answer
from klog.server.handlers.partition_lookup import PartitionLookup
from klog.server.network.request import Request


@dataclass(frozen=True, slots=True)
class DescribeProducersHandler:
    """Answers DescribeProducers requests."""

    lookup: PartitionLookup

    def handle(self, request: Request) -> None:
        """Answer at once."""
        topics = [
            {
                "name": topic.name,
                "partitions": [self._partition(topic.name, number) for number in topic.partition_indexes],
            }
            for topic in entity_of(request).topics
        ]
        send_answer(request, topics=topics)

    def _partition(self, topic: str, index: int) -> Struct:
        error, message, producers = ErrorCode.NONE, None, list[Struct]()
        try:
            validate_topic_name(topic)
            if self.lookup.has_topic(topic):
                producers = _producers(self.lookup.partition((topic, index)))
            else:
                error, message = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {topic}"
        except InvalidTopicError as invalid:
            error, message = ErrorCode.INVALID_TOPIC_EXCEPTION, str(invalid)
        except PartitionError as refused:
            error = refused.error
        return {
            "partition_index": index,
            "error_code": error,
            "error_message": message,
            "active_producers": producers,
        }


def _producers(partition: Partition) -> list[Struct]:
    with partition.log.lock:
        return [
            {
                "producer_id": producer_id,
                "producer_epoch": producer.epoch,
                "last_sequence": producer.last_sequence,
                "last_timestamp": producer.last_timestamp,
                "coordinator_epoch": producer.coordinator_epoch,
                "current_txn_start_offset": producer.txn_first_offset,
            }
            for producer_id, producer in partition.log.producers.by_id.items()
        ]
