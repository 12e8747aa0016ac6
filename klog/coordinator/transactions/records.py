"""Reads and writes the records of `__transaction_state` fast.

The definitions in `formats.transaction_state` say what the fields mean.

Rules: Kafka's schemas TransactionLogKey and TransactionLogValue. Version 0 of the value is read and written
here, later ones are read through the definitions. Tests hold both equal.
"""

from __future__ import annotations

import struct
from collections.abc import Collection
from typing import Any, Final, NamedTuple

from klog.coordinator.transactions.values import NO_TIMESTAMP, Producer, TransactionState
from klog.formats import fixed_fields
from klog.formats.errors import FormatError
from klog.formats.names import TopicPartition
from klog.formats.packed import INT16, INT32

_KEY_VERSION: Final = 0
_VALUE_VERSION: Final = 0
_NEWEST_DEFINED_VERSION: Final = 1
_LONGEST_STRING_BYTES: Final = 0x7FFF

_HEAD: Final = fixed_fields.run("TransactionValue.0").struct
_TIMES: Final = fixed_fields.run("TransactionValue.0", "transactionLastUpdateTimestampMs").struct
_NULL_TOPICS: Final = -1

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


def _string(text: str) -> bytes:
    data = text.encode("utf-8", "surrogatepass")
    if len(data) > _LONGEST_STRING_BYTES:
        raise FormatError(f"a string of {len(data)} bytes does not fit a transaction's record")
    return INT16.pack(len(data)) + data


def can_be_written(transactional_id: str) -> bool:
    """Whether a record can have this id."""
    return len(transactional_id.encode("utf-8", "surrogatepass")) <= _LONGEST_STRING_BYTES


def transaction_key(transactional_id: str) -> bytes:
    """The key of a transactional id. Raises `FormatError` if the id is too long."""
    return INT16.pack(_KEY_VERSION) + _string(transactional_id)


def transaction_value(record: TransactionRecord) -> bytes:
    """The value of a record: partitions in the order of their names. Raises `FormatError`."""
    producer, partitions = record.producer, record.partitions
    topics = _NULL_TOPICS
    middle = b""
    if record.state is not TransactionState.EMPTY:
        middle, topics = _topics(partitions)
    elif partitions:
        raise FormatError("an empty transaction has partitions")
    head = _HEAD.pack(
        _VALUE_VERSION,
        producer.producer_id,
        producer.epoch,
        record.timeout_ms,
        record.state.number,
        topics,
    )
    return head + middle + _TIMES.pack(record.last_update_ms, record.start_ms)


def _topics(partitions: Collection[TopicPartition]) -> tuple[bytes, int]:
    """The topics with their partitions, and how many topics they are."""
    if len(partitions) == 1:
        ((topic, number),) = partitions
        return _string(topic) + _numbers(number), 1
    by_topic: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        by_topic.setdefault(topic, []).append(number)
    return b"".join(_string(topic) + _numbers(*found) for topic, found in by_topic.items()), len(by_topic)


def _numbers(*numbers: int) -> bytes:
    return struct.pack(f">{1 + len(numbers)}i", len(numbers), *numbers)


# -- reading -------------------------------------------------------------------------------------------------


def _number(data: bytes, position: int, layout: struct.Struct) -> int:
    try:
        (value,) = layout.unpack_from(data, position)
    except struct.error:
        raise FormatError("the record ends too early", position_bytes=position) from None
    return int(value)


def _read_string(data: bytes, position: int) -> tuple[str, int]:
    """A string, and the position after it."""
    size = _number(data, position, INT16)
    start = position + INT16.size
    if size < 0 or start + size > len(data):
        raise FormatError(f"a string of {size} bytes does not fit", position_bytes=position)
    try:
        return data[start : start + size].decode("utf-8", "surrogatepass"), start + size
    except UnicodeDecodeError as error:
        raise FormatError(f"a string is not UTF-8: {error}", position_bytes=position) from None


def read_transaction_key(key: bytes) -> str | None:
    """The transactional id of a record; None for a type of record that Kafka does not define.

    Raises `FormatError`.
    """
    if _number(key, 0, INT16) != _KEY_VERSION:
        return None
    return _read_string(key, INT16.size)[0]


def read_transaction_value(value: bytes) -> TransactionRecord:
    """A record, of any version. Raises `FormatError`."""
    version = _number(value, 0, INT16)
    if version != _VALUE_VERSION:
        return _read_defined(value, version)
    try:
        _, producer_id, epoch, timeout_ms, status, topics = _HEAD.unpack_from(value)
        partitions, position = _read_topics(value, topics)
        last_update_ms, start_ms = _TIMES.unpack_from(value, position)
    except struct.error:
        raise FormatError("the record ends too early", position_bytes=len(value)) from None
    return _record(Producer(producer_id, epoch), timeout_ms, status, partitions, last_update_ms, start_ms)


def _read_topics(value: bytes, topics: int) -> tuple[list[TopicPartition], int]:
    partitions: list[TopicPartition] = []
    position = _HEAD.size
    for _ in range(topics):
        topic, position = _read_string(value, position)
        count = _number(value, position, INT32)
        position += INT32.size
        end = position + count * INT32.size
        if count < 0 or end > len(value):
            raise FormatError(f"{count} partitions do not fit", position_bytes=position)
        numbers = struct.unpack_from(f">{count}i", value, position)
        partitions += [TopicPartition(topic, number) for number in numbers]
        position = end
    return partitions, position


def _record(
    producer: Producer,
    timeout_ms: int,
    status: int,
    partitions: Collection[TopicPartition],
    last_update_ms: int,
    start_ms: int,
) -> TransactionRecord:
    state = _STATES.get(status)
    if state is None:
        raise FormatError(f"a transaction cannot have the state {status}")
    return TransactionRecord(producer, timeout_ms, state, frozenset(partitions), last_update_ms, start_ms)


def _read_defined(value: bytes, version: int) -> TransactionRecord:
    if not _VALUE_VERSION <= version <= _NEWEST_DEFINED_VERSION:
        raise FormatError(f"version {version} of a transaction's record is not known")
    from klog.formats import binary
    from klog.formats.transaction_state import Value

    read: Any = binary.parse_all(Value, value, "TransactionLogValue")
    return _record(
        Producer(read["producerId"], read["producerEpoch"]),
        read["transactionTimeoutMs"],
        read["transactionStatus"],
        [
            TopicPartition(topic["topic"], number)
            for topic in read["transactionPartitions"] or ()
            for number in topic["partitionIds"]
        ],
        read["transactionLastUpdateTimestampMs"],
        read["transactionStartTimestampMs"],
    )
