"""Reads the records of the coordinators' topics from batches. What only these need is imported here when it
is used.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from klog.backup.restoring.batches import Rows
from klog.coordinator.groups.values import CommittedOffset
from klog.coordinator.transactions.records import (
    TransactionRecord,
    read_transaction_key,
    read_transaction_value,
)
from klog.formats.constants import CONTROL_BIT
from klog.formats.names import PartitionKey
from klog.kernel.columns import RecordTable
from klog.storage.cleaner.decoding import decode_one


def transaction_records(rows: Rows) -> Iterator[tuple[int, int, int, str, TransactionRecord | None]]:
    """The records of `__transaction_state` in batches: where the batch begins and ends, when the record was
    written (ms), the transactional id, and the record; None if it removes the id. Records of unknown types
    are left out. Raises `FormatError`.
    """

    records = RecordTable()
    table = rows.table
    for row in range(rows.first, rows.last):
        if table.attributes[row] & CONTROL_BIT:
            continue
        payload = decode_one(rows.data, table, row, records)
        for number in range(len(records)):
            key = records.key(number, payload)
            value = records.value(number, payload)
            transactional_id = None if key is None else read_transaction_key(key)
            if transactional_id is not None:
                record = None if value is None else read_transaction_value(value)
                written_ms = records.timestamp[number]
                yield table.base_offset[row], table.last_offset[row] + 1, written_ms, transactional_id, record


def transaction_states(found: Iterable[Rows]) -> dict[str, TransactionRecord]:
    """The last record of each transactional id. Raises `FormatError`."""
    states: dict[str, TransactionRecord] = {}
    for rows in found:
        for _, _, _, transactional_id, record in transaction_records(rows):
            if record is None:
                states.pop(transactional_id, None)
            else:
                states[transactional_id] = record
    return states


def committed_offsets(name: str, found: Iterable[Rows]) -> dict[str, dict[PartitionKey, CommittedOffset]]:
    """The offsets of each group in a partition of `__consumer_offsets`, as a coordinator would load them.

    `name` is the partition's, for messages. Raises `FormatError`.
    """
    from klog.coordinator.groups.loading import GroupReader

    reader = GroupReader(name)
    for rows in found:
        for row in range(rows.first, rows.last):
            reader.add_batch(rows.data, rows.table, row)
    return {
        group_id: {
            key: CommittedOffset(
                each.offset,
                each.leader_epoch,
                each.metadata,
                each.commit_timestamp_ms,
                each.expire_timestamp_ms,
            )
            for key, each in offsets.loaded().items()
        }
        for group_id, offsets in reader.loaded.offsets.items()
    }
