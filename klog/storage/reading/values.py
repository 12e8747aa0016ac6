"""Batches and records as immutable values of the library, one object each.

Fields are those of Kafka's record batch (KIP-98) and message (KIP-32). For large amounts of data there are
columns (`klog.storage.reading.reader`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from klog.formats.compression import codec_name
from klog.formats.constants import (
    CODEC_MASK,
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
)
from klog.formats.wrapping import last_sequence
from klog.kernel.columns import COUNT_UNKNOWN, OFFSET_UNKNOWN, BatchTable
from klog.kernel.markers import control_type_name


class TimestampType(StrEnum):
    """What a record's timestamp is: the producer's time, the broker's, or (magic 0) none."""

    CREATE_TIME = "CreateTime"
    LOG_APPEND_TIME = "LogAppendTime"
    NO_TIMESTAMP_TYPE = "NoTimestampType"


def timestamp_type(magic: int, attributes: int) -> TimestampType:
    """The type of the timestamps in a batch of this magic with these attributes."""
    if magic == 0:
        return TimestampType.NO_TIMESTAMP_TYPE
    if attributes & TIMESTAMP_TYPE_BIT:
        return TimestampType.LOG_APPEND_TIME
    return TimestampType.CREATE_TIME


class Header(NamedTuple):
    """One header of a record. Bytes of the key that are not UTF-8 become lone surrogates."""

    key: str
    value: bytes | None


@dataclass(frozen=True, slots=True)
class Batch:
    """One batch of a segment (magic 0 and 1: one message or compressed set).

    `position_bytes` and `size_bytes` are its place in the file; timestamps are ms since the epoch, -1 for
    none. `base_offset` and `count` are None if the format does not store them (compressed sets of magic 0 and
    1; count: all of magic 0 and 1). `delete_horizon_ms` is None if none is set. `producer_id`,
    `producer_epoch`, `base_sequence` and `partition_leader_epoch` are -1 if there is none. `checksum` is the
    stored one.
    """

    file: str
    position_bytes: int
    size_bytes: int
    base_offset: int | None
    last_offset: int
    magic: int
    count: int | None
    codec: str
    timestamp_type: TimestampType
    base_timestamp_ms: int
    max_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    partition_leader_epoch: int
    is_transactional: bool
    is_control: bool
    delete_horizon_ms: int | None
    checksum: int
    _check: Callable[[Batch], bool] = field(repr=False, compare=False)
    _decode: Callable[[Batch], Iterator[Record]] = field(repr=False, compare=False)

    @property
    def valid(self) -> bool:
        """Whether the checksum fits the bytes, which are read at each call. Raises `StorageError`."""
        return self._check(self)

    def records(self) -> Iterator[Record]:
        """The batch's records, read and decompressed at each call. Raises `CorruptRecordError` if they do not
        decode.
        """
        return self._decode(self)

    @property
    def last_sequence(self) -> int:
        """Sequence number of the last record, -1 if there is none."""
        return last_sequence(self.base_sequence, self.last_offset - (self.base_offset or 0))

    def __repr__(self) -> str:
        base = "?" if self.base_offset is None else self.base_offset
        offsets = f"{base}..{self.last_offset}"
        return f"<Batch {offsets} {self.codec} {self.size_bytes} bytes at {self.position_bytes}>"


def batch_of_row(
    file: str,
    table: BatchTable,
    row: int,
    check: Callable[[Batch], bool],
    decode: Callable[[Batch], Iterator[Record]],
) -> Batch:
    """Row `row` of a scanned table as a value; `check` and `decode` read its bytes later."""
    magic = table.magic[row]
    attributes = table.attributes[row]
    base_offset, count = table.base_offset[row], table.count[row]
    modern = magic >= 2
    return Batch(
        file=file,
        position_bytes=table.position[row],
        size_bytes=table.size[row],
        base_offset=None if base_offset == OFFSET_UNKNOWN and not modern else base_offset,
        last_offset=table.last_offset[row],
        magic=magic,
        count=None if count == COUNT_UNKNOWN and not modern else count,
        codec=codec_name(attributes & CODEC_MASK),
        timestamp_type=timestamp_type(magic, attributes),
        base_timestamp_ms=table.base_timestamp[row],
        max_timestamp_ms=table.max_timestamp[row],
        producer_id=table.producer_id[row],
        producer_epoch=table.producer_epoch[row],
        base_sequence=table.base_sequence[row],
        partition_leader_epoch=table.leader_epoch[row],
        is_transactional=modern and bool(attributes & TRANSACTIONAL_BIT),
        is_control=modern and bool(attributes & CONTROL_BIT),
        delete_horizon_ms=table.base_timestamp[row] if modern and attributes & DELETE_HORIZON_BIT else None,
        checksum=table.crc[row],
        _check=check,
        _decode=decode,
    )


class Record(NamedTuple):
    """One record. `timestamp_ms` is -1 if there is none; `key` and `value` are None for null.

    `size_bytes` is Kafka's `sizeInBytes` (before compression); `batch` is its batch.
    """

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]
    size_bytes: int
    batch: Batch

    @property
    def timestamp_type(self) -> TimestampType:
        """The kind of the timestamp."""
        return self.batch.timestamp_type

    @property
    def sequence(self) -> int:
        """The producer's sequence number, -1 if there is none."""
        return last_sequence(self.batch.base_sequence, self.offset - (self.batch.base_offset or 0))

    @property
    def is_control(self) -> bool:
        """Whether Kafka wrote it for its own use, for example a transaction marker. Consumers never see
        it.
        """
        return self.batch.is_control

    @property
    def control_type(self) -> str | None:
        """`COMMIT`, `ABORT`, ... of a control record; None for any other."""
        return control_type_name(self.key) if self.batch.is_control else None

    def __repr__(self) -> str:
        return f"<Record {self.offset} {_preview(self.key)}={_preview(self.value)}>"


def _preview(data: bytes | None) -> str:
    if data is None:
        return "null"
    return repr(data) if len(data) <= 24 else f"{data[:20]!r}...({len(data)} bytes)"
