"""Reads the groups of one partition of `__consumer_offsets` from its log.

Rules: Kafka's `GroupMetadataManager.doLoadGroupsAndOffsets`. A record that cannot be read is logged with its
offset, and the rest is loaded.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from klog.coordinator.groups.consumer.records import ConsumerRecord, read_value
from klog.coordinator.groups.consumer.records import read_key as read_consumer_key
from klog.coordinator.groups.consumer.state import GroupRecords
from klog.coordinator.groups.offsets.offset_loading import OffsetLoader
from klog.coordinator.groups.offsets.offsets import GroupOffsets
from klog.coordinator.groups.records import (
    GroupMetadata,
    RecordKey,
    read_group_value,
    read_key,
    read_offset_value,
)
from klog.coordinator.runtime.log_reading import end_of_plain, no_pause, read_log
from klog.formats.checksums import Bytes
from klog.formats.constants import CODEC_MASK, CONTROL_BIT, CONTROL_COMMIT, TRANSACTIONAL_BIT
from klog.formats.errors import FormatError
from klog.kernel.columns import BatchTable, RecordTable
from klog.storage.cleaner.decoding import control_type, decode_one, decode_plain
from klog.storage.log.partition_log import PartitionLog

_log = logging.getLogger(__name__)

_READ_BYTES: Final = 32 * 1024
# How many offsets are loaded between two pauses. They take less than 0.1 ms: requests of others wait while a
# thread loads.
_AT_ONCE: Final = 48
_NOT_PLAIN: Final = CODEC_MASK | CONTROL_BIT | TRANSACTIONAL_BIT


@dataclass(slots=True)
class LoadedGroups:
    """Groups by id with their records, and their offsets."""

    groups: dict[str, GroupMetadata] = field(default_factory=dict)
    consumers: dict[str, GroupRecords] = field(default_factory=dict)
    offsets: dict[str, GroupOffsets] = field(default_factory=dict)

    def group_ids(self) -> set[str]:
        """All groups that have a record or offsets."""
        with_offsets = {group_id for group_id, offsets in self.offsets.items() if not offsets.is_empty}
        return with_offsets.union(
            self.groups, (each for each, group in self.consumers.items() if group.exists)
        )


class GroupReader:
    """Takes the batches of one partition in their order."""

    def __init__(self, name: str, pause: Callable[[], None] = no_pause) -> None:
        """`name` is the partition's, for messages. `pause` is called after some records."""
        self.loaded = LoadedGroups()
        self._name = name
        self._pause = pause
        self._records = RecordTable()
        # The groups with offsets in the open transaction of a producer.
        self._in_transaction: dict[int, set[str]] = {}
        self._loader = OffsetLoader(lambda group_id: self._offsets_of(group_id).loaded())

    def add_plain(self, data: memoryview, table: BatchTable, first: int, last: int) -> int:
        """Take the plain batches from `first` on, before `last`; the row of the first one that is not plain.

        They are not compressed, and part of no transaction. Raises `FormatError` if one of them
        cannot be decoded; then none is taken.
        """
        row = end_of_plain(table, first, last, _NOT_PLAIN)
        if row > first:
            decode_plain(data, table, first, row, self._records)
            self._add_records(data, table.base_offset[first], None)
        return row

    def add_batch(self, data: memoryview, table: BatchTable, row: int) -> None:
        """Take one batch. Raises `FormatError` if the batch cannot be decoded."""
        payload = decode_one(data, table, row, self._records)
        attributes, producer_id = table.attributes[row], table.producer_id[row]
        if attributes & CONTROL_BIT:
            committed = control_type(payload, self._records) == CONTROL_COMMIT
            for group_id in self._in_transaction.pop(producer_id, ()):
                self.loaded.offsets[group_id].complete(producer_id, committed=committed)
            return
        transaction = producer_id if attributes & TRANSACTIONAL_BIT else None
        self._add_records(payload, table.base_offset[row], transaction)

    def _add_records(self, payload: Bytes, base_offset: int, transaction: int | None) -> None:
        offsets = self._records.offset
        number, end = 0, len(offsets)
        while number < end:
            if transaction is None:
                until = min(number + _AT_ONCE, end)
                number = self._loader.load(payload, self._records, number, until)
                if number == until:
                    if number < end:
                        self._pause()
                    continue
            try:
                self._add_record(payload, number, base_offset, transaction)
            except FormatError as error:
                _log.warning(
                    "%s: the record at offset %d is not loaded: %s", self._name, offsets[number], error
                )
            number += 1

    def _offsets_of(self, group_id: str) -> GroupOffsets:
        offsets = self.loaded.offsets.get(group_id)
        if offsets is None:
            offsets = self.loaded.offsets[group_id] = GroupOffsets()
        return offsets

    def _add_record(self, payload: Bytes, number: int, base_offset: int, transaction: int | None) -> None:
        records = self._records
        key_bytes = records.key(number, payload)
        if key_bytes is None:
            raise FormatError("the key is null")
        key = read_key(key_bytes)
        value = records.value(number, payload)
        if key is None:
            self._add_consumer_record(key_bytes, value)
        elif key.partition is not None:
            self._add_offset(key, value, base_offset, transaction)
        elif value is None:
            self.loaded.groups.pop(key.group_id, None)
        else:
            self.loaded.groups[key.group_id] = read_group_value(value)
            # A coordinator that knows classic groups alone has taken the id over.
            self.loaded.consumers.pop(key.group_id, None)

    def _add_consumer_record(self, key_bytes: bytes, value: bytes | None) -> None:
        key = read_consumer_key(key_bytes)
        if key is None:
            return  # of a share group or a streams group
        found = None if value is None else read_value(key, value)
        records = self.loaded.consumers.get(key.group_id)
        if records is None:
            if found is None:
                return
            records = self.loaded.consumers[key.group_id] = GroupRecords()
        records.apply(ConsumerRecord(key.kind, key.name, found))
        if records.exists:
            self.loaded.groups.pop(key.group_id, None)

    def _add_offset(
        self, key: RecordKey, value: bytes | None, base_offset: int, transaction: int | None
    ) -> None:
        if key.partition is None:
            return
        offsets = self._offsets_of(key.group_id)
        if transaction is not None:
            self._in_transaction.setdefault(transaction, set()).add(key.group_id)
        if value is None:
            offsets.load_removal(key.partition, transaction)
        else:
            offsets.load(key.partition, read_offset_value(value), base_offset, transaction)


def load_groups(
    log: PartitionLog,
    buffer_bytes: int,
    still_leads: Callable[[], bool],
    pause: Callable[[], None] = no_pause,
) -> LoadedGroups | None:
    """All groups in a log; None if this broker leads it no longer.

    `buffer_bytes` is `offsets.load.buffer.size`. `pause` is called now and then, so that it can let other
    threads run. If the log cannot be read to its end, the groups that were
    read until then are returned.
    """
    reader = GroupReader(str(log.partition), pause)
    read_bytes = min(buffer_bytes, _READ_BYTES)
    finished = read_log(log, read_bytes, still_leads, reader, pause, reader.add_plain)
    return reader.loaded if finished else None
