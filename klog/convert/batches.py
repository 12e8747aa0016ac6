"""Makes the batches of the converted log of those of the original, buffer by buffer.

The result depends on the batches alone: not on the buffers that they were read in, not on a clock, and not on
the machine. A batch is rewritten as a whole: its records are decompressed, joined with those of its
neighbours if `Joiner` allows it, and compressed. Control batches and batches without records are copied.
"""

from __future__ import annotations

import operator
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Final, NamedTuple

from klog.convert.options import ConvertOptions
from klog.formats import compression
from klog.formats.checkpoints import EpochEntry
from klog.formats.checksums import Bytes, crc32c
from klog.formats.constants import (
    BATCH_CRC_FROM,
    BATCH_CRC_POSITION,
    BATCH_HEADER_BYTES,
    CODEC_MASK,
    CONTROL_BIT,
    ENTRY_PREFIX_BYTES,
    MAGIC_V2,
)
from klog.formats.errors import CorruptRecordError, FormatError, KlogError
from klog.formats.packed import UINT32, write_batch_header
from klog.kernel import kernel
from klog.kernel.columns import BatchTable, RecordTable
from klog.kernel.conversion import Joiner, upgrade
from klog.storage.cleaner.decoding import decode_one, decode_plain


class ConvertedBatch(NamedTuple):
    """One batch of the converted log. `data` may point into the buffer of the originals."""

    base_offset: int
    last_offset: int
    data: Bytes


class EpochOfOffset:
    """The leader epoch for records of magic 0 and 1, which have none: that of the checkpoint, or 0.

    Replicas do not accept a batch of magic 2 without a leader epoch (`LeaderEpochFileCache.assign`).
    """

    def __init__(self, entries: Sequence[EpochEntry]) -> None:
        self._starts = [entry.start_offset for entry in entries]
        self._epochs = [max(entry.epoch, 0) for entry in entries]

    def __call__(self, offset: int) -> int:
        """The leader epoch in which the record with this offset counts as written."""
        at = bisect_right(self._starts, offset) - 1
        return self._epochs[at] if at >= 0 else 0


class UpgradedBatches:
    """Batches of magic 0 and 1 as uncompressed ones of magic 2: `data`, and `table` scanned from it."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.table = BatchTable()
        kernel.scan(data, 0, True, self.table)


def upgraded(
    data: memoryview, table: BatchTable, first: int, last: int, epoch_of: EpochOfOffset
) -> UpgradedBatches:
    """Batches `first` to `last`: uncompressed messages, or a single compressed one, all of one leader epoch.

    Raises `CorruptRecordError`.
    """
    records = RecordTable()
    payload: Bytes = data
    if last - first == 1:
        try:
            payload = decode_one(data, table, first, records)
        except FormatError as error:
            raise _placed(error, table.position[first]) from None
    else:
        decode_plain(data, table, first, last, records)
    if not len(records):
        raise CorruptRecordError("compressed message holds no messages", position_bytes=table.position[first])
    return UpgradedBatches(upgrade(payload, table, records, epoch_of(records.offset[0])))


def _placed(error: FormatError, position_bytes: int) -> KlogError:
    """The error with the position of its batch, if it has none."""
    return error if error.position_bytes is not None else error.at(position_bytes=position_bytes)


def decompressed(data: memoryview, table: BatchTable, row: int) -> bytes:
    """The records of a compressed batch of magic 2. Raises `CorruptRecordError`."""
    at = table.position[row] - table.origin
    block = data[at + BATCH_HEADER_BYTES : at + table.size[row]]
    try:
        return compression.decompress(table.attributes[row] & CODEC_MASK, block)
    except FormatError as error:
        raise error.at(position_bytes=table.position[row]) from None


class BatchConverter:
    """Converts consecutive batches of one log. The caller verifies their checksums."""

    def __init__(self, options: ConvertOptions, epoch_of: EpochOfOffset) -> None:
        self._options = options
        self._epoch_of = epoch_of
        self._joiner = Joiner(options.join_bytes, options.codec is None)
        self._original: Bytes | None = None  # the first batch of the joiner, if it is of magic 2
        self._last_offset = -1
        self._out: list[ConvertedBatch] = []

    def take(self, data: memoryview, table: BatchTable) -> list[ConvertedBatch]:
        """Convert the batches of `table`, scanned from `data`; returns those that are complete.

        They are to be used before `data` changes. Raises `CorruptRecordError` if a batch does not decode, or
        its offsets do not ascend.
        """
        row = 0
        while row < len(table):
            if table.magic[row] < MAGIC_V2:
                row = self._take_legacy(data, table, row)
            else:
                end = _end_of_magic_2(table, row)
                self._require_ascending(table, row, end, table.position[row:end])
                while row < end:
                    row = self._take_one(data, table, row, end)
        self._keep()
        return self._taken()

    def finish(self) -> list[ConvertedBatch]:
        """The last batch."""
        self._flush()
        return self._taken()

    def _taken(self) -> list[ConvertedBatch]:
        taken, self._out = self._out, []
        return taken

    def _keep(self) -> None:
        self._joiner.keep()
        if self._original is not None and not isinstance(self._original, bytes):
            self._original = bytes(self._original) if self._joiner.rows == 1 else None

    def _take_one(self, data: memoryview, table: BatchTable, row: int, end: int) -> int:
        """Take one batch of magic 2, or a run of uncompressed ones; returns the row after them."""
        attributes = table.attributes[row]
        if attributes & CONTROL_BIT or table.count[row] < 1 or self._is_copied(attributes):
            self._flush()
            self._write(table, row, _batch_at(data, table, row))
            return row + 1
        joiner = self._joiner
        if not attributes & CODEC_MASK:
            first = joiner.rows == 0
            reached = joiner.add_run(data, table, row, end, False)
            if reached > row and first:
                self._original = _batch_at(data, table, row)
            if reached == row:
                self._flush()
            return reached
        payload = decompressed(data, table, row)
        if not joiner.limit_bytes:
            self._flush()
            self._recode(table, row, payload, _batch_at(data, table, row))
            return row + 1
        try:
            added = joiner.rows > 0 and joiner.add(payload, 0, table, row)
        except CorruptRecordError as error:
            raise error.at(position_bytes=table.position[row]) from None
        if not added:
            self._flush()
            joiner.add(payload, 0, table, row)
            self._original = _batch_at(data, table, row)
        return row + 1

    def _is_copied(self, attributes: int) -> bool:
        """Whether a batch stays as it is, whatever is beside it."""
        return not self._joiner.limit_bytes and self._has_target_codec(attributes)

    def _has_target_codec(self, attributes: int) -> bool:
        options = self._options
        return options.level is None and options.codec in (None, attributes & CODEC_MASK)

    def _take_legacy(self, data: memoryview, table: BatchTable, row: int) -> int:
        end = self._end_of_messages(table, row)
        made = upgraded(data, table, row, end, self._epoch_of)
        positions = table.position[row:end]
        self._require_ascending(made.table, 0, len(made.table), positions)
        at = 0
        while at < len(made.table):
            first = self._joiner.rows == 0
            reached = self._joiner.add_run(made.data, made.table, at, len(made.table), True)
            if reached == at:
                self._flush()
            elif first:
                self._original = None
            at = reached
        return end

    def _end_of_messages(self, table: BatchTable, row: int) -> int:
        """The row after the uncompressed messages that begin at `row`; a compressed one is alone."""
        end = row
        epoch = self._epoch_of(table.last_offset[row])
        while end < len(table) and table.magic[end] < MAGIC_V2 and not table.attributes[end] & CODEC_MASK:
            if self._epoch_of(table.last_offset[end]) != epoch:
                break
            end += 1
        return max(end, row + 1)

    def _require_ascending(self, table: BatchTable, first: int, last: int, positions: Sequence[int]) -> None:
        bases, lasts = table.base_offset[first:last], table.last_offset[first:last]
        before = chain((self._last_offset,), lasts)
        if not all(map(operator.lt, before, bases)) or not all(map(operator.le, bases, lasts)):
            raise self._disorder(bases, lasts, positions)
        if lasts:
            self._last_offset = lasts[-1]

    def _disorder(
        self, bases: Sequence[int], lasts: Sequence[int], positions: Sequence[int]
    ) -> CorruptRecordError:
        previous = self._last_offset
        for base, last, position in zip(bases, lasts, positions, strict=False):
            if not previous < base <= last:
                return CorruptRecordError(
                    f"batch of offsets {base} to {last} follows offset {previous}",
                    position_bytes=position,
                    cure="`klog recover` shows what Kafka would do",
                )
            previous = last
        raise AssertionError("offsets ascend")

    def _flush(self) -> None:
        """Write the batch that the joiner holds."""
        joiner = self._joiner
        if not joiner.rows:
            return
        original = self._original if joiner.rows == 1 else None
        self._original = None
        base, last = joiner.base_offset, joiner.last_offset
        if original is not None and self._has_target_codec(joiner.attributes):
            joiner.take()
            self._out.append(ConvertedBatch(base, last, original))
            return
        fields, attributes = _fields_of(joiner), joiner.attributes
        batch = _built(self._options, base, joiner.leader_epoch, attributes, fields, joiner.take())
        self._out.append(ConvertedBatch(base, last, self._smaller(original, batch)))

    def _recode(self, table: BatchTable, row: int, payload: bytes, original: Bytes) -> None:
        """Write a batch that is joined with none."""
        base, attributes = table.base_offset[row], table.attributes[row]
        batch = _built(
            self._options, base, table.leader_epoch[row], attributes, _fields_at(table, row), payload
        )
        self._write(table, row, self._smaller(original, batch))

    def _smaller(self, original: Bytes | None, batch: bytearray) -> Bytes:
        """The new batch, unless it is too large for its topic and the original was not."""
        if original is not None and len(batch) > self._options.max_message_bytes >= len(original):
            return original
        return batch

    def _write(self, table: BatchTable, row: int, data: Bytes) -> None:
        self._out.append(ConvertedBatch(table.base_offset[row], table.last_offset[row], data))


def _end_of_magic_2(table: BatchTable, row: int) -> int:
    magics = table.magic
    if row == 0 and min(magics) >= MAGIC_V2:
        return len(table)
    return next((at for at in range(row, len(table)) if magics[at] < MAGIC_V2), len(table))


def _batch_at(data: memoryview, table: BatchTable, row: int) -> memoryview:
    at = table.position[row] - table.origin
    return data[at : at + table.size[row]]


_NO_CODEC: Final = ~CODEC_MASK


def _fields_of(joiner: Joiner) -> dict[str, int]:
    """The fields of a batch of magic 2 from its last offset delta on."""
    return {
        "lastOffsetDelta": joiner.last_offset - joiner.base_offset,
        "baseTimestamp": joiner.base_timestamp,
        "maxTimestamp": joiner.max_timestamp,
        "producerId": joiner.producer_id,
        "producerEpoch": joiner.producer_epoch,
        "baseSequence": joiner.base_sequence,
        "recordCount": joiner.count,
    }


def _fields_at(table: BatchTable, row: int) -> dict[str, int]:
    return {
        "lastOffsetDelta": table.last_offset[row] - table.base_offset[row],
        "baseTimestamp": table.base_timestamp[row],
        "maxTimestamp": table.max_timestamp[row],
        "producerId": table.producer_id[row],
        "producerEpoch": table.producer_epoch[row],
        "baseSequence": table.base_sequence[row],
        "recordCount": table.count[row],
    }


def _built(
    options: ConvertOptions,
    base_offset: int,
    leader_epoch: int,
    attributes: int,
    fields: Mapping[str, int],
    payload: bytes,
) -> bytearray:
    """A batch with these uncompressed records and the target's codec."""
    codec = attributes & CODEC_MASK if options.codec is None else options.codec
    attributes = attributes & _NO_CODEC | codec
    block = compression.compress(codec, payload, level=options.level)
    batch = bytearray(BATCH_HEADER_BYTES + len(block))
    write_batch_header(
        batch,
        0,
        baseOffset=base_offset,
        batchLength=len(batch) - ENTRY_PREFIX_BYTES,
        partitionLeaderEpoch=leader_epoch,
        magic=MAGIC_V2,
        crc=0,
        attributes=attributes,
        **fields,
    )
    batch[BATCH_HEADER_BYTES:] = block
    UINT32.pack_into(batch, BATCH_CRC_POSITION, crc32c(memoryview(batch)[BATCH_CRC_FROM:]))
    return batch
