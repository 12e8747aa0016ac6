"""`.index`, `.timeindex`, `.txnindex` and `.snapshot` files as Kafka 3.9's `kafka-dump-log` prints them.

The tool reads the segment beside an index, too, and collects what does not agree; `IndexErrors` prints that
to stderr at the end. Where it dies of what it reads, a `KlogError` is raised, and what it printed stands.
"""

from __future__ import annotations

import os
import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import BinaryIO, Final

from klog.commands.dump import java
from klog.commands.dump.kafka_batch import damaged, iterate
from klog.commands.dump.pen import Pen
from klog.commands.dump.plan import KafkaFlags
from klog.formats import kernel
from klog.formats.checksums import crc32c
from klog.formats.columns import BatchTable
from klog.formats.constants import (
    BATCH_HEADER_BYTES,
    CODEC_MASK,
    ENTRY_PREFIX_BYTES,
    MAGIC_V2,
    MIN_MESSAGE_SIZE,
)
from klog.formats.errors import CorruptRecordError, KlogError
from klog.formats.packed import BATCH_HEADER_TO_MAGIC, OFFSET_INDEX_ENTRY, TIME_INDEX_ENTRY, TXN_INDEX_ENTRY
from klog.formats.wrapping import sequence_before, wrap_int64
from klog.storage.files import open_for_reading, read_whole
from klog.storage.index_file import IndexFile, read_index

_WARM_BYTES: Final = 8192

Pairs = list[tuple[int, int]]


@dataclass(slots=True)
class IndexErrors:
    """What does not agree, by absolute path, in the order it was found."""

    mismatches: dict[str, Pairs] = field(default_factory=dict)
    timestamps: dict[str, Pairs] = field(default_factory=dict)
    out_of_order: dict[str, Pairs] = field(default_factory=dict)
    not_found: dict[str, Pairs] = field(default_factory=dict)
    gaps: dict[str, Pairs] = field(default_factory=dict)

    def report(self) -> bool:
        """Print all to stderr as the tool does, in its order; whether an index is wrong.

        Gaps between offsets are no damage: compaction leaves them.
        """
        for path in _in_order(self.mismatches):
            _say(f"Mismatches in :{path}")
            for index_offset, log_offset in reversed(self.mismatches[path]):
                _say(f"  Index offset: {index_offset}, log offset: {log_offset}")
        for path in _in_order(self.timestamps):
            _say(f"Found timestamp mismatch in :{path}")
            for index_timestamp, log_timestamp in self.timestamps[path]:
                _say(f"  Index timestamp: {index_timestamp}, log timestamp: {log_timestamp}")
        for path in _in_order(self.out_of_order):
            _say(f"Found out of order timestamp in :{path}")
            for index_timestamp, previous in self.out_of_order[path]:
                _say(f"  Index timestamp: {index_timestamp}, Previously indexed timestamp: {previous}")
        for path in _in_order(self.not_found):
            _say("The following indexed offsets are not found in the log.")
            for index_offset, log_offset in self.not_found[path]:
                _say(f"Indexed offset: {index_offset}, found log offset: {log_offset}")
        for path in _in_order(self.gaps):
            _say(f"Non-consecutive offsets in {path}")
            for first, second in reversed(self.gaps[path]):
                _say(f"  {first} is followed by {second}")
        return bool(self.mismatches or self.timestamps or self.out_of_order or self.not_found)


def _in_order(found: dict[str, Pairs]) -> list[str]:
    return java.in_scala_order(found, java.hash_of_string)


def _say(line: str) -> None:
    print(line, file=sys.stderr)  # noqa: T201 (the tool's own words)


def _beside(path: str, name: str, suffix: str) -> str:
    return os.path.join(os.path.dirname(path), name.split(".", maxsplit=1)[0] + suffix)


class _Segment:
    """The segment beside an index, read a batch at a time as `FileRecords` does."""

    def __init__(self, path: str, limit_bytes: int) -> None:
        self._file: BinaryIO = open_for_reading(path)
        self._limit_bytes = limit_bytes
        self.size_bytes = self._file.seek(0, os.SEEK_END)
        if self.size_bytes > java.INT32_MAX:
            self._file.close()
            raise damaged(f"segment of {self.size_bytes} bytes is larger than Kafka's tool reads").at(path)

    def close(self) -> None:
        self._file.close()

    def slice_end(self, position: int, size: int) -> int:
        """Where a slice ends. Raises CorruptRecordError where it cannot start."""
        if position < 0 or position > self.size_bytes:
            raise damaged(f"index points at byte {position} of a segment of {self.size_bytes} bytes")
        if size < 0:
            raise damaged(f"--max-message-size {size} is negative")
        end = position + size
        return self.size_bytes if end > java.INT32_MAX else min(end, self.size_bytes)

    def last_offsets(self, position: int, end: int) -> Iterator[tuple[int, int]]:
        """Last offset and position of each batch from `position` to `end`."""
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
                delta = int.from_bytes(header[23:27], "big", signed=True)
                offset = wrap_int64(offset + delta)
            yield offset, position
            position += ENTRY_PREFIX_BYTES + follows

    def max_timestamp(self, position: int) -> int:
        """Largest timestamp of the records of the batch at `position`, -1 at least."""
        follows = int.from_bytes(self._at(position, ENTRY_PREFIX_BYTES)[8:], "big")
        data = self._at(position, max(ENTRY_PREFIX_BYTES + follows, BATCH_HEADER_BYTES))
        table = BatchTable()
        kernel.scan(data, position, True, table)
        attributes, magic = table.attributes[0], table.magic[0]
        if attributes & CODEC_MASK > 4 and (magic < 2 or table.count[0] != 0):
            raise damaged("batch has an unknown codec").at(position_bytes=position)
        if magic < 2 and not attributes & CODEC_MASK:
            shown = int.from_bytes(data[18:26], "big", signed=True) if magic != 0 else -1
            return max(-1, shown)
        iterated = iterate(data, table, 0, self._limit_bytes)
        if iterated.problem is not None:
            raise iterated.problem.at(position_bytes=position)
        return max((-1, *iterated.records.timestamp[: iterated.last]))

    def _at(self, position: int, size: int) -> bytes:
        self._file.seek(position)
        return self._file.read(size)


def _entry(layout: struct.Struct, index: IndexFile, number: int) -> tuple[int, int]:
    at = number * layout.size
    if at + layout.size > len(index.entries):
        return 0, 0  # of the zeros that are not held
    first, second = layout.unpack_from(index.entries, at)
    return first, second


@dataclass(frozen=True, slots=True)
class _OffsetIndex:
    """The entries of a `.index`, as `OffsetIndex` sees them."""

    base_offset: int
    file: IndexFile

    def __len__(self) -> int:
        return self.file.size_bytes // OFFSET_INDEX_ENTRY.size

    def entry(self, number: int) -> tuple[int, int]:
        relative, position = _entry(OFFSET_INDEX_ENTRY, self.file, number)
        return self.base_offset + relative, position

    def lookup(self, offset: int) -> int:
        """Position of the entry that Kafka's search finds: the last 8 KiB first, the rest only if need be.

        That shows where an index is not sorted.
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


def dump_index(
    path: str, name: str, flags: KafkaFlags, errors: IndexErrors, pen: Pen, limit_bytes: int
) -> None:
    """A `.index`. Raises KlogError where the tool dies."""
    base_offset = java.parse_long(name.split(".", maxsplit=1)[0], path)
    segment = _Segment(_beside(path, name, ".log"), limit_bytes)
    try:
        index = _OffsetIndex(base_offset, read_index(path, OFFSET_INDEX_ENTRY.size))
        shown = java.java_path(path)
        if not len(index):
            pen.write(f"{shown} is empty.\n")
        elif flags.index_sanity_check:
            _check_sanity(
                index.entry(len(index) - 1)[0], base_offset, index.file.size_bytes, OFFSET_INDEX_ENTRY.size
            )
            pen.write(f"{shown} passed sanity check.\n")
        else:
            _offset_entries(path, index, segment, flags, errors, pen)
    finally:
        segment.close()


def _offset_entries(
    path: str, index: _OffsetIndex, segment: _Segment, flags: KafkaFlags, errors: IndexErrors, pen: Pen
) -> None:
    for number in range(len(index)):
        offset, position = index.entry(number)
        if offset == index.base_offset and number > 0:
            return  # the zero-filled rest of a pre-allocated file
        end = segment.slice_end(position, flags.max_message_size)
        first = next(segment.last_offsets(position, end), None)
        if first is None:
            raise damaged(f"index points at byte {position}, where no batch starts")
        if first[0] != offset:
            errors.mismatches.setdefault(java.absolute_path(path), []).append((offset, first[0]))
        if not flags.verify_index_only:
            pen.write(f"offset: {offset} position: {position}\n")
            pen.turn()


def _check_sanity(last_offset: int, base_offset: int, size_bytes: int, entry_bytes: int) -> None:
    if last_offset < base_offset:
        raise CorruptRecordError(
            f"index is corrupt: its last offset {last_offset} is below the base offset {base_offset}",
            cure="`klog rebuild-index` makes a new one from the segment",
        )
    if size_bytes % entry_bytes:
        raise CorruptRecordError(
            f"index is corrupt: {size_bytes} bytes are no multiple of {entry_bytes}",
            cure="`klog rebuild-index` makes a new one from the segment",
        )


def dump_time_index(
    path: str, name: str, flags: KafkaFlags, errors: IndexErrors, pen: Pen, limit_bytes: int
) -> None:
    """A `.timeindex`. Raises KlogError where the tool dies."""
    base_offset = java.parse_long(name.split(".", maxsplit=1)[0], path)
    segment = _Segment(_beside(path, name, ".log"), limit_bytes)
    try:
        index = _OffsetIndex(base_offset, read_index(_beside(path, name, ".index"), OFFSET_INDEX_ENTRY.size))
        data = read_index(path, TIME_INDEX_ENTRY.size)
        if flags.index_sanity_check:
            _check_time_sanity(data, base_offset)
            pen.write(f"{java.java_path(path)} passed sanity check.\n")
        else:
            _time_entries(path, data, index, segment, flags, errors, pen)
    finally:
        segment.close()


def _check_time_sanity(data: IndexFile, base_offset: int) -> None:
    entries = data.size_bytes // TIME_INDEX_ENTRY.size
    last_offset = base_offset
    if entries:
        first_timestamp, _ = _entry(TIME_INDEX_ENTRY, data, 0)
        last_timestamp, relative = _entry(TIME_INDEX_ENTRY, data, entries - 1)
        last_offset = base_offset + relative
        if last_timestamp < first_timestamp:
            raise CorruptRecordError(
                f"time index is corrupt: its last timestamp {last_timestamp} is below the first,"
                f" {first_timestamp}",
                cure="`klog rebuild-index` makes a new one from the segment",
            )
    _check_sanity(last_offset, base_offset, data.size_bytes, TIME_INDEX_ENTRY.size)


def _time_entries(
    path: str,
    data: IndexFile,
    index: _OffsetIndex,
    segment: _Segment,
    flags: KafkaFlags,
    errors: IndexErrors,
    pen: Pen,
) -> None:
    shown_path = java.absolute_path(path)
    previous = -1
    for number in range(data.size_bytes // TIME_INDEX_ENTRY.size):
        timestamp, relative = _entry(TIME_INDEX_ENTRY, data, number)
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
        if not flags.verify_index_only:
            pen.write(f"timestamp: {timestamp} offset: {offset}\n")
            pen.turn()
        previous = timestamp


def dump_txn_index(path: str, name: str, pen: Pen) -> None:
    """A `.txnindex`. Raises KlogError where the tool dies, which is before it prints anything."""
    java.parse_long(name[: name.index(".")], path)
    lines = []
    data = read_whole(path)
    for at in range(0, len(data) - TXN_INDEX_ENTRY.size + 1, TXN_INDEX_ENTRY.size):
        # The version is two bytes, of which the tool looks at the first.
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
    pen.write("".join(lines))


_SNAPSHOT_FIELDS: Final = (
    ("producer_id", ">q"),
    ("epoch", ">h"),
    ("last_sequence", ">i"),
    ("last_offset", ">q"),
    ("offset_delta", ">i"),
    ("timestamp", ">q"),
    ("coordinator_epoch", ">i"),
    ("current_txn_first_offset", ">q"),
)


class _SnapshotError(KlogError):
    """Words that the tool prints to stderr about a snapshot; it goes on."""


def _snapshot_entries(data: bytes) -> Iterator[list[int]]:
    at = 0
    head = []
    for name, layout in (("version", ">h"), ("crc", ">I"), ("producer_entries", ">i")):
        head.append(_field(data, at, name, layout))
        at += struct.calcsize(layout)
    version, crc, count = head
    where = "Error reading field 'producer_entries': "
    if count < 0:
        raise _SnapshotError(
            f"Snapshot failed schema validation: {where}Array size {count} cannot be negative"
        )
    if count > len(data) - at:
        raise _SnapshotError(
            f"Snapshot failed schema validation: {where}Error reading array of size {count},"
            f" only {len(data) - at} bytes available"
        )
    entries = []
    for _ in range(count):
        entry = []
        for name, layout in _SNAPSHOT_FIELDS:
            entry.append(_field(data, at, name, layout, where))
            at += struct.calcsize(layout)
        entries.append(entry)
    if version != 1:
        raise _SnapshotError(f"Snapshot contained an unknown file version {version}")
    computed = crc32c(data[6:])
    if crc != computed:
        raise _SnapshotError(
            f"Snapshot is corrupt (CRC is no longer valid). Stored crc: {crc}. Computed crc: {computed}"
        )
    return iter(entries)


def _field(data: bytes, at: int, name: str, layout: str, where: str = "") -> int:
    if at + struct.calcsize(layout) > len(data):
        raise _SnapshotError(
            f"Snapshot failed schema validation: {where}Error reading field '{name}':"
            " java.nio.BufferUnderflowException"
        )
    number: int = struct.unpack_from(layout, data, at)[0]
    return number


def dump_snapshot(path: str, pen: Pen) -> bool:
    """A `.snapshot`; whether it was sound (if not, the tool's words are on stderr, and it goes on)."""
    try:
        entries = list(_snapshot_entries(read_whole(path)))
    except _SnapshotError as error:
        pen.flush()
        _say(error.what)
        return False
    for producer_id, epoch, last_sequence, last_offset, delta, timestamp, coordinator, first in entries:
        transaction = f"OptionalLong[{first}]" if first >= 0 else "OptionalLong.empty"
        pen.write(
            f"producerId: {producer_id} producerEpoch: {epoch} coordinatorEpoch: {coordinator}"
            f" currentTxnFirstOffset: {transaction} lastTimestamp: {timestamp} "
        )
        if last_offset >= 0:
            pen.write(
                f"firstSequence: {sequence_before(last_sequence, delta)} lastSequence: {last_sequence}"
                f" lastOffset: {last_offset} offsetDelta: {delta} timestamp: {timestamp}"
            )
        pen.write("\n")
        pen.turn()
    return True


def base_name(path: str) -> str:
    """The file's name as Kafka knows it: that of a gzipped copy is without its `.gz`."""
    return os.path.basename(java.java_path(path)).removesuffix(".gz")
