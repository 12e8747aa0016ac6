"""The records of `__transaction_state`, as plain values.

`formats.transaction_state` defines their fields, `formats.record_fields` reads and writes them. Values are
written in version 0.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, NamedTuple

from klog.coordinator.transactions.values import NO_TIMESTAMP, Producer, TransactionState
from klog.formats.constants import INT16_MAX
from klog.formats.errors import FormatError
from klog.formats.names import TopicPartition, partitions_by_topic
from klog.formats.record_fields import RecordFields, version_of

_KEY_VERSION: Final = 0
_VALUE_VERSION: Final = 0

_KEY: Final = RecordFields("TransactionLogKey")
_VALUE: Final = RecordFields("TransactionLogValue")
_NO_PARTITIONS: Final = frozenset[TopicPartition]()

# The states that a record may have: an id that is dead has no record, and fencing is over when it is written.
_STATES: Final = {
    state.number: state
    for state in TransactionState
    if state not in (TransactionState.DEAD, TransactionState.PREPARE_EPOCH_FENCE)
}


class TransactionRecord(NamedTuple):
    """The record of a transactional id. `start_ms` is -1 if no transaction has started."""

    producer: Producer
    timeout_ms: int
    state: TransactionState
    partitions: frozenset[TopicPartition]
    last_update_ms: int
    start_ms: int = NO_TIMESTAMP


# -- writing -------------------------------------------------------------------------------------------------


def can_be_written(transactional_id: str) -> bool:
    """Whether a record can have this id."""
    return len(transactional_id.encode("utf-8", "surrogatepass")) <= INT16_MAX


def transaction_key(transactional_id: str) -> bytes:
    """The key of a transactional id. Raises `FormatError` if the id is too long."""
    return _KEY.write(_KEY_VERSION, {"transactionalId": transactional_id})


def transaction_value(record: TransactionRecord) -> bytes:
    """The value of a record: partitions in the order of their names. Raises `FormatError`."""
    producer = record.producer
    is_empty = record.state is TransactionState.EMPTY
    if is_empty and record.partitions:
        raise FormatError("an empty transaction has partitions")
    return _VALUE.writers[_VALUE_VERSION](
        _VALUE_VERSION,
        producerId=producer.producer_id,
        producerEpoch=producer.epoch,
        transactionTimeoutMs=record.timeout_ms,
        transactionStatus=record.state.number,
        transactionPartitions=None if is_empty else _topics(record.partitions),
        transactionLastUpdateTimestampMs=record.last_update_ms,
        transactionStartTimestampMs=record.start_ms,
    )


def _topics(partitions: Collection[TopicPartition]) -> list[dict[str, object]]:
    if len(partitions) < 2:  # as in most transactions
        return [{"topic": topic, "partitionIds": (number,)} for topic, number in partitions]
    by_topic = partitions_by_topic(sorted(partitions))
    return [{"topic": topic, "partitionIds": numbers} for topic, numbers in by_topic.items()]


# -- reading -------------------------------------------------------------------------------------------------


def read_transaction_key(key: bytes) -> str | None:
    """The transactional id of a record; None for a type of record that Kafka does not define.

    Raises `FormatError`.
    """
    if version_of(key) != _KEY_VERSION:
        return None
    transactional_id: str = _KEY.read(key)["transactionalId"]
    return transactional_id


def read_transaction_value(value: bytes) -> TransactionRecord:
    """A record, of any version. Raises `FormatError`."""
    fields = _VALUE.read(value)
    status = fields["transactionStatus"]
    topics = fields["transactionPartitions"]
    state = _STATES.get(status)
    if state is None:
        raise FormatError(f"a transaction cannot have the state {status}")
    return TransactionRecord(
        Producer(fields["producerId"], fields["producerEpoch"]),
        fields["transactionTimeoutMs"],
        state,
        _partitions(topics) if topics else _NO_PARTITIONS,
        fields["transactionLastUpdateTimestampMs"],
        fields["transactionStartTimestampMs"],
    )


def _partitions(topics: Iterable[Mapping[str, Any]]) -> frozenset[TopicPartition]:
    return frozenset(
        [TopicPartition(topic["topic"], number) for topic in topics for number in topic["partitionIds"]]
    )
