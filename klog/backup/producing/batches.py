"""Makes of the batches of a log those that a broker takes from a producer, with the same records.

Rules: Kafka's `LogValidator`. A broker takes no control batches, no gaps in offsets, no time that a broker
had set, and no batch of a transaction that is not open. So markers and aborted records are left out, and the
rest becomes batches of an idempotent producer: only their header is changed, and their checksum. Batches with
gaps (of compacted logs), with records before the log start offset, of magic 0 and 1, and with times of the
broker are built anew, with the same codec.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from klog.backup.moment.aborted import AbortedBatches
from klog.backup.restoring.batches import Rows
from klog.formats import compression
from klog.formats.checksums import crc32c
from klog.formats.constants import (
    BATCH_CRC_FROM,
    BATCH_CRC_POSITION,
    CODEC_MASK,
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    MAGIC_V2,
    NO_LEADER_EPOCH,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
)
from klog.formats.packed import BATCH_FIELDS, BATCH_HEADER, UINT32, write_batch_header
from klog.kernel import kernel
from klog.kernel.batch_builder import BatchFields, Headers, RecordData, build_batch
from klog.kernel.columns import RecordTable
from klog.storage.cleaner.decoding import decode_one

_NOT_OF_PRODUCERS: Final = TRANSACTIONAL_BIT | DELETE_HORIZON_BIT | TIMESTAMP_TYPE_BIT
_JOINED_BYTES: Final = 256 << 10
_JOINED_RECORDS: Final = 10_000
_SEQUENCES: Final = 1 << 31


class Producible(NamedTuple):
    """A batch of magic 2 for the offset 0. `offsets` are those that its records had, ascending."""

    data: bytearray
    offsets: Sequence[int]


class ProducibleBatches:
    """Takes the batches of one partition in their order, and gives those that are produced.

    Records before `log_start_offset` were deleted, and are left out. If `keeps_append_time` is not set, the
    target gives records a time of its own, so that of the source's broker need not be kept. What comes out
    does not depend on how the batches are divided into `Rows`.
    """

    def __init__(
        self, aborted: AbortedBatches, log_start_offset: int = 0, *, keeps_append_time: bool
    ) -> None:
        self._aborted = aborted
        self._log_start_offset = log_start_offset
        self._keeps_append_time = keeps_append_time
        self._records = RecordTable()
        self._joined: list[RecordData] = []
        self._joined_bytes = 0

    def take(self, rows: Rows) -> Iterator[Producible]:
        """What becomes of some batches. Raises `CorruptRecordError`."""
        table = rows.table
        for row in range(rows.first, rows.last):
            attributes = table.attributes[row]
            if table.magic[row] < MAGIC_V2:
                yield from self._take_messages(rows, row, attributes & CODEC_MASK)
                continue
            yield from self.finish()
            if self._is_visible(rows, row, attributes):
                yield from self._of_batch(rows, row, attributes)

    def finish(self) -> Iterator[Producible]:
        """What was kept to be joined with messages that may follow."""
        if self._joined:
            records, self._joined, self._joined_bytes = self._joined, [], 0
            yield _built(records, compression.NONE)

    def _is_visible(self, rows: Rows, row: int, attributes: int) -> bool:
        table = rows.table
        if (
            attributes & CONTROL_BIT
            or table.count[row] < 1
            or table.last_offset[row] < self._log_start_offset
        ):
            return False
        return not (
            attributes & TRANSACTIONAL_BIT
            and self._aborted.covers(table.producer_id[row], table.base_offset[row])
        )

    def _of_batch(self, rows: Rows, row: int, attributes: int) -> Iterator[Producible]:
        table = rows.table
        base, end = table.base_offset[row], table.last_offset[row] + 1
        is_whole = table.count[row] == end - base and base >= self._log_start_offset
        if is_whole and not (attributes & TIMESTAMP_TYPE_BIT and self._keeps_append_time):
            start = table.position[row] - table.origin
            yield Producible(bytearray(rows.data[start : start + table.size[row]]), range(base, end))
        elif records := self._decoded(rows, row):
            yield _built(records, attributes & CODEC_MASK)

    def _take_messages(self, rows: Rows, row: int, codec: int) -> Iterator[Producible]:
        """Messages of magic 0 and 1: what was compressed together stays so, others are joined."""
        records = self._decoded(rows, row)
        if codec != compression.NONE:
            yield from self.finish()
            if records:
                yield _built(records, codec)
            return
        self._joined += records
        self._joined_bytes += rows.table.size[row]
        if self._joined_bytes >= _JOINED_BYTES or len(self._joined) >= _JOINED_RECORDS:
            yield from self.finish()

    def _decoded(self, rows: Rows, row: int) -> list[RecordData]:
        """The records of a batch, without those that were deleted."""
        records = self._records
        payload = memoryview(decode_one(rows.data, rows.table, row, records))
        has_headers = rows.table.magic[row] >= MAGIC_V2

        def headers(number: int) -> Headers:
            count = records.header_count[number] if has_headers else 0
            return kernel.headers(payload, records.headers_start[number], count) if count else ()

        return [
            RecordData(
                records.offset[number],
                records.timestamp[number],
                records.key(number, payload),
                records.value(number, payload),
                headers(number),
            )
            for number in range(len(records))
            if records.offset[number] >= self._log_start_offset
        ]


def number(batch: bytearray, producer_id: int, producer_epoch: int, sequence: int) -> None:
    """Make a batch that of an idempotent producer. `sequence` is the number of its records so far."""
    fields = dict(zip(BATCH_FIELDS, BATCH_HEADER.unpack_from(batch), strict=True))
    fields |= {
        "baseOffset": 0,
        "partitionLeaderEpoch": NO_LEADER_EPOCH,
        "attributes": fields["attributes"] & ~_NOT_OF_PRODUCERS,
        "producerId": producer_id,
        "producerEpoch": producer_epoch,
        "baseSequence": sequence % _SEQUENCES,
    }
    write_batch_header(batch, 0, **fields)
    UINT32.pack_into(batch, BATCH_CRC_POSITION, crc32c(memoryview(batch)[BATCH_CRC_FROM:]))


def _built(records: list[RecordData], codec: int) -> Producible:
    dense = [each._replace(offset=number) for number, each in enumerate(records)]
    return Producible(build_batch(dense, BatchFields(codec=codec)), [each.offset for each in records])
