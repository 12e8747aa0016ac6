"""Filters one buffer of batches: some stay as they are, some are rebuilt, the others are removed.

Rules: `Cleaner.cleanInto` and `MemoryRecords.filterTo` (KIP-98, KIP-534). A marker or tombstone that is no
longer needed first gets a delete horizon and is removed in a later cleaning, so that slow readers see it. A
batch with the last record of an active producer stays, empty, for its sequence number.
"""

from __future__ import annotations

from array import array
from typing import Final

from klog.formats.checksums import Bytes
from klog.formats.constants import CODEC_MASK, CONTROL_BIT, DELETE_HORIZON_BIT, INT64_MAX, TRANSACTIONAL_BIT
from klog.kernel.columns import BatchTable, RecordTable
from klog.kernel.compaction import OffsetMap
from klog.kernel.selection import Selection
from klog.storage.cleaner.decoding import control_type, decode_one, decode_plain
from klog.storage.cleaner.rebuild import emptied, rebuild
from klog.storage.cleaner.task import CleanStats, CleanTask
from klog.storage.cleaner.transactions import CleanedTransactions

_OWN_STEP: Final = CODEC_MASK | CONTROL_BIT | TRANSACTIONAL_BIT  # bits of batches that are handled one by one


class BatchFilter:
    """Decides about the batches of the segments of one log."""

    def __init__(
        self, task: CleanTask, offsets: OffsetMap, transactions: CleanedTransactions, stats: CleanStats
    ) -> None:
        self._now_ms = task.now_ms
        self.horizon_ms = min(task.now_ms + task.delete_retention_ms, INT64_MAX)  # the largest: for ever
        """The delete horizon of batches that become unnecessary now."""
        self._last_records = task.last_records
        self._offsets = offsets
        self._transactions = transactions
        self.stats = stats
        self.keep_legacy_tombstones = True

    def filter(self, data: memoryview, table: BatchTable) -> list[Bytes]:
        """What stays of the batches of `table`, scanned from `data`: parts of `data`, and new batches.

        Raises `CorruptRecordError` if records do not decode.
        """
        step = _Step(self, data, table)
        step.run()
        return step.parts

    # Called by a step.

    def is_last_of_producer(self, table: BatchTable, row: int) -> bool:
        """Whether the log needs the batch for the state of its (active) producer."""
        producer_id = table.producer_id[row]
        last = self._last_records.get(producer_id) if producer_id >= 0 else None
        if last is None:
            return False
        if last.data_offset >= 0:
            return table.last_offset[row] == last.data_offset
        return bool(table.attributes[row] & CONTROL_BIT) and table.producer_epoch[row] == last.producer_epoch

    def is_spent(self, table: BatchTable, row: int, control_type: int | None) -> bool:
        """Follow a transactional or control batch; whether the outcome of its transaction makes it
        unnecessary.
        """
        producer_id, last_offset = table.producer_id[row], table.last_offset[row]
        if table.attributes[row] & CONTROL_BIT:
            return self._transactions.marker(producer_id, last_offset, control_type)
        return self._transactions.data(producer_id, last_offset)

    def select(self, payload: Bytes, table: BatchTable, records: RecordTable, chosen: Selection) -> None:
        """Decide about all `records`, which are those of data batches."""
        self.stats.invalid_records += self._offsets.select(
            payload, table, records, 0, len(records), self._now_ms, self.keep_legacy_tombstones, chosen
        )

    def is_past_horizon(self, table: BatchTable, row: int) -> bool:
        """Whether the batch has a delete horizon that is in the past."""
        has_one = table.attributes[row] & DELETE_HORIZON_BIT and table.magic[row] >= 2
        return bool(has_one) and table.base_timestamp[row] <= self._now_ms


class _Step:
    """The filtering of one buffer. Adjacent uncompressed batches are decoded and decided together, others one
    by one.
    """

    def __init__(self, owner: BatchFilter, data: memoryview, table: BatchTable) -> None:
        self._owner = owner
        self._data = data
        self._table = table
        self.parts: list[Bytes] = []
        self._copy_from = self._copy_to = -1  # start and end of the whole batches that will be copied
        self._records = RecordTable()
        self._chosen = Selection(0)
        self._payload: Bytes = data
        self._decoded_to = 0  # the row of the table after the last batch in `_records`
        self._at_record = 0  # the row in `_records` where the next batch begins

    def run(self) -> None:
        table = self._table
        alone = any(attributes & _OWN_STEP for attributes in set(table.attributes))
        for row in range(len(table)):
            if alone and table.attributes[row] & _OWN_STEP:
                self._take_alone(row)
            else:
                if row >= self._decoded_to:
                    self._decode_run(row, alone)
                self._take_decided(row)
        self._flush_copy()

    # -- decoding --------------------------------------------------------------------------------------------

    def _decode_run(self, row: int, alone: bool) -> None:
        """Decode and decide all uncompressed batches from `row` on."""
        end = len(self._table)
        if alone:
            attributes = self._table.attributes
            end = next((at for at in range(row, end) if attributes[at] & _OWN_STEP), end)
        decode_plain(self._data, self._table, row, end, self._records)
        self._decide(self._data, end)

    def _decide(self, payload: Bytes, end: int) -> None:
        self._payload = payload
        self._chosen = Selection(len(self._table))
        self._owner.select(payload, self._table, self._records, self._chosen)
        self._decoded_to = end
        self._at_record = 0

    # -- deciding --------------------------------------------------------------------------------------------

    def _take_alone(self, row: int) -> None:
        """A compressed, transactional or control batch."""
        table = self._table
        attributes = table.attributes[row] if table.magic[row] >= 2 else table.attributes[row] & CODEC_MASK
        control = bool(attributes & CONTROL_BIT)
        payload: Bytes | None = decode_one(self._data, table, row, self._records) if control else None
        spent = bool(attributes & (CONTROL_BIT | TRANSACTIONAL_BIT)) and self._owner.is_spent(
            table, row, control_type(payload, self._records) if payload is not None else None
        )
        self._decoded_to = row + 1
        if spent and (not control or self._owner.is_past_horizon(table, row)):
            self._take_nothing(row)
            return
        if payload is None:
            payload = decode_one(self._data, table, row, self._records)
            self._decide(payload, row + 1)
        else:
            self._keep_all(payload, row)
        self._take_decided(row, needs_horizon=spent and control)

    def _keep_all(self, payload: Bytes, row: int) -> None:
        """Keep all records: markers have no keys to compact."""
        records, chosen = self._records, Selection(len(self._table))
        self._payload, self._chosen, self._at_record = payload, chosen, 0
        chosen.keep = array("B", b"\1" * len(records))
        chosen.kept[row] = len(records)
        chosen.tombstones[row] = sum(size < 0 for size in records.value_size)
        chosen.last_kept_offset[row] = records.offset[-1] if len(records) else -1

    def _take_nothing(self, row: int) -> None:
        """A batch of which no record stays."""
        if self._owner.is_last_of_producer(self._table, row):
            self._owner.stats.records_read += max(self._table.count[row], 0)
            self._write(emptied(self._table, row))

    def _take_decided(self, row: int, *, needs_horizon: bool = False) -> None:
        """A batch whose records are decoded and decided."""
        table, chosen, records = self._table, self._chosen, self._records
        first = self._at_record
        count = table.count[row] if table.magic[row] >= 2 else _rows_of(records, row, first)
        self._at_record = last = first + count
        kept = chosen.kept[row]
        stats = self._owner.stats
        stats.records_read += count
        stats.records_written += kept
        if not kept:
            if self._owner.is_last_of_producer(table, row):
                self._write(emptied(table, row))
            return
        magic = table.magic[row]
        attributes = table.attributes[row]
        horizon = None
        has_horizon = magic < 2 or attributes & DELETE_HORIZON_BIT
        if not has_horizon and (needs_horizon or chosen.tombstones[row]):
            horizon = self._owner.horizon_ms
        wrapper = magic < 2 and attributes & CODEC_MASK
        mixed = wrapper and any(
            records.message_magic(at, self._payload) != magic for at in range(first, last)
        )
        if kept == count and horizon is None and not mixed:
            self._copy(row)
            return
        self._write(rebuild(self._payload, table, row, records, range(first, last), chosen.keep, horizon))

    # -- writing ---------------------------------------------------------------------------------------------

    def _copy(self, row: int) -> None:
        """Copying waits for the next batches, so that adjacent ones are copied together."""
        start = self._table.position[row] - self._table.origin
        if start != self._copy_to:
            self._flush_copy()
            self._copy_from = start
        self._copy_to = start + self._table.size[row]

    def _write(self, batch: Bytes) -> None:
        self._flush_copy()
        self.parts.append(batch)

    def _flush_copy(self) -> None:
        if self._copy_to > self._copy_from:
            self.parts.append(self._data[self._copy_from : self._copy_to])
        self._copy_from = self._copy_to = -1


def _rows_of(records: RecordTable, row: int, first: int) -> int:
    last = first
    while last < len(records) and records.batch[last] == row:
        last += 1
    return last - first
