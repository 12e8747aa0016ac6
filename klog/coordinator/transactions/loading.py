"""Reads the transactional ids of one partition of `__transaction_state` from its log.

Rules: Kafka's `TransactionStateManager.loadTransactionMetadata`: the last record of an id counts, one without
a value removes it. A record that cannot be read is logged with its offset, and the rest is loaded.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from klog.coordinator.runtime.log_reading import end_of_plain, no_pause, read_log
from klog.coordinator.transactions.records import (
    TransactionRecord,
    read_transaction_key,
    read_transaction_value,
)
from klog.formats.checksums import Bytes
from klog.formats.constants import CODEC_MASK, CONTROL_BIT
from klog.formats.errors import FormatError
from klog.kernel.columns import BatchTable, RecordTable
from klog.storage.cleaner.decoding import decode_one, decode_plain
from klog.storage.log.partition_log import PartitionLog

_log = logging.getLogger(__name__)

# What is loaded between two pauses. It takes less than 1 ms.
_READ_BYTES: Final = 16 * 1024
_NOT_PLAIN: Final = CODEC_MASK | CONTROL_BIT


class TransactionReader:
    """Takes the batches of one partition in their order."""

    def __init__(self, name: str) -> None:
        """`name` is the partition's, for messages."""
        self.loaded: dict[str, TransactionRecord] = {}
        self._name = name
        self._records = RecordTable()

    def add_plain(self, data: memoryview, table: BatchTable, first: int, last: int) -> int:
        """Take the plain batches from `first` on, before `last`; the row of the first one that is not plain.

        Raises `FormatError` if one of them cannot be decoded; then none is taken.
        """
        row = end_of_plain(table, first, last, _NOT_PLAIN)
        if row > first:
            decode_plain(data, table, first, row, self._records)
            self._add_records(data)
        return row

    def add_batch(self, data: memoryview, table: BatchTable, row: int) -> None:
        """Take one batch. Raises `FormatError` if the batch cannot be decoded."""
        if not table.attributes[row] & CONTROL_BIT:
            self._add_records(decode_one(data, table, row, self._records))

    def _add_records(self, payload: Bytes) -> None:
        records = self._records
        for number, offset in enumerate(records.offset):
            try:
                self._add_record(
                    records.key(number, payload),
                    records.value(number, payload),
                )
            except FormatError as error:
                _log.warning("%s: the record at offset %d is not loaded: %s", self._name, offset, error)

    def _add_record(self, key: bytes | None, value: bytes | None) -> None:
        if key is None:
            raise FormatError("the key is null")
        transactional_id = read_transaction_key(key)
        if transactional_id is None:
            raise FormatError("the record's type is not known")
        if value is None:
            self.loaded.pop(transactional_id, None)
        else:
            self.loaded[transactional_id] = read_transaction_value(value)


def load_transactions(
    log: PartitionLog,
    buffer_bytes: int,
    still_leads: Callable[[], bool],
    pause: Callable[[], None] = no_pause,
) -> dict[str, TransactionRecord] | None:
    """The record of each transactional id in a log; None if this broker leads it no longer.

    `buffer_bytes` is `transaction.state.log.load.buffer.size`. `pause` is called now and then, so that it can
    let other threads run. If the log cannot be read to its end, the ids that were read until then are
    returned.
    """
    reader = TransactionReader(str(log.partition))
    read_bytes = min(buffer_bytes, _READ_BYTES)
    finished = read_log(log, read_bytes, still_leads, reader, pause, reader.add_plain)
    return reader.loaded if finished else None
