"""Builds the batches that the transaction coordinator writes to `__transaction_state`.

Rules: Kafka's `TransactionStateManager`: one record in a batch, uncompressed, without a producer. The records
that remove expired ids share batches.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from klog.coordinator.transactions.records import TransactionRecord, transaction_key, transaction_value
from klog.formats.constants import BATCH_HEADER_BYTES
from klog.kernel.batch_builder import RecordData, build_batch, build_single
from klog.protocol.error_codes import ErrorCode
from klog.storage.log.built_batch import BuiltBatch

# More than a record needs beside its key.
_RECORD_OVERHEAD_BYTES: Final = 32

# The errors of an append, as clients see them.
_ERRORS: Final = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.FENCED_LEADER_EPOCH: ErrorCode.NOT_COORDINATOR,
    ErrorCode.UNKNOWN_LEADER_EPOCH: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}


def client_error(error: ErrorCode) -> ErrorCode:
    """What a client is answered if an append has failed with this error."""
    return _ERRORS.get(error, error)


def record_batch(transactional_id: str, record: TransactionRecord, now_ms: int) -> BuiltBatch:
    """A batch with the record of one id. Raises `FormatError` if a string is too long."""
    batch = build_single(now_ms, transaction_key(transactional_id), transaction_value(record))
    return BuiltBatch(batch, now_ms)


def removal_batches(
    transactional_ids: Iterable[str], now_ms: int, max_batch_bytes: int
) -> Iterator[tuple[list[str], BuiltBatch]]:
    """Batches that remove ids, each with the ids that it removes. Raises `FormatError`."""
    ids: list[str] = []
    records: list[RecordData] = []
    size_bytes = BATCH_HEADER_BYTES
    for transactional_id in transactional_ids:
        key = transaction_key(transactional_id)
        added_bytes = len(key) + _RECORD_OVERHEAD_BYTES
        if records and size_bytes + added_bytes > max_batch_bytes:
            yield ids, BuiltBatch(build_batch(records), now_ms, len(records))
            ids, records, size_bytes = [], [], BATCH_HEADER_BYTES
        ids.append(transactional_id)
        records.append(RecordData(len(records), now_ms, key, None))
        size_bytes += added_bytes
    if records:
        yield ids, BuiltBatch(build_batch(records), now_ms, len(records))
