"""Builds the batches that the transaction coordinator writes to `__transaction_state`.

Rules: Kafka's `TransactionStateManager`: one record in a batch, uncompressed, without a producer. The records
that remove expired ids share batches.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from klog.coordinator.runtime.append_errors import APPEND_ERRORS
from klog.coordinator.transactions.records import TransactionRecord, transaction_key, transaction_value
from klog.formats.constants import BATCH_HEADER_BYTES
from klog.kernel.batch_builder import RecordData, build_batch, build_single
from klog.protocol.error_codes import ErrorCode
from klog.storage.log.built_batch import BuiltBatch

# More than a record needs beside its key.
_RECORD_OVERHEAD_BYTES: Final = 32


def client_error(error: ErrorCode) -> ErrorCode:
    """What a client is answered if an append has failed with this error."""
    return APPEND_ERRORS.get(error, error)


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
