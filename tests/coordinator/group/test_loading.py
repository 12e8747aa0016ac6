"""Groups as they are read from the log: the last record counts, and damage is skipped."""

from __future__ import annotations

import logging
import struct

import pytest

from klog.coordinator.groups.loading import GroupReader
from klog.coordinator.groups.records import GroupMetadata, group_key, group_value, offset_key, offset_value
from klog.coordinator.groups.values import CommittedOffset, FetchedOffset
from klog.kernel import kernel
from klog.kernel.batch_builder import BatchFields, RecordData, build_batch
from klog.kernel.columns import BatchTable

GROUP = "g"
KEY = ("t", 0)
PRODUCER = 9
IN_TRANSACTION = BatchFields(producer_id=PRODUCER, producer_epoch=0, is_transactional=True)


class Log:
    """Batches one after the other, and a reader of them."""

    def __init__(self) -> None:
        self.reader = GroupReader("__consumer_offsets-0")
        self._offset = 0

    def add(self, *records: tuple[bytes | None, bytes | None], fields: BatchFields | None = None) -> None:
        data = memoryview(
            build_batch(
                [RecordData(self._offset + n, 1, key, value) for n, (key, value) in enumerate(records)],
                fields or BatchFields(),
            )
        )
        table = BatchTable()
        kernel.scan(data, 0, True, table)
        self.reader.add_batch(data, table, 0)
        self._offset += len(records)

    def commit(self, offset: int | None, *, fields: BatchFields | None = None, group: str = GROUP) -> None:
        value = None if offset is None else offset_value(CommittedOffset(offset, -1, "", 1))
        self.add((offset_key(group, KEY), value), fields=fields)

    def end(self, *, committed: bool) -> None:
        fields = BatchFields(producer_id=PRODUCER, producer_epoch=0, is_transactional=True, is_control=True)
        self.add((struct.pack(">hh", 0, int(committed)), struct.pack(">hi", 0, 0)), fields=fields)

    def fetched(self, *, stable: bool = False) -> FetchedOffset:
        return self.reader.loaded.offsets[GROUP].fetch([KEY], require_stable=stable)[KEY]


@pytest.fixture
def log() -> Log:
    return Log()


def test_the_last_record_of_a_key_counts(log: Log) -> None:
    log.commit(1)
    log.commit(2)
    log.add((group_key(GROUP), group_value(GroupMetadata("consumer", 1, None, None))))
    log.add((group_key(GROUP), group_value(GroupMetadata("consumer", 2, None, None))))
    assert log.fetched().offset == 2
    assert log.reader.loaded.groups[GROUP].generation_id == 2
    assert log.reader.loaded.group_ids() == {GROUP}


def test_a_tombstone_removes_what_it_names(log: Log) -> None:
    log.commit(1)
    log.add((group_key(GROUP), group_value(GroupMetadata("consumer", 1, None, None))))
    log.add((group_key(GROUP), None))
    assert log.reader.loaded.group_ids() == {GROUP}  # its offsets are kept
    log.commit(None)
    assert log.reader.loaded.group_ids() == set()


@pytest.mark.parametrize("committed", [True, False])
def test_offsets_of_a_transaction_count_when_it_is_committed(log: Log, committed: bool) -> None:
    log.commit(1)
    log.commit(5, fields=IN_TRANSACTION)
    assert (log.fetched().offset, log.fetched(stable=True).offset) == (1, -1)
    log.end(committed=committed)
    assert log.fetched(stable=True).offset == (5 if committed else 1)


def test_a_group_that_has_only_an_open_transaction_is_loaded(log: Log) -> None:
    log.commit(5, fields=IN_TRANSACTION)
    assert log.reader.loaded.group_ids() == {GROUP}


def test_a_record_that_cannot_be_read_is_named_and_the_rest_is_loaded(
    log: Log, caplog: pytest.LogCaptureFixture
) -> None:
    good = offset_value(CommittedOffset(7, -1, "", 1))
    with caplog.at_level(logging.WARNING, "klog"):
        log.add(
            (offset_key(GROUP, KEY), b"\0\3cut"),
            (None, b"x"),
            (b"\0\1\0\x05abc", b""),
            (b"\0\x09new", b"of another kind"),
            (offset_key(GROUP, KEY), good),
        )
    assert log.fetched().offset == 7
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 3
    assert [f"the record at offset {number} is not loaded" in lines[number] for number in range(3)] == [
        True
    ] * 3
