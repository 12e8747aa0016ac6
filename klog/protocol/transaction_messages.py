"""Reads and writes the messages of which every transaction consists.

Rules: AddPartitionsToTxn (requests of versions 0 to 3, which clients send), EndTxn and WriteTxnMarkers of
Kafka's message schemas. A reader takes and refuses the same bytes as the reader of entities; a property test
holds both equal. All readers raise MalformedMessageError.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable, Mapping
from typing import Final, NamedTuple, TypeVar

from klog.formats.names import TopicPartition
from klog.protocol.error_codes import ErrorCode, error_code
from klog.protocol.message_tables import Message, Part, Struct
from klog.protocol.primitives import Buffer

_END_TXN_FLEXIBLE_FROM: Final = 3  # AddOffsetsToTxn, too
_THROTTLE_ERROR: Final = struct.Struct(">ih")
_Value = TypeVar("_Value")


class AddPartitions(NamedTuple):
    """An AddPartitionsToTxn request of a client; each partition occurs once, in the order of the request."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: Collection[TopicPartition]


class EndTxn(NamedTuple):
    """An EndTxn request."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    committed: bool


class TxnMarker(NamedTuple):
    """What a WriteTxnMarkers request says of one transaction; each partition occurs once."""

    producer_id: int
    producer_epoch: int
    committed: bool
    partitions: Collection[TopicPartition]
    coordinator_epoch: int


_NUMBERS: Final = Struct(tuple, (Part("name", "string"), Part("partitions", "int32", array=list)))
_ERROR: Final = Struct(tuple, (Part("partition", "int32"), Part("error", "int16")))
_ERRORS: Final = Struct(tuple, (Part("name", "string"), Part("partitions", _ERROR, array=list)))
_PRODUCER: Final = (Part("producer_id", "int64"), Part("producer_epoch", "int16"))
_ADD_PARTITIONS: Final = Message(
    "AddPartitionsToTxn request",
    3,
    Struct(tuple, (Part("transactional_id", "string"), *_PRODUCER, Part("topics", _NUMBERS, array=list))),
)
_ADDED_PARTITIONS: Final = Message(
    "AddPartitionsToTxn response",
    3,
    Struct(tuple, (Part("throttle_time_ms", "int32"), Part("topics", _ERRORS, array=list))),
)
_END_TXN: Final = Message(
    "EndTxn request",
    _END_TXN_FLEXIBLE_FROM,
    Struct(EndTxn, (Part("transactional_id", "string"), *_PRODUCER, Part("committed", "bool"))),
)
_MARKER: Final = Struct(
    tuple,
    (
        *_PRODUCER,
        Part("committed", "bool"),
        Part("topics", _NUMBERS, array=list),
        Part("coordinator_epoch", "int32"),
    ),
)
_WRITTEN: Final = Struct(tuple, (Part("producer_id", "int64"), Part("topics", _ERRORS, array=list)))
_MARKERS, _WRITTEN_MARKERS = (
    Message(f"WriteTxnMarkers {kind}", 1, Struct(tuple, (Part("markers", each, array=list),)))
    for kind, each in (("request", _MARKER), ("response", _WRITTEN))
)


def _partitions(topics: Iterable[tuple[str, list[int]]]) -> Collection[TopicPartition]:
    return {TopicPartition(name, number): None for name, numbers in topics for number in numbers}.keys()


def _by_topic(values: Iterable[tuple[str, _Value]]) -> list[tuple[str, list[_Value]]]:
    found: dict[str, list[_Value]] = {}
    for topic, value in values:
        found.setdefault(topic, []).append(value)
    return list(found.items())


def _errors(errors: Mapping[TopicPartition, int]) -> list[tuple[str, list[tuple[int, int]]]]:
    return _by_topic((topic, (number, error)) for (topic, number), error in errors.items())


# -- of producers --------------------------------------------------------------------------------------------


def read_add_partitions(version: int, body: Buffer) -> AddPartitions:
    """An AddPartitionsToTxn request of a version below 4."""
    transactional_id, producer_id, epoch, topics = _ADD_PARTITIONS.read(version, body)
    return AddPartitions(transactional_id, producer_id, epoch, _partitions(topics))


def read_end_txn(version: int, body: Buffer) -> EndTxn:
    """An EndTxn request."""
    request: EndTxn = _END_TXN.read(version, body)
    return request


def write_error(version: int, error: int) -> bytes:
    """The answer to EndTxn and AddOffsetsToTxn, unthrottled."""
    return _THROTTLE_ERROR.pack(0, error) + (b"\0" if version >= _END_TXN_FLEXIBLE_FROM else b"")


def write_added_partitions(version: int, errors: Mapping[TopicPartition, int]) -> bytes:
    """The answer to an AddPartitionsToTxn request of a version below 4, unthrottled: topics in the order of
    their first partition.
    """
    return b"".join(_ADDED_PARTITIONS.write(version, (0, _errors(errors))))


# -- markers -------------------------------------------------------------------------------------------------


def read_markers(version: int, body: Buffer) -> list[TxnMarker]:
    """A WriteTxnMarkers request."""
    return [
        TxnMarker(producer_id, epoch, committed, _partitions(topics), coordinator_epoch)
        for producer_id, epoch, committed, topics, coordinator_epoch in _MARKERS.read(version, body)[0]
    ]


def write_markers(version: int, markers: Collection[TxnMarker]) -> bytes:
    """A WriteTxnMarkers request; topics and partitions are sorted."""
    asked = [
        (producer_id, epoch, committed, _by_topic(sorted(partitions)), coordinator_epoch)
        for producer_id, epoch, committed, partitions, coordinator_epoch in markers
    ]
    return b"".join(_MARKERS.write(version, (asked,)))


MarkerErrorCodes = dict[int, dict[TopicPartition, ErrorCode]]
"""The errors of a WriteTxnMarkers answer, by producer id and partition."""


def read_written_markers(version: int, body: Buffer) -> MarkerErrorCodes:
    """The answer to a WriteTxnMarkers request. If something occurs twice, the last one counts.

    A number of no known error is UNKNOWN_SERVER_ERROR.
    """
    errors: MarkerErrorCodes = {}
    for producer_id, topics in _WRITTEN_MARKERS.read(version, body)[0]:
        of_producer = errors.setdefault(producer_id, {})
        for topic, partitions in topics:
            of_producer.update(
                (TopicPartition(topic, number), error_code(error)) for number, error in partitions
            )
    return errors


def write_written_markers(version: int, errors: Mapping[int, Mapping[TopicPartition, int]]) -> bytes:
    """The answer to a WriteTxnMarkers request: the errors by producer id and partition."""
    written = [(producer_id, _errors(of_producer)) for producer_id, of_producer in errors.items()]
    return b"".join(_WRITTEN_MARKERS.write(version, (written,)))
