"""Checks what a Produce request may contain before any of it is written.

Rules: Kafka's `RequestUtils.hasTransactionalRecords`, `ProduceRequest.validateRecords` and
`ByteBufferLogInputStream`, in the order of `KafkaApis.handleProduceRequest`. Bytes that cannot begin a batch,
transactional records without a transactional id, and those of several producers refuse the whole request. All
other checks refuse single partitions. If a request names a partition twice, the last records win.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from typing import Final, NamedTuple

from klog.coordinator.transactions.values import NO_PRODUCER, Producer
from klog.formats import fixed_fields
from klog.formats.compression import ZSTD
from klog.formats.constants import (
    BATCH_ATTRIBUTES_POSITION,
    BATCH_HEADER_BYTES,
    BATCH_PRODUCER_EPOCH_POSITION,
    BATCH_PRODUCER_ID_POSITION,
    CODEC_MASK,
    ENTRY_PREFIX_BYTES,
    ENTRY_SIZE_POSITION,
    MAGIC_POSITION,
    MAGIC_V2,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    TRANSACTIONAL_BIT,
)
from klog.formats.errors import KlogError
from klog.formats.names import PartitionKey
from klog.protocol.error_codes import ErrorCode
from klog.protocol.produce_request import PartitionRecords, ProduceRequest, Records
from klog.protocol.produce_response import PartitionProduced
from klog.storage.log.append_values import AppendError
from klog.storage.log.validation import require_possible_tail

_MAGIC_2_FROM: Final = 3
_ZSTD_FROM: Final = 7
_ATTRIBUTES_LOW_BYTE: Final = BATCH_ATTRIBUTES_POSITION + 1
_BATCH: Final = fixed_fields.run("RecordBatch")
_SHAPE_FIELDS: Final = ("batchLength", "magic", "attributes")
_SHAPE: Final = _BATCH.only(*_SHAPE_FIELDS)
_SHAPE_AND_PRODUCER: Final = _BATCH.only(*_SHAPE_FIELDS, "producerId", "producerEpoch", "baseSequence")
_PRODUCER: Final = _BATCH.between("producerId", "baseSequence")
_PRODUCER_END: Final = BATCH_PRODUCER_ID_POSITION + _PRODUCER.size

_Topics = list[tuple[str, list[PartitionRecords]]]


class RefusedRequestError(KlogError):
    """The whole request is refused: `error` is the answer for every partition."""

    def __init__(self, error: ErrorCode, what: str) -> None:
        super().__init__(what)
        self.error = error


class Transaction(NamedTuple):
    """The transactional records of a request: their producer, and the first sequence for each partition."""

    producer: Producer
    sequences: Mapping[PartitionKey, int]

    def without(self, refused: Container[PartitionKey]) -> Transaction | None:
        """The same without some partitions; None if nothing is left."""
        sequences = {key: first for key, first in self.sequences.items() if key not in refused}
        return self._replace(sequences=sequences) if sequences else None


class Screened(NamedTuple):
    """The partitions to write, each of them once, and the answers for those that are refused.

    `transaction` is None if no partition gets transactional records.
    """

    topics: _Topics
    refused: Mapping[PartitionKey, PartitionProduced]
    transaction: Transaction | None = None


class _Head(NamedTuple):
    """The fields of a batch or message that the checks need."""

    size_bytes: int
    magic: int
    attributes: int
    producer: Producer
    sequence: int


def is_usual(version: int, topics: _Topics) -> bool:
    """Whether no check can fail: each partition occurs once, with one whole batch of magic 2 that is not
    transactional.
    """
    if version < _ZSTD_FROM:
        return False
    keys = set()
    count = 0
    for topic, partitions in topics:
        if not partitions:
            return False
        for index, records in partitions:
            if records is None or (size := len(records)) < BATCH_HEADER_BYTES:
                return False
            follows, magic, attributes = _SHAPE.unpack_from(records)
            if follows + ENTRY_PREFIX_BYTES != size or magic != MAGIC_V2 or attributes & TRANSACTIONAL_BIT:
                return False
            keys.add((topic, index))
        count += len(partitions)
    return len(keys) == count


def usual_transaction(version: int, request: ProduceRequest) -> Transaction | None:
    """The transaction of a request for which no check can fail; None for any other request.

    Each partition occurs once, with one whole transactional batch of the same producer.
    """
    if version < _ZSTD_FROM or request.transactional_id is None:
        return None
    producer = None
    sequences: dict[PartitionKey, int] = {}
    count = 0
    for topic, partitions in request.topics:
        if not partitions:
            return None
        for index, records in partitions:
            if records is None or (size := len(records)) < BATCH_HEADER_BYTES:
                return None
            follows, magic, attributes, *sender, sequence = _SHAPE_AND_PRODUCER.unpack_from(records)
            if (
                follows + ENTRY_PREFIX_BYTES != size
                or magic != MAGIC_V2
                or not attributes & TRANSACTIONAL_BIT
                or sender[0] < 0
                or sender != (producer or sender)
            ):
                return None
            producer = sender
            sequences[topic, index] = sequence
        count += len(partitions)
    return Transaction(Producer(*producer), sequences) if producer and len(sequences) == count else None


def has_transactional_records(topics: _Topics) -> bool:
    """Whether the first batch for any partition is transactional."""
    return any(
        records is not None
        and len(records) > _ATTRIBUTES_LOW_BYTE
        and records[MAGIC_POSITION] >= MAGIC_V2
        and records[_ATTRIBUTES_LOW_BYTE] & TRANSACTIONAL_BIT
        for _, partitions in topics
        for _, records in partitions
    )


def screen(version: int, request: ProduceRequest, known: Callable[[PartitionKey], bool]) -> Screened:
    """Check a request. `known` says whether the cluster has a partition; others are not checked here.

    Raises `RefusedRequestError`.
    """
    merged: dict[str, dict[int, Records]] = {}
    for topic, partitions in request.topics:
        for index, records in partitions:
            _require_first_batch(records, request.transactional_id)
            merged.setdefault(topic, {})[index] = records
    refused: dict[PartitionKey, PartitionProduced] = {}
    transactional: dict[PartitionKey, _Head] = {}
    for topic, named in merged.items():
        for index, records in named.items():
            if known((topic, index)):
                head, refusal = _refusal(version, index, records)
                if refusal is not None:
                    refused[topic, index] = refusal
                elif head is not None and _is_transactional(head):
                    transactional[topic, index] = head
    topics = [(topic, list(named.items())) for topic, named in merged.items()]
    return Screened(topics, refused, _transaction(transactional))


def _is_transactional(head: _Head) -> bool:
    return bool(head.attributes & TRANSACTIONAL_BIT) and head.producer.producer_id > NO_PRODUCER_ID


def _transaction(transactional: Mapping[PartitionKey, _Head]) -> Transaction | None:
    """Raises `RefusedRequestError`."""
    producers = {head.producer for head in transactional.values()}
    if len(producers) > 1:
        raise RefusedRequestError(
            ErrorCode.INVALID_PRODUCER_ID_MAPPING, "Transactional records contained more than one producer ID"
        )
    sequences = {key: head.sequence for key, head in transactional.items()}
    return Transaction(producers.pop(), sequences) if producers else None


def _require_first_batch(records: Records, transactional_id: str | None) -> None:
    """Raises `RefusedRequestError`."""
    try:
        first = _head(records)
    except AppendError as corrupt:
        raise RefusedRequestError(ErrorCode.CORRUPT_MESSAGE, corrupt.what) from corrupt
    if first is not None and first.attributes & TRANSACTIONAL_BIT and transactional_id is None:
        raise RefusedRequestError(
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            "transactional records without a transactional id",
        )


def _refusal(version: int, index: int, records: Records) -> tuple[_Head | None, PartitionProduced | None]:
    """The head of a partition's records, and their refusal; None if they may be written.

    Their first batch has been checked. Raises `RefusedRequestError`.
    """
    first = _head(records)
    return first, _refusal_of(version, index, records, first)


def _refusal_of(version: int, index: int, records: Records, first: _Head | None) -> PartitionProduced | None:
    if version >= _MAGIC_2_FROM:
        if first is None or records is None:
            what = f"Produce {version} needs a record batch for every partition"
            return _refused(index, ErrorCode.INVALID_RECORD, what)
        if first.magic != MAGIC_V2:
            what = f"Produce {version} takes batches of magic 2 only, not {first.magic}"
            return _refused(index, ErrorCode.INVALID_RECORD, what)
        codec = first.attributes & CODEC_MASK
        if codec > ZSTD and version < _ZSTD_FROM:
            # Kafka fails here for the whole request; in later versions only the partition fails.
            raise RefusedRequestError(ErrorCode.UNKNOWN_SERVER_ERROR, f"there is no codec {codec}")
        if codec == ZSTD and version < _ZSTD_FROM:
            what = f"Produce {version} knows no zstd"
            return _refused(index, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, what)
        try:
            second = _head(records[first.size_bytes :])
        except AppendError as corrupt:
            return _refused(index, ErrorCode.CORRUPT_MESSAGE, corrupt.what)
        if second is not None:
            what = f"Produce {version} takes one record batch for a partition"
            return _refused(index, ErrorCode.INVALID_RECORD, what)
    if first is None or first.magic < MAGIC_V2:
        return None
    if first.size_bytes < BATCH_PRODUCER_EPOCH_POSITION:
        # Kafka fails here when it reads the producer id.
        raise RefusedRequestError(ErrorCode.UNKNOWN_SERVER_ERROR, "a batch ends before its producer's id")
    return None


def _refused(index: int, error: ErrorCode, what: str) -> PartitionProduced:
    return PartitionProduced(index, error, error_message=what)


def _head(records: Records) -> _Head | None:
    """The first batch or message of records; None if it is not whole. Raises `AppendError` if the bytes
    cannot begin a batch.
    """
    if records is None:
        return None
    require_possible_tail(records)
    size_bytes = int.from_bytes(records[ENTRY_SIZE_POSITION:ENTRY_PREFIX_BYTES], "big") + ENTRY_PREFIX_BYTES
    if len(records) <= MAGIC_POSITION or len(records) < size_bytes:
        return None
    magic = records[MAGIC_POSITION]
    if magic < MAGIC_V2:
        return _Head(size_bytes, magic, 0, NO_PRODUCER, NO_SEQUENCE)
    producer, sequence = NO_PRODUCER, NO_SEQUENCE
    if size_bytes >= _PRODUCER_END:
        producer_id, epoch, sequence = _PRODUCER.unpack_from(records, BATCH_PRODUCER_ID_POSITION)
        producer = Producer(producer_id, epoch)
    return _Head(size_bytes, magic, records[_ATTRIBUTES_LOW_BYTE], producer, sequence)
