"""Prints `.index`, `.timeindex` and `.txnindex` files as Kafka 3.9's `kafka-dump-log` does.

The tool also reads the segment beside an index and collects the disagreements in `IndexErrors`. If the tool
ends with an exception, a KlogError is raised; the output up to that point remains.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from klog.commands.kafka_tools.dump_log import java
from klog.commands.kafka_tools.dump_log.batch import damaged
from klog.commands.kafka_tools.dump_log.gzipped_copies import plain_or_gzipped
from klog.commands.kafka_tools.dump_log.index_errors import IndexErrors
from klog.commands.kafka_tools.dump_log.segment import SegmentBatches
from klog.commands.shared.records.output_buffer import OutputBuffer
from klog.commands.shared.records.plan import KafkaFlags
from klog.formats.errors import CorruptRecordError
from klog.formats.names import FileKind
from klog.formats.packed import OFFSET_INDEX_ENTRY, TIME_INDEX_ENTRY, TXN_INDEX_ENTRY
from klog.storage.files.files import read_whole
from klog.storage.indexes.index_file import IndexFile, read_index

_WARM_BYTES: Final = 8192


def _beside(path: str, name: str, suffix: str) -> str:
    return plain_or_gzipped(os.path.join(os.path.dirname(path), name.split(".", maxsplit=1)[0] + suffix))


def _entry(layout: struct.Struct, index: IndexFile, number: int) -> tuple[int, int]:
    at = number * layout.size
    if at + layout.size > len(index.entries):
        return 0, 0  # an entry of the zero tail, which is not in memory
    first, second = layout.unpack_from(index.entries, at)
    return first, second


@dataclass(frozen=True, slots=True)
class _OffsetIndex:
    """The entries of a `.index`, as Kafka's `OffsetIndex` reads them."""

    base_offset: int
    file: IndexFile

    def __len__(self) -> int:
        return self.file.size_bytes // OFFSET_INDEX_ENTRY.size

    def entry(self, number: int) -> tuple[int, int]:
        relative, position = _entry(OFFSET_INDEX_ENTRY, self.file, number)
        return self.base_offset + relative, position

    def lookup(self, offset: int) -> int:
        """The position of the entry that Kafka's search finds.

        Kafka searches the last 8 KiB first, and the rest only if it must. The result depends on that if the
        index is not sorted.
        """
        if not len(self):
            return 0
        warm = max(0, len(self) - 1 - _WARM_BYTES // OFFSET_INDEX_ENTRY.size)
        if self.entry(warm)[0] < offset:
            return self._search(offset, warm, len(self) - 1)
        if self.entry(0)[0] > offset:
            return 0
        return self._search(offset, 0, warm)

    def _search(self, offset: int, low: int, high: int) -> int:
        while low < high:
            middle = (low + high + 1) // 2
            found, position = self.entry(middle)
            if found > offset:
                high = middle - 1
            elif found < offset:
                low = middle
            else:
                return position
        return self.entry(low)[1]


@dataclass(frozen=True, slots=True)
class IndexDump:
    """Prints the indexes of a dump; `errors` collects their disagreements with the segments beside them."""

    flags: KafkaFlags
    errors: IndexErrors
    buffer: OutputBuffer
    limit_bytes: int

    def offset_index(self, path: str, name: str) -> None:
        """Print a `.index`. Raises KlogError if the tool ends with an exception."""
        with self._segment_beside(path, name) as (base_offset, segment):
            index = _OffsetIndex(base_offset, read_index(path, FileKind.OFFSET_INDEX))
            shown = java.java_path(path)
            if not len(index):
                self.buffer.write(f"{shown} is empty.\n")
            elif self.flags.index_sanity_check:
                last_offset = index.entry(len(index) - 1)[0]
                _check_sanity(last_offset, base_offset, index.file.size_bytes, OFFSET_INDEX_ENTRY.size)
                self.buffer.write(f"{shown} passed sanity check.\n")
            else:
                self._offset_entries(path, index, segment)

    def time_index(self, path: str, name: str) -> None:
        """Print a `.timeindex`. Raises KlogError if the tool ends with an exception."""
        with self._segment_beside(path, name) as (base_offset, segment):
            offsets = read_index(_beside(path, name, ".index"), FileKind.OFFSET_INDEX)
            times = read_index(path, FileKind.TIME_INDEX)
            if self.flags.index_sanity_check:
                _check_time_sanity(times, base_offset)
                self.buffer.write(f"{java.java_path(path)} passed sanity check.\n")
            else:
                self._time_entries(path, times, _OffsetIndex(base_offset, offsets), segment)

    @contextmanager
    def _segment_beside(self, path: str, name: str) -> Iterator[tuple[int, SegmentBatches]]:
        """The base offset in the index's name, and the segment of that name."""
        base_offset = java.parse_long(name.split(".", maxsplit=1)[0], path)
        segment = SegmentBatches(_beside(path, name, ".log"), self.limit_bytes)
        try:
            yield base_offset, segment
        finally:
            segment.close()

    def _offset_entries(self, path: str, index: _OffsetIndex, segment: SegmentBatches) -> None:
        mismatches = self.errors.mismatches
        for number in range(len(index)):
            offset, position = index.entry(number)
            if offset == index.base_offset and number > 0:
                return  # the zero-filled rest of a pre-allocated file
            end = segment.slice_end(position, self.flags.max_message_size)
            first = next(segment.last_offsets(position, end), None)
            if first is None:
                raise damaged(f"index points at byte {position}, but no batch starts there")
            if first[0] != offset:
                mismatches.setdefault(java.absolute_path(path), []).append((offset, first[0]))
            self._print_entry(f"offset: {offset} position: {position}\n")

    def _time_entries(
        self, path: str, times: IndexFile, index: _OffsetIndex, segment: SegmentBatches
    ) -> None:
        errors = self.errors
        shown_path = java.absolute_path(path)
        previous = -1
        for number in range(times.size_bytes // TIME_INDEX_ENTRY.size):
            timestamp, relative = _entry(TIME_INDEX_ENTRY, times, number)
            offset = index.base_offset + relative
            if offset == index.base_offset and number > 0:
                return  # the zero-filled rest of a pre-allocated file
            position = index.lookup(offset)
            end = segment.slice_end(position, java.INT32_MAX)
            found = next((at for at in segment.last_offsets(position, end) if at[0] >= offset), None)
            if found is None:
                errors.not_found.setdefault(shown_path, []).append((offset, -1))
            elif found[0] != offset:
                errors.not_found.setdefault(shown_path, []).append((offset, found[0]))
            else:
                largest = segment.max_timestamp(found[1])
                if largest != timestamp:
                    errors.timestamps.setdefault(shown_path, []).append((timestamp, largest))
                if previous >= timestamp:
                    errors.out_of_order.setdefault(shown_path, []).append((timestamp, previous))
            self._print_entry(f"timestamp: {timestamp} offset: {offset}\n")
            previous = timestamp

    def _print_entry(self, line: str) -> None:
        if not self.flags.verify_index_only:
            self.buffer.write(line)
            self.buffer.flush_if_full()


def _corrupt(what: str) -> CorruptRecordError:
    return CorruptRecordError(what, cure="`klog rebuild-index` builds a new one from the segment")


def _check_sanity(last_offset: int, base_offset: int, size_bytes: int, entry_bytes: int) -> None:
    if last_offset < base_offset:
        raise _corrupt(
            f"index is corrupt: its last offset {last_offset} is below the base offset {base_offset}"
        )
    if size_bytes % entry_bytes:
        raise _corrupt(f"index is corrupt: {size_bytes} bytes are not a multiple of {entry_bytes}")


def _check_time_sanity(times: IndexFile, base_offset: int) -> None:
    entries = times.size_bytes // TIME_INDEX_ENTRY.size
    last_offset = base_offset
    if entries:
        first_timestamp, _ = _entry(TIME_INDEX_ENTRY, times, 0)
        last_timestamp, relative = _entry(TIME_INDEX_ENTRY, times, entries - 1)
        last_offset = base_offset + relative
        if last_timestamp < first_timestamp:
            raise _corrupt(
                f"time index is corrupt: its last timestamp {last_timestamp} is below the first,"
                f" {first_timestamp}"
            )
    _check_sanity(last_offset, base_offset, times.size_bytes, TIME_INDEX_ENTRY.size)


def dump_txn_index(path: str, name: str, buffer: OutputBuffer) -> None:
    """Print a `.txnindex`. Raises KlogError if the tool ends with an exception; it then prints nothing."""
    java.parse_long(name[: name.index(".")], path)
    lines = []
    data = read_whole(path)
    for at in range(0, len(data) - TXN_INDEX_ENTRY.size + 1, TXN_INDEX_ENTRY.size):
        # The version is two bytes, of which the tool reads only the first.
        version_field, producer_id, first, last, stable = TXN_INDEX_ENTRY.unpack_from(data, at)
        version = version_field >> 8
        if version > 0:
            raise CorruptRecordError(
                f"transaction index entry has version {version}, known is 0", position_bytes=at
            )
        lines.append(
            f"version: {version} producerId: {producer_id} firstOffset: {first} lastOffset: {last}"
            f" lastStableOffset: {stable}\n"
        )
    buffer.write("".join(lines))


def base_name(path: str) -> str:
    """The file's name without directories, and without the `.gz` of a gzipped copy."""
    return os.path.basename(java.java_path(path)).removesuffix(".gz")
