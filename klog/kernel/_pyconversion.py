"""Joins batches, changes message formats and compares records: the twin of `_conversion`.

The meaning and the rules are stated here; tests hold both equal. Joined batches keep what a broker and a
consumer can see: offsets, timestamps, sequences and leader epochs (KIP-98, KIP-101).
"""

from __future__ import annotations

from typing import Final

from klog.formats.checksums import Bytes
from klog.formats.constants import (
    BATCH_HEADER_BYTES,
    CODEC_MASK,
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    ENTRY_PREFIX_BYTES,
    INT32_MAX,
    MAGIC_V2,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
)
from klog.formats.errors import CorruptRecordError, UsageError
from klog.formats.packed import write_batch_header
from klog.formats.varints import zigzag
from klog.formats.wrapping import wrap_int64
from klog.kernel._pydecode import varint
from klog.kernel._pykernel import headers
from klog.kernel.batch_builder import encode_record
from klog.kernel.columns import BatchTable, RecordTable
from klog.kernel.message_builder import build_message

IMPLEMENTATION: Final = "python"

CELL_OFFSETS: Final = 4096
"""A joined batch begins and ends between the same two multiples of this. Replicas whose segments begin at
different offsets therefore agree about joined batches from the next multiple on."""

_BAD_RECORDS: Final = "records of the batch do not decode"


class _NoRoomError(Exception):
    """The rewritten records would be too large."""


def _rebased(view: memoryview, count: int, offset_shift: int, timestamp_shift: int, room_bytes: int) -> bytes:
    """The `count` records of a magic 2 batch with shifted deltas. All other bytes are copied."""
    parts: list[bytes] = []
    at, end = 0, len(view)
    for _ in range(count):
        length, at = varint(view, at, end, 32)
        if at < 0 or length < 1 or length > end - at:
            raise CorruptRecordError(_BAD_RECORDS)
        stop = at + length
        attributes = view[at : at + 1]
        timestamp_delta, at = varint(view, at + 1, stop, 64)
        if at < 0:
            raise CorruptRecordError(_BAD_RECORDS)
        offset_delta, at = varint(view, at, stop, 32)
        if at < 0 or not 0 <= offset_delta + offset_shift <= INT32_MAX:
            raise CorruptRecordError(_BAD_RECORDS)
        body = b"".join(
            (
                attributes,
                zigzag(wrap_int64(timestamp_delta + timestamp_shift)),
                zigzag(offset_delta + offset_shift),
                view[at:stop],
            )
        )
        part = zigzag(len(body)) + body
        room_bytes -= len(part)
        if room_bytes < 0:
            raise _NoRoomError
        parts.append(part)
        at = stop
    if at != end:
        raise CorruptRecordError(_BAD_RECORDS)
    return b"".join(parts)


class Joiner:
    """Joins consecutive data batches of magic 2 into one, as long as the rules let it.

    Two batches are joined if leader epoch, attributes (with `same_codec` also the codec, else without it) and
    producer are the same, and if their records together take at most `limit_bytes` uncompressed (0: nothing
    is joined). Offsets ascend, and the batches begin in the same cell of `CELL_OFFSETS`. Those of a producer
    have consecutive offsets and sequences, so nothing lies between them, and no marker of a transaction.
    Batches with the broker's time have the same time. Batches without records or with a delete horizon, and
    control batches, are joined with none.

    The fields are those of the joined batch; `rows` is the number of batches in it.
    """

    def __init__(self, limit_bytes: int, same_codec: bool) -> None:
        self.limit_bytes = max(limit_bytes, 0)
        self.rows = 0
        self.base_offset = self.last_offset = 0
        self.leader_epoch = self.attributes = 0
        self.base_timestamp = self.max_timestamp = 0
        self.producer_id = self.producer_epoch = self.base_sequence = 0
        self.count = 0
        self._compared = 0xFFFF if same_codec else 0xFFFF & ~CODEC_MASK
        self._lone: Bytes | None = None  # the records of the first batch, as long as it is the only one
        self._out = bytearray()

    def add(self, payload: Bytes, start: int, table: BatchTable, row: int) -> bool:
        """Add batch `row`, whose records are `payload` from `start` on; False if it must not join the others.

        The first one is always added. Raises `CorruptRecordError` if records do not decode; those of a batch
        that is joined with none are not looked at.
        """
        if not 0 <= row < len(table):
            raise UsageError(f"batch {row} of a table of {len(table)}")
        view = memoryview(payload)
        if not 0 <= start <= len(view):
            raise UsageError("the batch does not lie in the buffer")
        return self._add(payload if not start else view[start:], table, row)

    def add_run(self, data: Bytes, table: BatchTable, first: int, last: int, any_codec: bool) -> int:
        """Add uncompressed batches from `first` on, scanned from `data`; returns the first row that was not
        added.

        Stops before a batch that must not join, and before any other kind of batch. With `any_codec` all
        batches are uncompressed, whatever their attributes say (`upgrade`).
        """
        if not 0 <= first <= last <= len(table):
            raise UsageError(f"batches {first} to {last} of a table of {len(table)}")
        view = memoryview(data)
        for row in range(first, last):
            attributes = table.attributes[row]
            if table.magic[row] < MAGIC_V2 or table.count[row] < 1 or attributes & CONTROL_BIT:
                return row
            if attributes & CODEC_MASK and not any_codec:
                return row
            at = table.position[row] - table.origin
            if at < 0 or table.size[row] < BATCH_HEADER_BYTES or at + table.size[row] > len(view):
                raise UsageError("the batch does not lie in the buffer")
            try:
                if not self._add(view[at + BATCH_HEADER_BYTES : at + table.size[row]], table, row):
                    return row
            except CorruptRecordError as error:
                raise error.at(position_bytes=table.position[row]) from None
        return last

    def _add(self, payload: Bytes, table: BatchTable, row: int) -> bool:
        if not self.rows:
            self._begin(payload, table, row)
            return True
        if not self.limit_bytes or not self._follows(table, row):
            return False
        try:
            if self._lone is not None:
                if len(self._lone) > self.limit_bytes:
                    return False
                self._out[:] = _rebased(memoryview(self._lone), self.count, 0, 0, self.limit_bytes)
                self._lone = None
            self._out += _rebased(
                memoryview(payload),
                table.count[row],
                table.base_offset[row] - self.base_offset,
                wrap_int64(table.base_timestamp[row] - self.base_timestamp),
                self.limit_bytes - len(self._out),
            )
        except _NoRoomError:
            return False
        self.rows += 1
        self.count += table.count[row]
        self.last_offset = table.last_offset[row]
        self.max_timestamp = max(self.max_timestamp, table.max_timestamp[row])
        return True

    def _begin(self, payload: Bytes, table: BatchTable, row: int) -> None:
        self.rows = 1
        self._lone = payload
        self._out.clear()
        self.base_offset, self.last_offset = table.base_offset[row], table.last_offset[row]
        self.leader_epoch, self.attributes = table.leader_epoch[row], table.attributes[row]
        self.base_timestamp, self.max_timestamp = table.base_timestamp[row], table.max_timestamp[row]
        self.producer_id, self.producer_epoch = table.producer_id[row], table.producer_epoch[row]
        self.base_sequence, self.count = table.base_sequence[row], table.count[row]

    def _follows(self, table: BatchTable, row: int) -> bool:
        """Whether the rules let the batch join the others, whatever its size is."""
        base, last, attributes = table.base_offset[row], table.last_offset[row], table.attributes[row]
        if (
            self.base_offset < 0
            or not self.last_offset < base <= last
            or last - self.base_offset > INT32_MAX
            or base // CELL_OFFSETS != self.base_offset // CELL_OFFSETS
            or table.leader_epoch[row] != self.leader_epoch
            or (attributes ^ self.attributes) & self._compared
            or (attributes | self.attributes) & (CONTROL_BIT | DELETE_HORIZON_BIT)
            or min(self.count, table.count[row]) < 1
            or self.count + table.count[row] > INT32_MAX
            or table.producer_id[row] != self.producer_id
        ):
            return False
        if attributes & TIMESTAMP_TYPE_BIT and table.max_timestamp[row] != self.max_timestamp:
            return False
        if table.producer_epoch[row] != self.producer_epoch:
            return False
        if self.producer_id < 0:
            same = table.base_sequence[row] == self.base_sequence < 0
            return same and not attributes & TRANSACTIONAL_BIT
        return (
            self.base_sequence >= 0
            and base == self.last_offset + 1
            and table.base_sequence[row] == self.base_sequence + (base - self.base_offset)
            and self.base_sequence + (last - self.base_offset) <= INT32_MAX
        )

    def keep(self) -> None:
        """Copy what points into the caller's buffer, before the caller changes it."""
        if self._lone is not None and not isinstance(self._lone, bytes):
            self._lone = bytes(self._lone)

    def take(self) -> bytes:
        """The records of the joined batch, uncompressed; the next batch begins another one."""
        taken = bytes(self._out if self._lone is None else self._lone)
        self._lone = None
        self._out.clear()
        self.rows = 0
        return taken


def upgrade(payload: Bytes, table: BatchTable, records: RecordTable, leader_epoch: int) -> bytes:
    """Batches of magic 2 for decoded batches of magic 0 and 1 with all their `records`, one for each.

    Their records are not compressed, although the attributes keep the codec, and their checksums are 0. A
    record of magic 0 has the timestamp -1. If the broker set the time, that is the time of all records of the
    batch. Raises `CorruptRecordError` if offsets do not ascend or are too far apart for one batch.
    """
    view = memoryview(payload)
    parts: list[bytes] = []
    first = 0
    while first < len(records):
        batch = records.batch[first]
        if not 0 <= batch < len(table):
            raise UsageError(f"record {first} belongs to no batch of the table")
        last = first
        while last < len(records) and records.batch[last] == batch:
            last += 1
        parts.append(_upgraded(view, table, batch, records, range(first, last), leader_epoch))
        first = last
    return b"".join(parts)


def _upgraded(
    view: memoryview, table: BatchTable, batch: int, records: RecordTable, rows: range, leader_epoch: int
) -> bytes:
    attributes = table.attributes[batch] & CODEC_MASK
    append_time = table.magic[batch] == 1 and bool(table.attributes[batch] & TIMESTAMP_TYPE_BIT)
    wrapper_time = table.max_timestamp[batch]
    base = records.offset[rows[0]]
    base_timestamp = wrapper_time if append_time else records.timestamp[rows[0]]
    previous = base - 1
    parts: list[bytes] = []
    for row in rows:
        offset = records.offset[row]
        if offset <= previous or offset - base > INT32_MAX:
            raise CorruptRecordError(
                f"offset {offset} follows {previous} in one batch", position_bytes=table.position[batch]
            )
        previous = offset
        key = _bytes_of(view, records.key_start[row], records.key_size[row], row)
        value = _bytes_of(view, records.value_start[row], records.value_size[row], row)
        parts.append(encode_record(offset - base, records.timestamp[row] - base_timestamp, key, value))
    data = b"".join(parts)
    largest = max(NO_TIMESTAMP, *(records.timestamp[row] for row in rows))
    header = bytearray(BATCH_HEADER_BYTES)
    write_batch_header(
        header,
        0,
        baseOffset=base,
        batchLength=BATCH_HEADER_BYTES - ENTRY_PREFIX_BYTES + len(data),
        partitionLeaderEpoch=leader_epoch,
        magic=MAGIC_V2,
        crc=0,
        attributes=attributes | (TIMESTAMP_TYPE_BIT if append_time else 0),
        lastOffsetDelta=previous - base,
        baseTimestamp=base_timestamp,
        maxTimestamp=wrapper_time if append_time else largest,
        producerId=NO_PRODUCER_ID,
        producerEpoch=NO_PRODUCER_EPOCH,
        baseSequence=NO_SEQUENCE,
        recordCount=len(rows),
    )
    return bytes(header) + data


def downgrade(
    payload: Bytes,
    table: BatchTable,
    records: RecordTable,
    first: int,
    last: int,
    magic: int,
    base_offset: int,
) -> bytes:
    """Messages of `magic` 0 or 1 for the records `first` to `last` of batches of a later format.

    They are not compressed, and have no headers. Their offsets count from `base_offset`. If the broker set
    the time, that is the time of all records of the batch. Raises `CorruptRecordError` if the offsets of a
    batch do not ascend, or a timestamp is negative.
    """
    if magic not in (0, 1) or not 0 <= first <= last <= len(records):
        raise UsageError(f"records {first} to {last} of a table of {len(records)} in magic {magic}")
    view = memoryview(payload)
    parts: list[bytes] = []
    for row in range(first, last):
        batch, offset = records.batch[row], records.offset[row]
        if not 0 <= batch < len(table):
            raise UsageError(f"record {row} belongs to no batch of the table")
        if row > first and records.batch[row - 1] == batch and offset <= records.offset[row - 1]:
            raise CorruptRecordError(
                f"offset {offset} follows {records.offset[row - 1]} in one batch",
                position_bytes=table.position[batch],
            )
        append_time = table.attributes[batch] & TIMESTAMP_TYPE_BIT
        timestamp = table.max_timestamp[batch] if append_time else records.timestamp[row]
        if timestamp < NO_TIMESTAMP:
            raise CorruptRecordError(
                f"the record of offset {offset} has the timestamp {timestamp}",
                position_bytes=table.position[batch],
            )
        parts.append(
            build_message(
                wrap_int64(offset - base_offset),
                magic,
                append_time if magic else 0,
                timestamp,
                _bytes_of(view, records.key_start[row], records.key_size[row], row),
                _bytes_of(view, records.value_start[row], records.value_size[row], row),
            )
        )
    return b"".join(parts)


def _bytes_of(view: memoryview, start: int, size: int, row: int) -> bytes | None:
    if size >= 0 and (start < 0 or start + size > len(view)):
        raise UsageError(f"record {row} of the table does not lie in the payload")
    return None if size < 0 else bytes(view[start : start + size])


def same_records(
    payload: Bytes,
    records: RecordTable,
    first: int,
    other_payload: Bytes,
    other_records: RecordTable,
    other_first: int,
    count: int,
) -> int:
    """How many of the `count` records from `first` and `other_first` on are the same before one differs.

    Compared are offset, timestamp, key, value and headers.
    """
    if min(first, other_first) < 0 or count > min(len(records) - first, len(other_records) - other_first):
        raise UsageError(f"{count} records of tables of {len(records)} and {len(other_records)}")
    for number in range(count):
        one = _values(payload, records, first + number)
        if one is None or one != _values(other_payload, other_records, other_first + number):
            return number
    return count


def _values(payload: Bytes, records: RecordTable, row: int) -> tuple[object, ...] | None:
    """What is compared of a record; None if its headers do not decode."""
    view = memoryview(payload)
    key = records.key(row, view)
    value = records.value(row, view)
    try:
        found = headers(payload, records.headers_start[row], records.header_count[row])
    except CorruptRecordError:
        return None
    return (records.offset[row], records.timestamp[row], key, value, found)
