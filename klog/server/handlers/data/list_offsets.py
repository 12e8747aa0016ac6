"""Answers ListOffsets requests: the start and the end of a log, and the offset of a time.

Rules: Kafka's `KafkaApis.handleListOffsetRequest`, `Partition.fetchOffsetForTimestamp`; KIP-79, KIP-98
(isolation), KIP-207 (OFFSET_NOT_AVAILABLE while a new leader's high watermark is behind), KIP-320, KIP-734
(maximum timestamp), KIP-405 and KIP-1005 (local and tiered offsets: nothing is tiered here).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from klog.formats.errors import CorruptRecordError, StorageError
from klog.formats.names import PartitionKey
from klog.protocol.entity_fields import Entity
from klog.protocol.error_codes import ErrorCode
from klog.protocol.offset_times import EARLIEST, EARLIEST_LOCAL, LATEST, LATEST_TIERED, MAX_TIMESTAMP
from klog.replication.partition import CONSUMER, Partition, PartitionError
from klog.replication.partition_state import ANY_EPOCH
from klog.server.handlers.answers import Struct, entity_of, send_answer
from klog.server.handlers.partition_lookup import PartitionLookup
from klog.server.network.request import Request
from klog.storage.log.earlier_records import TimedOffset
from klog.storage.log.partition_log import PartitionLog
from klog.storage.log.time_lookup import earliest, first_at_or_after, with_max_timestamp

DEBUGGING_REPLICA: Final = -2
_READ_UNCOMMITTED: Final = 0
_READ_COMMITTED: Final = 1
_ISOLATION_LEVELS: Final = (_READ_UNCOMMITTED, _READ_COMMITTED)
_OFFSET_NOT_AVAILABLE_FROM: Final = 5
_NOTHING: Final = TimedOffset(-1, -1, -1)

# The version of the request that brought each special timestamp.
_KNOWN_FROM: Final[Mapping[int, int]] = {
    LATEST: 0,
    EARLIEST: 0,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
}

_STARTS: Final = frozenset((EARLIEST, EARLIEST_LOCAL))

_LOOKUPS: Final[Mapping[int, Callable[[PartitionLog], TimedOffset | None]]] = {
    MAX_TIMESTAMP: with_max_timestamp,
    LATEST_TIERED: lambda _: _NOTHING,
}


class _Asker(NamedTuple):
    """The sender: a consumer (read committed or not), a follower, or a tool that asks any replica."""

    version: int
    replica_id: int
    isolation_level: int


@dataclass(frozen=True, slots=True)
class ListOffsetsHandler:
    """Answers ListOffsets requests."""

    lookup: PartitionLookup
    clock_ms: Callable[[], int]

    def handle(self, request: Request) -> None:
        """Answer at once; a time may have to be looked for in the log's files."""
        asked = entity_of(request)
        # Versions 0 and 1 have no isolation level.
        isolation_level = getattr(asked, "isolation_level", _READ_UNCOMMITTED)
        asker = _Asker(request.api_version, asked.replica_id, isolation_level)
        times = Counter(
            (topic.name, each.partition_index) for topic in asked.topics for each in topic.partitions
        )
        topics = [
            {
                "name": topic.name,
                "partitions": [
                    self._partition((topic.name, each.partition_index), each, asker, times)
                    for each in topic.partitions
                ],
            }
            for topic in asked.topics
        ]
        send_answer(request, topics=topics)

    def _partition(
        self, key: PartitionKey, asked: Entity, asker: _Asker, times: Mapping[PartitionKey, int]
    ) -> Struct:
        error, found = ErrorCode.NONE, _NOTHING
        starts: tuple[int, ...] = ()
        try:
            _require_sense(asked, asker, times[key])
            partition = self.lookup.partition(key)
            if asker.version == 0:
                starts = self._starts(partition, asked, asker.replica_id)
            else:
                # Versions 1 to 3 know no leader epochs.
                epoch = getattr(asked, "current_leader_epoch", ANY_EPOCH)
                found = _offset(partition, asked.timestamp, epoch, asker) or _NOTHING
        except PartitionError as refused:
            error = refused.error
            if error is ErrorCode.OFFSET_NOT_AVAILABLE and asker.version < _OFFSET_NOT_AVAILABLE_FROM:
                error = ErrorCode.LEADER_NOT_AVAILABLE
        except CorruptRecordError:
            error = ErrorCode.CORRUPT_MESSAGE
        except (OSError, StorageError):
            error = ErrorCode.KAFKA_STORAGE_ERROR
        return {
            "partition_index": asked.partition_index,
            "error_code": error,
            "old_style_offsets": starts,
            "timestamp": found.timestamp,
            "offset": found.offset,
            "leader_epoch": found.leader_epoch,
        }

    def _starts(self, partition: Partition, asked: Entity, replica_id: int) -> tuple[int, ...]:
        """What version 0 asks for. Raises `PartitionError`, `OSError`, `StorageError`."""
        log = partition.log
        with log.lock:
            partition.require_epoch(ANY_EPOCH, leader_only=replica_id != DEBUGGING_REPLICA)
            if asked.max_num_offsets < 0:
                raise PartitionError(ErrorCode.UNKNOWN_SERVER_ERROR)
            starts = newest_starts(log, asked.timestamp, asked.max_num_offsets, self.clock_ms())
            high_watermark = log.high_watermark
        return as_consumers_see(starts, high_watermark) if replica_id == CONSUMER else starts


def _require_sense(asked: Entity, asker: _Asker, times: int) -> None:
    """Raises `PartitionError` for what Kafka refuses before it looks for the partition."""
    timestamp, version = asked.timestamp, asker.version
    if times > 1 and version > 0:
        raise PartitionError(ErrorCode.INVALID_REQUEST)
    if timestamp < 0 and version < _KNOWN_FROM.get(timestamp, version + 1):
        raise PartitionError(ErrorCode.UNSUPPORTED_VERSION)
    if asker.replica_id == CONSUMER and asker.isolation_level not in _ISOLATION_LEVELS:
        raise PartitionError(ErrorCode.UNKNOWN_SERVER_ERROR)


def _offset(partition: Partition, timestamp: int, epoch: int, asker: _Asker) -> TimedOffset | None:
    """The offset for a time, within what the sender may read; None if there is none.

    Raises `PartitionError`, `CorruptRecordError`, `OSError`, `StorageError`.
    """
    log = partition.log
    committed = asker.isolation_level == _READ_COMMITTED
    with log.lock:
        partition.require_epoch(epoch, leader_only=asker.replica_id != DEBUGGING_REPLICA)
        is_client = asker.replica_id == CONSUMER
        limit = partition.limit(CONSUMER, committed=committed) if is_client else log.log_end_offset
        is_behind = is_client and partition.state.epoch_start_offset > log.high_watermark
        leader_epoch = partition.state.leader_epoch
    if timestamp in _STARTS:
        return earliest(log)
    if timestamp == LATEST:
        if is_behind:
            raise _behind()
        return TimedOffset(-1, limit, leader_epoch)
    found = _look_up(log, timestamp)
    if found is not None and found.offset < limit:
        return found
    if is_behind:
        raise _behind()
    return None


def _look_up(log: PartitionLog, timestamp: int) -> TimedOffset | None:
    lookup = _LOOKUPS.get(timestamp)
    try:
        return lookup(log) if lookup is not None else first_at_or_after(log, timestamp)
    except OSError as error:
        log.fail(error)
        raise


def _behind() -> PartitionError:
    return PartitionError(
        ErrorCode.OFFSET_NOT_AVAILABLE, "the high watermark has not reached the start of this leader's epoch"
    )


# -- The answer to ListOffsets version 0: the base offsets of segments, by the time of their last write ------
# Rules: Kafka's `KafkaApis.handleListOffsetRequestV0`, `UnifiedLog.legacyFetchOffsetsBefore`. librdkafka
# before 1.9 asks so for a partition's watermarks.


def newest_starts(log: PartitionLog, timestamp: int, count: int, now_ms: int) -> tuple[int, ...]:
    """Where the newest segments start that were last written to by `timestamp`: `count`, largest first.

    The log's end counts as the start of one more, written to now, unless the last segment is empty. The
    caller holds the log's lock. Raises `OSError`.
    """
    starts = [(max(each.base_offset, log.log_start_offset), each.modified_ms()) for each in log.segments]
    if log.segments[-1].size:
        starts.append((log.log_end_offset, now_ms))
    if timestamp == LATEST:
        known = len(starts)
    elif timestamp == EARLIEST:
        known = 1
    else:
        known = max(
            (n for n, (_, modified_ms) in enumerate(starts, 1) if modified_ms <= timestamp), default=0
        )
    return tuple(sorted((offset for offset, _ in starts[max(known - count, 0) : known]), reverse=True))


def as_consumers_see(starts: Sequence[int], high_watermark: int) -> tuple[int, ...]:
    """`starts` (largest first) with the high watermark in the place of all that lie beyond it."""
    visible = tuple(offset for offset in starts if offset <= high_watermark)
    return visible if len(visible) == len(starts) else (high_watermark, *visible)
