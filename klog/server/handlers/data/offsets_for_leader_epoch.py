"""Answers OffsetForLeaderEpoch requests: the end of an epoch, for followers and consumers after a truncation.

Rules: Kafka's `ReplicaManager.lastOffsetForLeaderEpoch`; KIP-101, KIP-279, KIP-320. Only the leader knows.
"""

from __future__ import annotations

from dataclasses import dataclass

from klog.formats.epochs import UNDEFINED_EPOCH, UNDEFINED_OFFSET, EpochEnd
from klog.protocol.entity_fields import Entity
from klog.protocol.error_codes import ErrorCode
from klog.replication.partition import PartitionError
from klog.server.handlers.answers import Struct, entity_of, send_answer
from klog.server.handlers.partition_lookup import PartitionLookup
from klog.server.network.request import Request

_UNKNOWN = EpochEnd(UNDEFINED_EPOCH, UNDEFINED_OFFSET)


@dataclass(frozen=True, slots=True)
class OffsetsForLeaderEpochHandler:
    """Answers OffsetForLeaderEpoch requests."""

    lookup: PartitionLookup

    def handle(self, request: Request) -> None:
        """Answer at once."""
        topics = [
            {"topic": topic.topic, "partitions": [self._end(topic.topic, each) for each in topic.partitions]}
            for topic in entity_of(request).topics
        ]
        send_answer(request, topics=topics)

    def _end(self, topic: str, asked: Entity) -> Struct:
        error, end = ErrorCode.NONE, _UNKNOWN
        try:
            partition = self.lookup.partition((topic, asked.partition))
            log = partition.require_leader(asked.current_leader_epoch)
            end = log.end_of_epoch(asked.leader_epoch)
        except PartitionError as refused:
            error = refused.error
        return {
            "error_code": error,
            "partition": asked.partition,
            "leader_epoch": end.epoch,
            "end_offset": end.end_offset,
        }
