"""Prints `.log` and `.checkpoint` files as Kafka 3.9's `kafka-dump-log` does, byte for byte.

The kernels print valid batches in chunks. For a batch at which Kafka's tool ends with an exception,
`kafka_batch` finds what the tool prints before; then the dump ends with an error, as the tool does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import BinaryIO, Final

from klog.commands.kafka_tools.dump_log import java
from klog.commands.kafka_tools.dump_log.batch import Iterated, damaged, iterate
from klog.commands.kafka_tools.dump_log.message_parser import MessageParser
from klog.commands.kafka_tools.dump_log.parsers import (
    control_text,
    text_parser,
    unreadable_texts,
)
from klog.commands.shared.records.output_buffer import OutputBuffer
from klog.commands.shared.records.plan import KafkaFlags
from klog.formats.checksums import Bytes
from klog.formats.constants import BATCH_HEADER_BYTES, CODEC_MASK, CONTROL_BIT
from klog.formats.errors import FormatError, placed
from klog.formats.packed import BATCH_HEADER_TO_MAGIC
from klog.kernel import kernel, text
from klog.kernel.columns import STOP_BAD_SIZE, BatchTable, RecordTable
from klog.storage.files.chunks import chunks

_NEWEST_CODEC: Final = 4
_PIECE_RECORDS: Final = 1 << 14
_PIECE_BYTES: Final = 4 << 20
_NO_OFFSET: Final = -1

Gaps = list[tuple[int, int]]


class LogDump:
    """The dump of one file. `gaps` collects neighbouring offsets that are not consecutive."""

    def __init__(
        self,
        path: str,
        flags: KafkaFlags,
        parser: MessageParser | None,
        buffer: OutputBuffer,
        limit_bytes: int,
    ) -> None:
        self.gaps: Gaps = []
        self._path = path
        self._flags = flags
        self._parser = parser  # None: the text kernel prints keys and values as text
        self._print_data = prints_data(flags)
        self._deep = self._print_data or flags.deep_iteration
        self._buffer = buffer
        self._limit_bytes = limit_bytes
        self._table = BatchTable()
        self._records = RecordTable()
        self._previous = _NO_OFFSET
        self._file_bytes = 0

    def run(self, file: BinaryIO, name: str, size_bytes: int) -> None:
        """Print the file with the base name `name`. Raises KlogError if Kafka's tool fails."""
        self._buffer.write(_title(name, self._path))
        if size_bytes > java.INT32_MAX:
            raise FormatError(
                f"segment of {size_bytes} bytes is larger than Kafka's tool reads",
                cure="use another --format",
            )
        if self._flags.max_bytes < 0:
            raise FormatError(f"--max-bytes {self._flags.max_bytes} is negative")
        self._file_bytes = size_bytes
        end_bytes = min(size_bytes, self._flags.max_bytes)
        table = self._table
        for data in chunks(file, table, end_bytes=end_bytes):
            kernel.verify(data, table)
            self._chunk(file, data)
            self._buffer.flush_if_full()
        valid_bytes = table.origin + table.consumed_bytes
        # Kafka reads the next size field only if more bytes are left than a header has up to its magic.
        if table.stop == STOP_BAD_SIZE and end_bytes - valid_bytes > BATCH_HEADER_TO_MAGIC.size:
            raise damaged(f"size field {table.stop_size} is below the smallest, 14").at(
                position_bytes=valid_bytes
            )
        if end_bytes > valid_bytes and self._flags.max_bytes == java.INT32_MAX:
            self._buffer.write(f"Found {end_bytes - valid_bytes} invalid bytes at the end of {name}\n")

    def _chunk(self, file: BinaryIO, data: memoryview) -> None:
        table = self._table
        first = 0
        for row in _odd_rows(table):
            self._valid_batches(data, first, row)
            self._odd_batch(file, data, row)
            first = row + 1
        self._valid_batches(data, first, len(table))

    def _odd_batch(self, file: BinaryIO, data: Bytes, row: int) -> None:
        """Print a batch whose header the kernel cannot print."""
        table, buffer = self._table, self._buffer
        position = table.position[row]
        if table.magic[row] < 0:
            buffer.write(f"offset: {table.last_offset[row]}")
            raise damaged(f"batch has magic {table.magic[row]}").at(position_bytes=position)
        if table.magic[row] >= 2 and table.size[row] < BATCH_HEADER_BYTES:
            if position + BATCH_HEADER_BYTES > self._file_bytes:
                raise damaged("file ends inside of a batch's header").at(position_bytes=position)
            if position + BATCH_HEADER_BYTES > table.origin + len(data):
                # --max-bytes ends inside of the header, but Kafka reads all of it.
                file.seek(position)
                data = memoryview(file.read(BATCH_HEADER_BYTES))
                kernel.scan(data, position, True, table)
                kernel.verify(data, table)
                row = 0
        if table.attributes[row] & CODEC_MASK > _NEWEST_CODEC:
            start = buffer.used
            buffer.used = text.kafka_batches(table, row, row + 1, buffer.data, start)
            line = bytes(buffer.data[start : buffer.used])
            buffer.used = start + line.index(b" position: ")
            codec = table.attributes[row] & CODEC_MASK
            raise damaged(f"batch has an unknown codec, {codec}").at(position_bytes=position)
        self._single_batch(data, row)

    def _valid_batches(self, data: Bytes, first: int, last: int) -> None:
        """Print batches with valid headers."""
        if first >= last:
            return
        buffer, table = self._buffer, self._table
        if not self._deep:
            buffer.used = text.kafka_batches(table, first, last, buffer.data, buffer.used)
            return
        compressed = [row for row in range(first, last) if table.attributes[row] & CODEC_MASK]
        for row in compressed:
            self._uncompressed(data, first, row)
            self._single_batch(data, row)
            first = row + 1
        self._uncompressed(data, first, last)

    def _uncompressed(self, data: Bytes, first: int, last: int) -> None:
        """Print uncompressed batches, decoding many at once."""
        table, records = self._table, self._records
        if self._parser is not None:
            for row in range(first, last):
                self._single_batch(data, row)
            return
        while first < last:
            records.clear()
            stop = kernel.decode(data, table, first, last, records)
            if self._is_large(first, stop) or self._has_odd_control(first, stop, data):
                for row in range(first, stop):
                    self._single_batch(data, row)
            elif first < stop:
                self._print_batches(data, first, stop)
            if stop < last:
                self._single_batch(data, stop)
                stop += 1
            first = stop

    def _is_large(self, first: int, last: int) -> bool:
        """Whether it is too much to print at once, which happens only with a very large batch."""
        table = self._table
        return (
            first < last
            and table.position[last - 1] + table.size[last - 1] - table.position[first] > _PIECE_BYTES
        )

    def _has_odd_control(self, first: int, last: int, data: Bytes) -> bool:
        if self._flags.skip_record_metadata or first == last:
            return False
        attributes = set(self._table.attributes[first:last])
        if not any(bits & CONTROL_BIT for bits in attributes):
            return False
        rows = _rows_of(self._records, last)
        return text.first_unshown_control(self._table, self._records, *rows, data) < rows[1]

    def _print_batches(self, data: Bytes, first: int, last: int) -> None:
        buffer, records = self._buffer, self._records
        end = _rows_of(records, last)[1]
        if end < len(records):
            _drop_rows(records, end)
        buffer.used = text.kafka_deep(
            self._table,
            first,
            last,
            records,
            0,
            data,
            self._print_data,
            self._flags.skip_record_metadata,
            buffer.data,
            buffer.used,
        )
        self._note_gaps(records, 0, end)
        buffer.flush_if_full()

    def _note_gaps(self, records: RecordTable, first: int, last: int) -> None:
        found, self._previous = text.offset_gaps(records, first, last, self._previous)
        self.gaps.extend(found)

    def _single_batch(self, data: Bytes, row: int) -> None:
        """Print a single batch: a compressed, large or damaged one, or one whose records need a parser."""
        table, buffer = self._table, self._buffer
        buffer.used = text.kafka_batches(table, row, row + 1, buffer.data, buffer.used)
        if not self._deep:
            return
        sizes = self._print_data or not self._flags.skip_record_metadata
        iterated = iterate(data, table, row, self._limit_bytes, read_sizes=sizes)
        control = table.magic[row] >= 2 and table.attributes[row] & CONTROL_BIT
        with placed(position_bytes=table.position[row]):
            if control and not self._flags.skip_record_metadata:
                self._each_record(iterated, self._control_line)
            elif self._parser is not None and not control:
                self._each_record(iterated, self._parsed_line)
            else:
                self._records_in_pieces(iterated)
            if iterated.problem is not None:
                raise iterated.problem

    def _records_in_pieces(self, iterated: Iterated) -> None:
        records, buffer = iterated.records, self._buffer
        last = self._readable(iterated)
        first = iterated.first
        while first < last:
            stop = min(first + _PIECE_RECORDS, last)
            buffer.used = text.kafka_records(
                self._table,
                records,
                first,
                stop,
                iterated.payload,
                self._print_data,
                self._flags.skip_record_metadata,
                buffer.data,
                buffer.used,
            )
            self._note_gaps(records, first, stop)
            first = stop
            buffer.flush_if_full()
        if last < iterated.last:
            self._each_record(Iterated(iterated.payload, records, last, iterated.last), self._parsed_line)

    def _readable(self, iterated: Iterated) -> int:
        """The first row whose value does not fit; the tool prints the value's size before it fails."""
        records = iterated.records
        if not iterated.last or self._table.magic[records.batch[0]] >= 2:
            return iterated.last
        for row in range(iterated.first, iterated.last):
            if not _value_fits(records, row):
                return row
        return iterated.last

    def _each_record(self, iterated: Iterated, show: Callable[[Iterated, int], None]) -> None:
        for row in range(iterated.first, iterated.last):
            # The tool compares offsets before it prints the record.
            self._note_gaps(iterated.records, row, row + 1)
            show(iterated, row)
            self._buffer.flush_if_full()

    def _metadata(self, iterated: Iterated, row: int) -> None:
        """Print the record's line without key, value and end of line."""
        buffer, records = self._buffer, iterated.records
        size = records.value_size[row]
        fits = self._table.magic[records.batch[row]] >= 2 or _value_fits(records, row)
        # Print the stored size, but do not read a value that does not fit.
        records.value_size[row] = size if fits else -1
        buffer.used = text.kafka_records(
            self._table,
            records,
            row,
            row + 1,
            iterated.payload,
            False,
            self._flags.skip_record_metadata,
            buffer.data,
            buffer.used,
        )
        buffer.used -= 1
        records.value_size[row] = size

    def _control_line(self, iterated: Iterated, row: int) -> None:
        self._metadata(iterated, row)
        records, payload = iterated.records, iterated.payload
        if text.first_unshown_control(self._table, records, row, row + 1, payload) == row:
            self._buffer.write(control_text(*_key_and_value(iterated, row)))
        self._buffer.write("\n")

    def _parsed_line(self, iterated: Iterated, row: int) -> None:
        self._metadata(iterated, row)
        if self._print_data:
            records = iterated.records
            if self._table.magic[records.batch[row]] < 2 and not _value_fits(records, row):
                key_text, value_text = unreadable_texts(
                    self._flags,
                    _key_and_value(iterated, row)[0],
                    size=records.value_size[row],
                    available=records.headers_start[row] - records.value_start[row],
                    offset=records.offset[row],
                )
            else:
                parser = self._parser or text_parser
                key_text, value_text = parser(*_key_and_value(iterated, row), records.offset[row])
            prefix = "|" if self._flags.skip_record_metadata else ""
            if key_text is not None:
                self._buffer.write(f"{prefix} key: {key_text}")
            if value_text is not None:
                self._buffer.write(f" payload: {value_text}")
        self._buffer.write("\n")


def prints_data(flags: KafkaFlags) -> bool:
    """Whether to print keys and values: each decoder option implies it."""
    return (
        flags.print_data_log
        or flags.decoder is not None
        or flags.key_decoder_class is not None
        or flags.value_decoder_class is not None
    )


def _title(name: str, path: str) -> str:
    if name.endswith(".log"):
        return f"Log starting offset: {java.parse_long(name.split('.', maxsplit=1)[0], path)}\n"
    if name == "bootstrap.checkpoint":
        return "KRaft bootstrap snapshot\n"
    end_offset = java.parse_long(name[:20], path)
    epoch = java.parse_long(name[21:31], path, bits=32)
    return f"Snapshot end offset: {end_offset}, epoch: {epoch}\n"


def _odd_rows(table: BatchTable) -> list[int]:
    """The batches with a negative magic, an unknown codec, or fewer bytes than a header has."""
    if not len(table):
        return []
    codecs_known = all(bits & CODEC_MASK <= _NEWEST_CODEC for bits in set(table.attributes))
    headers_whole = max(table.magic) < 2 or min(table.size) >= BATCH_HEADER_BYTES
    if codecs_known and min(table.magic) >= 0 and headers_whole:
        return []
    return [
        row
        for row in range(len(table))
        if table.magic[row] < 0
        or (table.magic[row] >= 2 and table.size[row] < BATCH_HEADER_BYTES)
        or table.attributes[row] & CODEC_MASK > _NEWEST_CODEC
    ]


def _rows_of(records: RecordTable, last: int) -> tuple[int, int]:
    """The rows of the records of the batches before `last`."""
    if not len(records) or records.batch[-1] < last:
        return 0, len(records)
    end = len(records)
    while end and records.batch[end - 1] >= last:
        end -= 1
    return 0, end


def _drop_rows(records: RecordTable, end: int) -> None:
    for name in RecordTable.COLUMNS:
        del getattr(records, name)[end:]


def _value_fits(records: RecordTable, row: int) -> bool:
    """Whether the value of a legacy message fits; the message ends where headers would start."""
    return records.value_start[row] + records.value_size[row] <= records.headers_start[row]


def _key_and_value(iterated: Iterated, row: int) -> tuple[bytes | None, bytes | None]:
    records, view = iterated.records, memoryview(iterated.payload)
    key, key_size = records.key_start[row], records.key_size[row]
    value, value_size = records.value_start[row], records.value_size[row]
    return (
        bytes(view[key : key + key_size]) if key_size >= 0 else None,
        bytes(view[value : value + value_size]) if value_size >= 0 else None,
    )
