"""Reading a partition's log for a coordinator: all that can be read, and a word about the rest."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from klog.coordinator.runtime.log_reading import read_log
from klog.coordinator.transactions.coordinator import TRANSACTION_STATE
from klog.coordinator.transactions.loading import load_transactions
from klog.coordinator.transactions.records import TransactionRecord
from klog.coordinator.transactions.values import Producer, TransactionState
from klog.coordinator.transactions.writing import record_batch, removal_batches
from klog.formats.errors import FormatError
from klog.formats.names import TopicPartition
from klog.kernel.columns import BatchTable
from klog.storage.log.append_values import Origin
from klog.storage.log.partition_log import PartitionLog
from tests.storage.log.building import NOW_MS, append, batch, fill, new_log

PARTITION = TopicPartition(TRANSACTION_STATE, 3)


@dataclass
class Reader:
    """Notes the offsets of batches; those in `bad` cannot be decoded."""

    bad: set[int] = field(default_factory=set)
    offsets: list[int] = field(default_factory=list)

    def add_batch(self, _data: memoryview, table: BatchTable, row: int) -> None:
        if table.base_offset[row] in self.bad:
            raise FormatError("a defect")
        self.offsets.append(table.base_offset[row])


@pytest.fixture
def log(tmp_path: Path) -> PartitionLog:
    return new_log(tmp_path, {"segment.bytes": "2000"}, partition=PARTITION)


@pytest.mark.parametrize("buffer_bytes", [1, 300, 1 << 20])
def test_all_batches_of_all_segments_are_read_once(log: PartitionLog, buffer_bytes: int) -> None:
    fill(log, 100, records=2)
    reader = Reader()
    assert read_log(log, buffer_bytes, lambda: True, reader)
    assert reader.offsets == list(range(0, 200, 2))


def test_what_is_not_replicated_yet_is_read_too(log: PartitionLog) -> None:
    append(log, batch())
    reader = Reader()
    assert log.high_watermark == 0
    assert read_log(log, 1 << 20, lambda: True, reader)
    assert reader.offsets == [0]


def test_reading_ends_when_the_leadership_does(log: PartitionLog) -> None:
    fill(log, 10)
    reader = Reader()
    assert not read_log(log, 1, lambda: len(reader.offsets) < 4, reader)
    assert reader.offsets == [0, 1, 2, 3]


def test_there_is_a_pause_after_each_chunk(log: PartitionLog) -> None:
    fill(log, 10)
    pauses: list[int] = []
    reader = Reader()
    assert read_log(log, 1, lambda: True, reader, lambda: pauses.append(len(reader.offsets)))
    assert pauses == list(range(1, 11))


def test_a_batch_that_cannot_be_decoded_is_logged_with_its_offsets(
    log: PartitionLog, caplog: pytest.LogCaptureFixture
) -> None:
    fill(log, 5, records=3)
    reader = Reader(bad={6})
    assert read_log(log, 1 << 20, lambda: True, reader)
    assert reader.offsets == [0, 3, 9, 12]
    assert caplog.messages == ["__transaction_state-3: the records 6 to 8 are not loaded: a defect"]


def test_where_reading_cannot_go_on_is_logged(log: PartitionLog, caplog: pytest.LogCaptureFixture) -> None:
    fill(log, 4)
    (path,) = Path(log.directory).glob("*.log")
    size = path.stat().st_size // 4
    with path.open("r+b") as file:
        file.seek(2 * size + 8)
        file.write(b"\xff" * 4)  # the size of the third batch is negative
    reader = Reader()
    assert read_log(log, 1 << 20, lambda: True, reader)
    assert reader.offsets == [0, 1]
    assert len(caplog.messages) == 1
    assert caplog.messages[0].startswith("__transaction_state-3")


# -- transactional ids ---------------------------------------------------------------------------------------


def test_many_transactional_ids_are_loaded(log: PartitionLog) -> None:
    record = TransactionRecord(
        Producer(7, 0), 60_000, TransactionState.ONGOING, frozenset([PARTITION]), NOW_MS, NOW_MS
    )
    ids = [f"id-{number}" for number in range(200)]
    for each in ids:
        append(log, record_batch(each, record, NOW_MS).view(), origin=Origin.COORDINATOR)
    for _, removal in removal_batches(ids[::2], NOW_MS, 500):
        append(log, removal.view(), origin=Origin.COORDINATOR)
    later = record._replace(producer=Producer(7, 1))
    append(log, record_batch(ids[1], later, NOW_MS).view(), origin=Origin.COORDINATOR)
    expected = {**dict.fromkeys(ids[1::2], record), ids[1]: later}
    assert load_transactions(log, 1 << 20, lambda: True) == expected
    assert load_transactions(log, 100, lambda: True) == expected
    assert load_transactions(log, 100, lambda: False) is None


def test_damage_among_plain_batches_costs_one_record(
    log: PartitionLog, caplog: pytest.LogCaptureFixture
) -> None:
    record = TransactionRecord(Producer(7, 0), 60_000, TransactionState.EMPTY, frozenset(), NOW_MS)
    for each in "abc":
        append(log, record_batch(each, record, NOW_MS).view(), origin=Origin.COORDINATOR)
    (path,) = Path(log.directory).glob("*.log")
    size = path.stat().st_size // 3
    with path.open("r+b") as file:
        os.pwrite(file.fileno(), b"\x7f", size + 61)  # the second record claims another length
    assert load_transactions(log, 1 << 20, lambda: True) == {"a": record, "c": record}
    (message,) = caplog.messages
    assert message.startswith("__transaction_state-3: the records 1 to 1 are not loaded: ")
