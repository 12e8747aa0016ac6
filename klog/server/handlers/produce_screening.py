"""Checks what a Produce request may contain before any of it is written.

Rules: Kafka's `RequestUtils.hasTransactionalRecords`, `ProduceRequest.validateRecords` and
`ByteBufferLogInputStream`, in the order of `KafkaApis.handleProduceRequest`. Bytes that cannot
begin a batch, and transactional records without a transactional id, refuse the whole request. All other
checks refuse single partitions. If a request names a partition twice, the last records win.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from klog.formats.compression import ZSTD
from klog.formats.constants import (
    BATCH_CRC_FROM,
    BATCH_HEADER_BYTES,
    CODEC_MASK,
    ENTRY_PREFIX_BYTES,
    MAGIC_POSITION,
    MAGIC_V2,
    NO_PRODUCER_ID,
    TRANSACTIONAL_BIT,
)
from klog.formats.errors import KlogError
from klog.protocol.error_codes import ErrorCode
from klog.protocol.produce_request import PartitionRecords, ProduceRequest, Records
from klog.protocol.produce_response import PartitionProduced
from klog.server.handlers.partition_lookup import Key
from klog.storage.log.append_values import AppendError
from klog.storage.log.validation import require_possible_tail

_MAGIC_2_FROM: Final = 3
_ZSTD_FROM: Final = 7
_ATTRIBUTES_LOW_BYTE: Final = BATCH_CRC_FROM + 1
_PRODUCER_ID: Final = slice(43, 51)
_SHAPE: Final = struct.Struct(">8xi4xb4xh")  # what follows the size field, magic, attributes

_Topics = list[tuple[str, list[PartitionRecords]]]


class RefusedRequestError(KlogError):
    """The whole request is refused: `error` is the answer for every partition."""

    def __init__(self, error: ErrorCode, what: str) -> None:
        super().__init__(what)
        self.error = error


class Screened(NamedTuple):
    """The partitions to write, each of them once, and the answers for those that are refused."""

    topics: _Topics
    refused: Mapping[Key, PartitionProduced]


class _Head(NamedTuple):
    """The fields of a batch or message that the checks need."""

    size_bytes: int
    magic: int
    attributes: int
    producer_id: int


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


def screen(version: int, request: ProduceRequest, known: Callable[[Key], bool]) -> Screened:
    """Check a request. `known` says whether the cluster has a partition; others are not checked here.

    Raises `RefusedRequestError`.
    """
    merged: dict[str, dict[int, Records]] = {}
    for topic, partitions in request.topics:
        for index, records in partitions:
            _require_first_batch(records, request.transactional_id)
            merged.setdefault(topic, {})[index] = records
    refused: dict[Key, PartitionProduced] = {}
    for topic, named in merged.items():
        for index, records in named.items():
            if known((topic, index)):
                refusal = _refusal(version, index, records)
                if refusal is not None:
                    refused[topic, index] = refusal
    return Screened([(topic, list(named.items())) for topic, named in merged.items()], refused)


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


def _refusal(version: int, index: int, records: Records) -> PartitionProduced | None:
    """The refusal of a partition's records, whose first batch has been checked; None if they may be written.

    Raises `RefusedRequestError`.
    """
    first = _head(records)
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
    if first.size_bytes < _PRODUCER_ID.stop:
        # Kafka fails here when it reads the producer id.
        raise RefusedRequestError(ErrorCode.UNKNOWN_SERVER_ERROR, "a batch ends before its producer's id")
    if first.attributes & TRANSACTIONAL_BIT and first.producer_id > NO_PRODUCER_ID:
        # Kafka answers this for COORDINATOR_NOT_AVAILABLE: producers retry without new metadata.
        return _refused(
            index,
            ErrorCode.NOT_ENOUGH_REPLICAS,
            "no transaction coordinator is available to say whether the partition is in the transaction",
        )
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
    size_bytes = int.from_bytes(records[8:ENTRY_PREFIX_BYTES], "big") + ENTRY_PREFIX_BYTES
    if len(records) <= MAGIC_POSITION or len(records) < size_bytes:
        return None
    magic = records[MAGIC_POSITION]
    if magic < MAGIC_V2:
        return _Head(size_bytes, magic, 0, NO_PRODUCER_ID)
    producer_id = int.from_bytes(records[_PRODUCER_ID], "big", signed=True)
    return _Head(size_bytes, magic, records[_ATTRIBUTES_LOW_BYTE], producer_id)
