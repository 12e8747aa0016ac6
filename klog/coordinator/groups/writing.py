"""Builds the batches that the group coordinator writes to `__consumer_offsets`.

Rules: Kafka's `GroupMetadataManager`: commits are a batch with base sequence 0, all others one with -1.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from klog.coordinator.groups.consumer.records import ConsumerRecord, write_key, write_value
from klog.coordinator.groups.offsets.offsets import Commits
from klog.coordinator.groups.record_versions import NEWEST, RecordVersions
from klog.coordinator.groups.records import (
    GroupMetadata,
    group_key,
    group_value,
    offset_key,
    offset_value,
)
from klog.coordinator.runtime.append_errors import APPEND_ERRORS
from klog.coordinator.transactions.values import NO_PRODUCER, Producer
from klog.formats import compression
from klog.formats.names import PartitionKey
from klog.kernel.batch_builder import BatchFields, RecordData, build_batch
from klog.protocol.error_codes import ErrorCode

COMMIT_SEQUENCE: Final = 0

# The errors of an append, as members see them when the group's record could not be written.
_GROUP_ERRORS: Final = {
    **APPEND_ERRORS,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.UNKNOWN_SERVER_ERROR,
}
_COMMIT_ERRORS: Final = {
    **_GROUP_ERRORS,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
}


def group_error(error: ErrorCode) -> ErrorCode:
    """The error of JoinGroup and SyncGroup for that of an append."""
    return _GROUP_ERRORS.get(error, error)


def commit_error(error: ErrorCode) -> ErrorCode:
    """The error of OffsetCommit and TxnOffsetCommit for that of an append."""
    return _COMMIT_ERRORS.get(error, error)


def consumer_error(error: ErrorCode) -> ErrorCode:
    """The error of ConsumerGroupHeartbeat for that of an append. A member tries again."""
    if error is ErrorCode.REQUEST_TIMED_OUT:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return group_error(error)


@dataclass(frozen=True, slots=True)
class Writer:
    """Builds batches with `codec` (`offsets.topic.compression.codec`) and these versions of the values."""

    codec: int
    versions: RecordVersions = NEWEST

    @property
    def is_plain(self) -> bool:
        """Whether what it builds is not compressed, and of the newest versions."""
        return self.codec == compression.NONE and self.versions == NEWEST

    def commits(
        self, group_id: str, commits: Commits, now_ms: int, producer: Producer = NO_PRODUCER
    ) -> bytearray:
        """Committed offsets; with a producer they are part of its transaction.

        Raises `FormatError` if a string is too long.
        """
        records = [
            RecordData(number, now_ms, offset_key(group_id, key), offset_value(commit, self.versions.offset))
            for number, (key, commit) in enumerate(commits.items())
        ]
        fields = BatchFields(
            codec=self.codec,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            base_sequence=COMMIT_SEQUENCE,
            is_transactional=producer != NO_PRODUCER,
        )
        return build_batch(records, fields)

    def group(self, group_id: str, metadata: GroupMetadata, now_ms: int) -> bytearray:
        """A group's record. Raises `FormatError` if a string is too long."""
        return self._batch([(group_key(group_id), group_value(metadata, self.versions.group))], now_ms)

    def consumer_group(self, group_id: str, records: Iterable[ConsumerRecord], now_ms: int) -> bytearray:
        """Records of a consumer group. Raises `FormatError` if a string is too long."""
        written = [
            (
                write_key(group_id, each.kind, each.name),
                None if each.value is None else write_value(each.value),
            )
            for each in records
        ]
        return self._batch(written, now_ms, COMMIT_SEQUENCE)

    def removals(
        self, group_id: str, keys: Iterable[PartitionKey], now_ms: int, group_keys: Iterable[bytes] = ()
    ) -> bytearray | None:
        """Tombstones for offsets, and for records of the group; None if there is nothing to remove."""
        removed = [*(offset_key(group_id, key) for key in keys), *group_keys]
        return self._batch([(key, None) for key in removed], now_ms) if removed else None

    def _batch(
        self, records: list[tuple[bytes, bytes | None]], now_ms: int, base_sequence: int = -1
    ) -> bytearray:
        numbered = [RecordData(number, now_ms, key, value) for number, (key, value) in enumerate(records)]
        return build_batch(numbered, BatchFields(codec=self.codec, base_sequence=base_sequence))
