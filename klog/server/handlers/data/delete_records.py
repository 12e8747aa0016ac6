"""Answers DeleteRecords requests: moves the log start, here and, before the answer, on every live follower.

Rules: Kafka's `KafkaApis.handleDeleteRecordsRequest`, `ReplicaManager.deleteRecords`; KIP-107. The segments
that fall below the new start are deleted by retention, not here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from klog.formats.errors import StorageError
from klog.formats.names import PartitionKey
from klog.protocol.error_codes import ErrorCode
from klog.replication.deleting import DelayedDeleteRecords, Deletion
from klog.replication.partition import PartitionError
from klog.replication.purgatory import Purgatory
from klog.server.handlers.answers import Struct, by_topic, entity_of, milliseconds, send_answer
from klog.server.handlers.partition_lookup import PartitionLookup
from klog.server.handlers.topics.topic_metadata import INTERNAL_TOPICS
from klog.server.network.request import Request


@dataclass(frozen=True, slots=True)
class DeleteRecordsHandler:
    """Answers DeleteRecords requests."""

    lookup: PartitionLookup
    purgatory: Purgatory
    clock_ms: Callable[[], int]

    def handle(self, request: Request) -> None:
        """Move the starts, and answer when all live replicas have followed."""
        asked = entity_of(request)
        # If a request names a partition twice, the last offset wins.
        offsets = {
            (topic.name, each.partition_index): each.offset
            for topic in asked.topics
            for each in topic.partitions
        }
        deletions = {key: self._delete(key, offset) for key, offset in offsets.items()}
        lookup = self.lookup
        operation = DelayedDeleteRecords(
            self.clock_ms() + milliseconds(asked.timeout),
            lookup.replicas,
            deletions,
            lookup.missing,
            lambda outcome: _answer(request, outcome),
        )
        waiting = [key for key, deletion in deletions.items() if deletion.pending]
        self.purgatory.try_complete_else_watch(operation, waiting)

    def _delete(self, key: PartitionKey, offset: int) -> Deletion:
        lookup = self.lookup
        if not lookup.known(key):
            return _failed(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if key[0] in INTERNAL_TOPICS:
            return _failed(ErrorCode.INVALID_TOPIC_EXCEPTION)
        try:
            partition = lookup.partition(key)
            required_offset = partition.delete_records(offset)
        except PartitionError as refused:
            return _failed(refused.error)
        except (OSError, StorageError):
            return _failed(ErrorCode.KAFKA_STORAGE_ERROR)
        return Deletion(required_offset, low_watermark=partition.low_watermark())


def _failed(error: ErrorCode) -> Deletion:
    return Deletion(0, error=error, pending=False)


def _answer(request: Request, outcome: Mapping[PartitionKey, Deletion]) -> None:
    send_answer(request, topics=by_topic(outcome.items(), _result))


def _result(number: int, deletion: Deletion) -> Struct:
    return {
        "partition_index": number,
        "low_watermark": deletion.low_watermark,
        "error_code": deletion.error,
    }
