"""ListOffsets of version 0: offsets at which segments start, by when the segments were last written to.

Rules: Kafka's `KafkaApis.handleListOffsetRequestV0`, `UnifiedLog.legacyFetchOffsetsBefore`. librdkafka before
1.9 asks so for a partition's watermarks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from klog.formats.errors import StorageError
from klog.protocol.entity_fields import Entity
from klog.protocol.error_codes import ErrorCode
from klog.replication.partition import ANY_EPOCH, CONSUMER, Partition, PartitionError
from klog.server.handlers.answers import entity_of, part, send_answer
from klog.server.handlers.whereabouts import Whereabouts
from klog.server.network.request import Request
from klog.storage.log.partition_log import PartitionLog

_LATEST: Final = -1
_EARLIEST: Final = -2
_DEBUGGING_REPLICA: Final = -2


def answer_version_0(request: Request, whereabouts: Whereabouts, now_ms: int) -> None:
    """Answers a ListOffsets request of version 0."""
    asked = entity_of(request)
    topics = tuple(
        part(
            request,
            "ListOffsetsTopicResponse",
            name=topic.name,
            partitions=tuple(
                _partition(request, whereabouts, topic.name, each, asked.replica_id, now_ms)
                for each in topic.partitions
            ),
        )
        for topic in asked.topics
    )
    send_answer(request, topics=topics)


def _partition(
    request: Request, whereabouts: Whereabouts, topic: str, asked: Entity, replica_id: int, now_ms: int
) -> Entity:
    error = ErrorCode.NONE
    offsets: tuple[int, ...] = ()
    try:
        if asked.timestamp < _EARLIEST:
            raise PartitionError(ErrorCode.UNSUPPORTED_VERSION)
        if asked.max_num_offsets < 0:
            raise PartitionError(ErrorCode.UNKNOWN_SERVER_ERROR)
        partition = whereabouts.partition((topic, asked.partition_index))
        offsets = tuple(_offsets(partition, asked.timestamp, asked.max_num_offsets, replica_id, now_ms))
    except PartitionError as refused:
        error = refused.error
    except (OSError, StorageError):
        error = ErrorCode.KAFKA_STORAGE_ERROR
    return part(
        request,
        "ListOffsetsPartitionResponse",
        partition_index=asked.partition_index,
        error_code=error,
        old_style_offsets=offsets,
    )


def _offsets(partition: Partition, timestamp: int, count: int, replica_id: int, now_ms: int) -> Sequence[int]:
    """Raises `PartitionError`, `OSError`, `StorageError`."""
    log = partition.log
    with log.lock:
        partition.require_epoch(ANY_EPOCH, leader_only=replica_id != _DEBUGGING_REPLICA)
        found = newest_starts(log, timestamp, count, now_ms)
        high_watermark = log.high_watermark
    if replica_id != CONSUMER or not any(offset > high_watermark for offset in found):
        return found
    # Of all that a client may not see yet, the high watermark stands in the place.
    return [high_watermark, *(offset for offset in found if offset <= high_watermark)]


def newest_starts(log: PartitionLog, timestamp: int, count: int, now_ms: int) -> list[int]:
    """Where the newest segments start that were last written to by `timestamp`: `count`, largest first.

    The log's end counts as the start of one more, written to now, unless the last segment is empty. The
    caller holds the log's lock. Raises `OSError`.
    """
    starts = [(max(each.base_offset, log.log_start_offset), each.modified_ms()) for each in log.segments]
    if log.segments[-1].size:
        starts.append((log.log_end_offset, now_ms))
    if timestamp == _LATEST:
        known = len(starts)
    elif timestamp == _EARLIEST:
        known = 1
    else:
        known = max(
            (n for n, (_, modified_ms) in enumerate(starts, 1) if modified_ms <= timestamp), default=0
        )
    return sorted((offset for offset, _ in starts[max(known - count, 0) : known]), reverse=True)
