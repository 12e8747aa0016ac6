"""Records for fetches before version 4: message format 0 or 1, made of later formats while they are sent.

Rules: Kafka's `LazyDownConversionRecords`, `LazyDownConversionRecordsSend` and `RecordsUtil.downConvert`;
KIP-283. The answer has as many bytes as were read, and more only if the first batch needs them. What is
made beyond that is cut. If less is made, a message follows that is too large for the answer, which consumers
take for one that is cut. No more than a chunk, or a batch that is larger, is in memory at once.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Callable, Iterator
from itertools import chain
from time import perf_counter_ns
from typing import Final, NamedTuple

from klog.formats import compression
from klog.formats.checksums import Bytes
from klog.formats.constants import (
    BATCH_HEADER_BYTES,
    CODEC_MASK,
    CONTROL_BIT,
    ENTRY_PREFIX_BYTES,
    MAGIC_V2,
    MIN_ENTRY_BYTES,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_BIT,
)
from klog.formats.errors import KlogError, StorageError
from klog.formats.packed import ENTRY_PREFIX
from klog.kernel import kernel
from klog.kernel.columns import STOP_BAD_SIZE, BatchTable, RecordTable
from klog.kernel.conversion import downgrade
from klog.kernel.message_builder import build_wrapper
from klog.protocol.file_slice import FileSlice, LazyBytes
from klog.storage.cleaner.decoding import decode_one, decode_plain

_CHUNK_BYTES: Final = 128 * 1024
# The interpreter serves other threads between so many records.
_AT_ONCE: Final = 8192
_NO_OFFSET: Final = -1
_TIMESTAMP_BYTES: Final = 8


class UnsupportedCodecError(KlogError):
    """Older formats do not have the codec."""


class ConversionCount(NamedTuple):
    """What the conversion of a partition took: records, time, and all bytes that were in memory for it."""

    records: int
    elapsed_ns: int
    memory_bytes: int


def converted(
    source: FileSlice, magic: int, first_offset: int, on_done: Callable[[ConversionCount], None]
) -> LazyBytes | bytes:
    """The batches of `source` in a format, from the record of `first_offset` on.

    `on_done` is called at the end, also at an early one. Raises `UnsupportedCodecError` if the first batch
    cannot be converted, other `KlogError`s if it is damaged.
    """
    converter = _Converter(source, magic, first_offset)
    has_batches = False
    while (made := converter.convert(one=True)) is not None:
        has_batches = True
        if made:
            size_bytes = max(source.size_bytes, len(made))
            return LazyBytes(size_bytes, _pieces(size_bytes, made, converter, on_done))
    # Whatever there was, there is nothing of it in this format. Consumers are to notice.
    return _overflow(ENTRY_PREFIX_BYTES) if has_batches else b""


def _pieces(
    size_bytes: int, first: bytes, converter: _Converter, on_done: Callable[[ConversionCount], None]
) -> Iterator[bytes]:
    left_bytes = size_bytes
    try:
        for piece in chain((first,), converter.others()):
            if piece:
                yield piece[:left_bytes]
                left_bytes -= len(piece)
            if left_bytes <= 0:
                return
    finally:
        on_done(ConversionCount(converter.records, converter.elapsed_ns, converter.memory_bytes))
    while left_bytes:
        piece = _overflow(left_bytes)
        yield piece
        left_bytes -= len(piece)


def _overflow(left_bytes: int) -> bytes:
    """The beginning of a message that does not fit into so many bytes."""
    head = ENTRY_PREFIX.pack(_NO_OFFSET, max(left_bytes + 1, BATCH_HEADER_BYTES))
    return head.ljust(min(left_bytes, _CHUNK_BYTES), b"\0")[:left_bytes]


class _Converter:
    """Reads the whole batches of a file slice and converts them, a chunk at a time."""

    def __init__(self, source: FileSlice, magic: int, first_offset: int) -> None:
        self._source = source
        self._position = source.position_bytes
        self._end = source.position_bytes + source.size_bytes
        self._magic = magic
        self._first_offset = first_offset
        self._table = BatchTable()
        self._records = RecordTable()
        self._parts: list[bytes] = []
        self.records = 0
        self.elapsed_ns = 0
        self.memory_bytes = 0

    def others(self) -> Iterator[bytes]:
        """All further chunks, up to one that cannot be converted.

        The consumer gets the error when it asks for that one's first batch.
        """
        try:
            while (made := self.convert()) is not None:
                yield made
        except UnsupportedCodecError:
            return

    def convert(self, *, one: bool = False) -> bytes | None:
        """What is made of the next chunk, or of only `one` batch; None if no whole batch is left.

        Raises `UnsupportedCodecError`, `CorruptRecordError`, `StorageError`.
        """
        start_ns = perf_counter_ns()
        data, table = self._read(), self._table
        if not len(table):
            return None
        last = 1 if one else len(table)
        self._require_codecs(last)
        row = 0
        while row < last:
            row = self._convert(data, row, last)
        self._position = table.position[last - 1] + table.size[last - 1]
        made = b"".join(self._parts)
        self._parts.clear()
        self.elapsed_ns += perf_counter_ns() - start_ns
        return made

    def _read(self) -> memoryview:
        """Scan the batches of the next chunk; none are found if no whole batch is left."""
        table = self._table
        data = self._bytes(_CHUNK_BYTES)
        kernel.scan(data, self._position, False, table)
        if not len(table) and len(data) < table.need_bytes <= self._end - self._position:
            data = self._bytes(table.need_bytes)
            kernel.scan(data, self._position, False, table)
        if not len(table) and table.stop == STOP_BAD_SIZE:
            raise StorageError("a batch to convert has no size", position_bytes=self._position)
        return data

    def _bytes(self, size_bytes: int) -> memoryview:
        wanted = min(size_bytes, self._end - self._position)
        data = os.pread(self._source.file.fileno(), wanted, self._position)
        if len(data) < wanted:
            raise StorageError("the file ends before the records to convert", position_bytes=self._position)
        return memoryview(data)

    def _require_codecs(self, last: int) -> None:
        table = self._table
        for row in range(last):
            if table.attributes[row] & CODEC_MASK == compression.ZSTD and not _is_control(table, row):
                raise UnsupportedCodecError("older formats have no zstd", position_bytes=table.position[row])

    def _convert(self, data: memoryview, row: int, last: int) -> int:
        """Convert a batch, or several that are not compressed; the row after them."""
        table = self._table
        if _is_control(table, row):
            return row + 1
        if table.magic[row] <= self._magic:
            at = table.position[row] - table.origin
            self._parts.append(bytes(data[at : at + table.size[row]]))
            self.memory_bytes += table.size[row]
            return row + 1
        if table.attributes[row] & CODEC_MASK:
            self._convert_compressed(data, row)
            return row + 1
        end = row + 1
        while end < last and self._is_plain(end):
            end += 1
        decode_plain(data, table, row, end, self._records)
        # Readers of older formats do not expect messages before the one that they ask for.
        first = bisect_left(self._records.offset, self._first_offset)
        self._parts += self._messages(data, first, 0)
        self.memory_bytes += sum(table.size[row:end])
        return end

    def _is_plain(self, row: int) -> bool:
        table = self._table
        return (
            table.magic[row] > self._magic
            and not table.attributes[row] & CODEC_MASK
            and not _is_control(table, row)
        )

    def _convert_compressed(self, data: memoryview, row: int) -> None:
        table, magic, records = self._table, self._magic, self._records
        payload = decode_one(data, table, row, records)
        if not len(records):
            return
        # Offsets inside of a set are absolute in magic 0.
        messages = b"".join(self._messages(payload, 0, records.offset[0] if magic else 0))
        append_time = table.attributes[row] & TIMESTAMP_TYPE_BIT
        largest = table.max_timestamp[row] if append_time else max(NO_TIMESTAMP, *records.timestamp)
        codec = table.attributes[row] & CODEC_MASK
        time_type = append_time if magic else 0
        self._parts.append(build_wrapper(messages, magic, codec, time_type, records.offset[-1], largest))
        self.memory_bytes += table.size[row] + MIN_ENTRY_BYTES + _TIMESTAMP_BYTES * magic

    def _messages(self, payload: Bytes, first: int, base_offset: int) -> list[bytes]:
        table, records = self._table, self._records
        made = [
            downgrade(payload, table, records, at, min(at + _AT_ONCE, len(records)), self._magic, base_offset)
            for at in range(first, len(records), _AT_ONCE)
        ]
        self.records += len(records) - first
        self.memory_bytes += sum(map(len, made))
        return made


def _is_control(table: BatchTable, row: int) -> bool:
    return table.magic[row] >= MAGIC_V2 and bool(table.attributes[row] & CONTROL_BIT)
