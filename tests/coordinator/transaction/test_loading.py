"""Transactional ids as they are read from the log: the last record counts, and damage is skipped."""

from __future__ import annotations

import base64
import logging

import pytest

from klog.coordinator.transactions.loading import TransactionReader
from klog.coordinator.transactions.records import (
    TransactionRecord,
    read_transaction_key,
    read_transaction_value,
    transaction_key,
    transaction_value,
)
from klog.coordinator.transactions.values import Producer, TransactionState
from klog.formats.constants import BATCH_HEADER_BYTES
from klog.formats.errors import FormatError
from klog.kernel import kernel
from klog.kernel.batch_builder import BatchFields, RecordData, build_batch
from klog.kernel.columns import BatchTable
from tests import corpora
from tests.coordinator.transaction.play import ID, A, B, Play

NAME = "__transaction_state-3"
OPEN = TransactionRecord(Producer(5, 1), 60_000, TransactionState.ONGOING, frozenset([A, B]), 20, 10)
DONE = OPEN._replace(state=TransactionState.COMPLETE_COMMIT, partitions=frozenset())


class Log:
    """Batches one after the other, and a reader of them."""

    def __init__(self) -> None:
        self.reader = TransactionReader(NAME)
        self._offset = 0

    def add(self, *added: tuple[bytes | None, bytes | None], fields: BatchFields | None = None) -> None:
        records = [RecordData(self._offset + n, 1, key, value) for n, (key, value) in enumerate(added)]
        self._offset += len(added)
        data = memoryview(build_batch(records, fields or BatchFields()))
        table = BatchTable()
        kernel.scan(data, 0, True, table)
        self.reader.add_batch(data, table, 0)

    def put(self, record: TransactionRecord | None, transactional_id: str = ID) -> None:
        value = None if record is None else transaction_value(record)
        self.add((transaction_key(transactional_id), value))

    @property
    def loaded(self) -> dict[str, TransactionRecord]:
        return self.reader.loaded


@pytest.fixture
def log() -> Log:
    return Log()


def test_the_last_record_of_an_id_counts(log: Log) -> None:
    log.put(OPEN)
    log.put(OPEN, "other")
    log.put(DONE)
    assert log.loaded == {ID: DONE, "other": OPEN}


def test_a_record_without_a_value_removes_its_id(log: Log) -> None:
    log.put(None)
    log.put(OPEN)
    log.put(None)
    assert log.loaded == {}
    log.put(OPEN)
    assert log.loaded == {ID: OPEN}


def test_several_records_share_a_batch(log: Log) -> None:
    key = transaction_key(ID)
    log.add((key, transaction_value(OPEN)), (transaction_key("x"), transaction_value(OPEN)), (key, None))
    assert log.loaded == {"x": OPEN}


@pytest.mark.parametrize("codec", range(5))
def test_batches_may_be_compressed(log: Log, codec: int) -> None:
    log.add((transaction_key(ID), transaction_value(OPEN)), fields=BatchFields(codec=codec))
    assert log.loaded == {ID: OPEN}


def test_control_batches_are_of_no_interest(log: Log, caplog: pytest.LogCaptureFixture) -> None:
    log.put(OPEN)
    fields = BatchFields(producer_id=1, producer_epoch=0, is_transactional=True, is_control=True)
    log.add((b"\0\0\0\1", b"\0\0\0\0\0\0"), fields=fields)
    assert log.loaded == {ID: OPEN}
    assert not caplog.records


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, transaction_value(DONE)),
        (b"", transaction_value(DONE)),
        (b"\0\0\0\x09ab", transaction_value(DONE)),
        (b"\0\1\0\0", transaction_value(DONE)),
        (transaction_key(ID), transaction_value(DONE)[:-1]),
        (transaction_key(ID), b""),
        (transaction_key(ID), b"\0\x63" + bytes(40)),
        (transaction_key(ID), b"\xff\xff" + bytes(40)),
    ],
    ids=["no key", "empty key", "cut key", "other type", "cut value", "empty value", "version", "negative"],
)
def test_a_record_that_cannot_be_read_is_logged_and_the_rest_is_loaded(
    log: Log, caplog: pytest.LogCaptureFixture, key: bytes | None, value: bytes
) -> None:
    log.put(OPEN)
    with caplog.at_level(logging.WARNING):
        log.add((key, value), (transaction_key("next"), transaction_value(DONE)))
    assert log.loaded == {ID: OPEN, "next": DONE}
    (logged,) = caplog.messages
    assert logged.startswith(f"{NAME}: the record at offset 1 is not loaded: ")


def test_a_batch_that_cannot_be_decoded_is_refused(log: Log) -> None:
    batch = build_batch(
        [RecordData(0, 1, transaction_key(ID), transaction_value(OPEN))], BatchFields(codec=1)
    )
    batch[BATCH_HEADER_BYTES] ^= 0xFF
    table = BatchTable()
    kernel.scan(memoryview(batch), 0, False, table)
    with pytest.raises(FormatError):
        log.reader.add_batch(memoryview(batch), table, 0)


# -- real Kafka ----------------------------------------------------------------------------------------------


def kafka_partitions() -> list[corpora.PartitionDirectory]:
    return [each for each in corpora.partitions() if each.name.startswith("__transaction_state-")]


def read_files(partition: corpora.PartitionDirectory) -> dict[str, TransactionRecord]:
    reader = TransactionReader(partition.name)
    for path in partition.files(".log"):
        data = memoryview(path.read_bytes())
        table = BatchTable()
        kernel.scan(data, 0, True, table)
        for row in range(len(table)):
            reader.add_batch(data, table, row)
    return reader.loaded


@pytest.mark.parametrize("partition", kafka_partitions(), ids=str)
def test_what_real_kafka_wrote_is_loaded(
    partition: corpora.PartitionDirectory, caplog: pytest.LogCaptureFixture
) -> None:
    expected: dict[str | None, TransactionRecord] = {}
    for record in partition.expected_records():
        transactional_id = read_transaction_key(base64.b64decode(record["key"]))
        if record["value"] is None:
            expected.pop(transactional_id, None)
        else:
            expected[transactional_id] = read_transaction_value(base64.b64decode(record["value"]))
    assert read_files(partition) == expected
    assert not caplog.records


def test_a_coordinator_goes_on_with_what_real_kafka_wrote() -> None:
    (partition,) = (each for each in kafka_partitions() if str(each) == "k39-txn/logs/__transaction_state-0")
    play = Play()
    loaded = read_files(partition)
    assert loaded
    play.partition.install(loaded)
    decided = {name for name, record in loaded.items() if record.state.title.startswith("Prepare")}
    assert {wanted.transactional_id for wanted in play.markers.all_sent} == decided
    play.now_ms = max(record.last_update_ms for record in loaded.values()) + 3_600_000
    play.partition.abort_timed_out()
    play.markers.write_all()
    for transactional_id, record in loaded.items():
        answer = play.init(transactional_id=transactional_id)
        assert answer.value.producer.producer_id == record.producer.producer_id
        assert answer.value.producer.epoch > record.producer.epoch
    assert play.written().keys() == loaded.keys()


def test_what_was_loaded_is_written_as_it_was_read() -> None:
    loaded = [record for each in kafka_partitions() for record in read_files(each).values()]
    assert loaded
    assert [read_transaction_value(transaction_value(record)) for record in loaded] == loaded
