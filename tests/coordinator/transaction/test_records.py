"""The fast reader and writer of transaction records equal the definitions, and real Kafka's bytes."""

from __future__ import annotations

import base64
import contextlib
import struct

import construct as c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.coordinator.transactions import records
from klog.coordinator.transactions.records import TransactionRecord
from klog.coordinator.transactions.values import Producer, TransactionState
from klog.formats import binary, transaction_state
from klog.formats.errors import FormatError
from klog.formats.names import TopicPartition
from tests import corpora

INT16 = st.integers(-(2**15), 2**15 - 1)
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=20)
PARTITIONS = st.frozensets(st.builds(TopicPartition, st.sampled_from("abc") | TEXT, INT32), max_size=6)
WRITABLE = [state for state in TransactionState if state.number < TransactionState.DEAD.number]
PRODUCERS = st.builds(Producer, INT64, INT16)
RECORDS = st.builds(
    TransactionRecord, PRODUCERS, INT32, st.sampled_from(WRITABLE), PARTITIONS, INT64, INT64
).map(lambda record: record if record.state is not TransactionState.EMPTY else without_partitions(record))
VERSIONS = st.integers(0, 1)


def without_partitions(record: TransactionRecord) -> TransactionRecord:
    return record._replace(partitions=frozenset())


def defined(record: TransactionRecord, version: int) -> bytes:
    """The value as the definition builds it."""
    by_topic: dict[str, list[int]] = {}
    for topic, number in sorted(record.partitions):
        by_topic.setdefault(topic, []).append(number)
    topics = [
        c.Container(topic=topic, partitionIds=numbers, taggedFields=[]) for topic, numbers in by_topic.items()
    ]
    fields = c.Container(
        version=version,
        producerId=record.producer.producer_id,
        producerEpoch=record.producer.epoch,
        transactionTimeoutMs=record.timeout_ms,
        transactionStatus=record.state.number,
        transactionPartitions=None if record.state is TransactionState.EMPTY else topics,
        transactionLastUpdateTimestampMs=record.last_update_ms,
        transactionStartTimestampMs=record.start_ms,
        taggedFields=[],
    )
    return binary.build(transaction_state.Value, fields, "value")


@given(TEXT)
def test_keys_are_written_and_read_as_defined(transactional_id: str) -> None:
    key = records.transaction_key(transactional_id)
    assert key == binary.build(
        transaction_state.Key, c.Container(version=0, transactionalId=transactional_id), "key"
    )
    assert records.read_transaction_key(key) == transactional_id


@given(RECORDS)
def test_values_are_written_as_defined(record: TransactionRecord) -> None:
    assert records.transaction_value(record) == defined(record, 0)


@given(RECORDS, VERSIONS)
def test_values_are_read_as_defined(record: TransactionRecord, version: int) -> None:
    assert records.read_transaction_value(defined(record, version)) == record


@given(RECORDS, VERSIONS, st.data())
def test_a_cut_value_is_refused(record: TransactionRecord, version: int, data: st.DataObject) -> None:
    value = defined(record, version)
    cut = value[: data.draw(st.integers(0, len(value) - 1))]
    with pytest.raises(FormatError):
        records.read_transaction_value(cut)


@given(st.binary(max_size=60), st.sampled_from([b"", b"\x00\x00", b"\x00\x01"]))
def test_any_bytes_are_read_or_refused(data: bytes, version: bytes) -> None:
    for read in (records.read_transaction_key, records.read_transaction_value):
        with contextlib.suppress(FormatError):
            read(version + data)


@given(RECORDS, st.data())
def test_a_value_with_changed_bytes_is_read_or_refused(
    record: TransactionRecord, data: st.DataObject
) -> None:
    value = bytearray(records.transaction_value(record))
    for _ in range(data.draw(st.integers(1, 3))):
        value[data.draw(st.integers(0, len(value) - 1))] = data.draw(st.integers(0, 255))
    try:
        read = records.read_transaction_value(bytes(value))
    except FormatError:
        return
    assert isinstance(read, TransactionRecord)


@pytest.mark.parametrize("state", [TransactionState.DEAD, TransactionState.PREPARE_EPOCH_FENCE])
def test_states_that_are_never_written_are_refused(state: TransactionState) -> None:
    record = TransactionRecord(Producer(1, 1), 1, state, frozenset(), 1)
    with pytest.raises(FormatError, match=f"cannot have the state {state.number}"):
        records.read_transaction_value(records.transaction_value(record))


def test_partitions_of_an_empty_transaction_are_refused() -> None:
    partitions = frozenset([TopicPartition("t", 0)])
    record = TransactionRecord(Producer(1, 1), 1, TransactionState.EMPTY, partitions, 1)
    with pytest.raises(FormatError):
        records.transaction_value(record)


def test_a_version_that_nobody_knows_is_refused() -> None:
    with pytest.raises(FormatError, match="version 7"):
        records.read_transaction_value(struct.pack(">h", 7) + bytes(40))


def test_a_key_of_another_type_is_no_transaction() -> None:
    assert records.read_transaction_key(struct.pack(">hh", 1, 0)) is None


@pytest.mark.parametrize("characters", [0x7FFF, 0x8000])
def test_an_id_is_as_long_as_a_string_can_be(characters: int) -> None:
    transactional_id = "x" * characters
    assert records.can_be_written(transactional_id) == (characters == 0x7FFF)
    if characters == 0x7FFF:
        assert records.read_transaction_key(records.transaction_key(transactional_id)) == transactional_id
    else:
        with pytest.raises(FormatError):
            records.transaction_key(transactional_id)


# -- real Kafka ----------------------------------------------------------------------------------------------


def kafka_records() -> list[tuple[bytes, bytes | None]]:
    """All records that real Kafka wrote to `__transaction_state`."""
    found = []
    for partition in corpora.partitions():
        if partition.name.startswith("__transaction_state-") and partition.has_expected:
            for record in partition.expected_records():
                value = record["value"]
                found.append(
                    (base64.b64decode(record["key"]), None if value is None else base64.b64decode(value))
                )
    return found


def test_records_of_real_kafka_are_read_and_written_again_byte_for_byte() -> None:
    found = kafka_records()
    assert len(found) > 100
    versions = set()
    for key, value in found:
        transactional_id = records.read_transaction_key(key)
        assert transactional_id is not None
        assert records.transaction_key(transactional_id) == key
        if value is None:
            continue
        record = records.read_transaction_value(value)
        versions.add(value[1])
        written = records.transaction_value(record)
        assert records.read_transaction_value(written) == record
        # Kafka has topics in no order, and klog in that of their names.
        if value[1] == 0 and len({topic for topic, _ in record.partitions}) < 2:
            assert written == value
        elif value[1] == 0:
            assert sorted(written) == sorted(value)
    assert versions == {0, 1}
