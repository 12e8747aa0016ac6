"""Reads the segment beside an index one batch at a time, as Kafka's `FileRecords` does."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import BinaryIO

from klog.commands.kafka_tools.dump_log import java
from klog.commands.kafka_tools.dump_log.batch import damaged, iterate
from klog.commands.kafka_tools.dump_log.gzipped_copies import open_for_seeking
from klog.formats.constants import (
    BATCH_HEADER_BYTES,
    BATCH_LAST_OFFSET_DELTA_POSITION,
    CODEC_MASK,
    ENTRY_PREFIX_BYTES,
    ENTRY_SIZE_POSITION,
    MAGIC_V2,
    MESSAGE_TIMESTAMP_POSITION,
    MIN_MESSAGE_SIZE,
)
from klog.formats.packed import BATCH_HEADER_TO_MAGIC, INT32, INT64
from klog.formats.wrapping import wrap_int64
from klog.kernel import kernel
from klog.kernel.columns import BatchTable


class SegmentBatches:
    """The batches of one segment, read as they are asked for."""

    def __init__(self, path: str, limit_bytes: int) -> None:
        self._file: BinaryIO = open_for_seeking(path)
        self._limit_bytes = limit_bytes
        self.size_bytes = self._file.seek(0, os.SEEK_END)
        if self.size_bytes > java.INT32_MAX:
            self._file.close()
            raise damaged(f"segment of {self.size_bytes} bytes is larger than Kafka's tool reads").at(path)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def slice_end(self, position: int, size: int) -> int:
        """The end of a slice of `size` bytes. Raises CorruptRecordError if it cannot start at `position`."""
        if position < 0 or position > self.size_bytes:
            raise damaged(f"index points at byte {position} of a segment of {self.size_bytes} bytes")
        if size < 0:
            raise damaged(f"--max-message-size {size} is negative")
        end = position + size
        return self.size_bytes if end > java.INT32_MAX else min(end, self.size_bytes)

    def last_offsets(self, position: int, end: int) -> Iterator[tuple[int, int]]:
        """The last offset and the position of each batch from `position` to `end`."""
        while position < end - BATCH_HEADER_TO_MAGIC.size:
            offset, follows, _, magic = BATCH_HEADER_TO_MAGIC.unpack(
                self._at(position, BATCH_HEADER_TO_MAGIC.size)
            )
            if follows < MIN_MESSAGE_SIZE:
                raise damaged(f"size field {follows} is below the smallest, {MIN_MESSAGE_SIZE}").at(
                    position_bytes=position
                )
            if position > end - ENTRY_PREFIX_BYTES - follows:
                return
            if magic >= MAGIC_V2:
                header = self._at(position, BATCH_HEADER_BYTES)
                if len(header) < BATCH_HEADER_BYTES:
                    raise damaged("file ends inside of a batch's header").at(position_bytes=position)
                (delta,) = INT32.unpack_from(header, BATCH_LAST_OFFSET_DELTA_POSITION)
                offset = wrap_int64(offset + delta)
            yield offset, position
            position += ENTRY_PREFIX_BYTES + follows

    def max_timestamp(self, position: int) -> int:
        """The largest timestamp in the batch at `position`, at least -1."""
        follows = int.from_bytes(self._at(position, ENTRY_PREFIX_BYTES)[ENTRY_SIZE_POSITION:], "big")
        data = self._at(position, max(ENTRY_PREFIX_BYTES + follows, BATCH_HEADER_BYTES))
        table = BatchTable()
        kernel.scan(data, position, True, table)
        attributes, magic = table.attributes[0], table.magic[0]
        if attributes & CODEC_MASK > 4 and (magic < 2 or table.count[0] != 0):
            raise damaged("batch has an unknown codec").at(position_bytes=position)
        if magic < 2 and not attributes & CODEC_MASK:
            shown = INT64.unpack_from(data, MESSAGE_TIMESTAMP_POSITION)[0] if magic != 0 else -1
            return max(-1, shown)
        iterated = iterate(data, table, 0, self._limit_bytes)
        if iterated.problem is not None:
            raise iterated.problem.at(position_bytes=position)
        return max((-1, *iterated.records.timestamp[: iterated.last]))

    def _at(self, position: int, size: int) -> bytes:
        self._file.seek(position)
        return self._file.read(size)
