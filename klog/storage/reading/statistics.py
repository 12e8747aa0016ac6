"""Statistics of a log from one pass over batch headers; records are decoded if that is cheap.

Headers give exact numbers: batches, records, sizes of batches, codecs, magics, offsets and gaps, largest
timestamps, producers, leader epochs, checksums. All markers are decoded, for the transactions. Decoded
records give: sizes of records, null keys and values, headers, compression ratios. All records are decoded if
a file is small or `decode_all` is set; else those of the first batch in each chunk of 1 MiB (then `sampled`
is set). Compressed sets of magic 0 and 1 are always decoded, because only that gives the number of messages.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterator
from typing import Final

from klog.formats.checksums import Bytes
from klog.formats.constants import (
    CODEC_MASK,
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
)
from klog.kernel import kernel
from klog.kernel.columns import OFFSET_UNKNOWN, BatchTable, RecordTable
from klog.kernel.markers import control_type_name
from klog.storage.files.distributions import Distribution, TimeHistogram
from klog.storage.reading.reader import SegmentReader
from klog.storage.reading.values import timestamp_type

DECODE_ALL_BELOW_BYTES: Final = 256 << 20
_LEGACY_FLAGS: Final = CODEC_MASK | TIMESTAMP_TYPE_BIT


class CodecNumbers:
    """Numbers of one codec: batches and bytes of all its batches; compressed and plain bytes of those
    decoded.
    """

    __slots__ = ("batches", "decoded_bytes", "plain_bytes", "size_bytes")

    def __init__(self) -> None:
        self.batches = 0
        self.size_bytes = 0
        self.decoded_bytes = 0
        self.plain_bytes = 0

    @property
    def ratio(self) -> float | None:
        """Plain bytes for each compressed byte, None if no batch was decoded."""
        return self.plain_bytes / self.decoded_bytes if self.decoded_bytes else None


class Transactions:
    """Transactions of a log: `committed` and `aborted` count markers; `open` maps producer ids to first
    offsets.
    """

    __slots__ = ("aborted", "committed", "open")

    def __init__(self) -> None:
        self.committed = 0
        self.aborted = 0
        self.open: dict[int, int] = {}


class LogStatistics:
    """Numbers of one or more segments of a partition, added in order. Without data, offsets are -1 and times
    None.
    """

    def __init__(self) -> None:
        self.segments = 0
        self.batches = 0
        self.records = 0
        self.size_bytes = 0
        self.invalid_batches = 0
        self.first_offset = -1
        self.last_offset = -1
        self.gaps = 0
        self.missing_offsets = 0
        self.min_timestamp_ms: int | None = None
        self.max_timestamp_ms: int | None = None
        self.magics: Counter[int] = Counter()
        self.timestamp_types: Counter[str] = Counter()
        self.codecs: dict[int, CodecNumbers] = {}
        self.batch_sizes = Distribution()
        self.producers: Counter[int] = Counter()
        self.leader_epochs: dict[int, int] = {}
        self.control_records: Counter[str] = Counter()
        self.transactions = Transactions()
        self.transactional_batches = 0
        self.delete_horizons = 0
        self.histogram = TimeHistogram()
        self.sampled = False
        self.decoded_records = 0
        self.record_sizes = Distribution()
        self.null_keys = 0
        self.null_values = 0
        self.headers = 0

    def add(self, reader: SegmentReader, *, decode_all: bool) -> Iterator[int]:
        """Add one segment, in a pass of `reader` (which verifies); yields the bytes of each chunk after it.

        Batches that the reader's bounds exclude are not counted.
        """
        self.segments += 1
        self.sampled |= not decode_all
        for data in reader.chunks():
            consumed_bytes = reader.batches.consumed_bytes
            reader.drop_unwanted()
            if len(reader.batches):
                _take(self, reader, data, decode_all=decode_all)
            yield consumed_bytes

    def codec(self, number: int) -> CodecNumbers:
        """The numbers of one codec."""
        return self.codecs.setdefault(number, CodecNumbers())


def _take(into: LogStatistics, reader: SegmentReader, data: Bytes, *, decode_all: bool) -> None:
    """Count the batches of the current chunk, and those of its records that are decoded."""
    table = reader.batches
    into.batches += len(table)
    into.size_bytes += sum(table.size)
    into.batch_sizes.add(table.size)
    into.magics.update(table.magic)
    into.invalid_batches += len(table) - sum(table.valid)
    kinds = Counter(zip(table.attributes, table.magic, strict=True))
    for (attributes, magic), count in kinds.items():
        into.timestamp_types[timestamp_type(magic, attributes)] += count
    flags = {attributes if magic >= 2 else attributes & _LEGACY_FLAGS for attributes, magic in kinds}
    legacy = min(table.magic) < 2
    decoded = Counter[int]()
    markers: dict[int, str] = {}
    runs = reader.decode(data) if decode_all else reader.decode_rows(data, _sample(table, legacy, flags))
    for payload in runs:
        if legacy:
            decoded.update(reader.records.batch)
        _records(into, reader, data, payload, markers)
    counts = _legacy_counts(table, decoded) if legacy else table.count
    into.records += sum(counts)
    into.histogram.add(table.max_timestamp, counts)
    _codecs(into, table, flags)
    _times(into, table, flags)
    _offsets(into, table, counts)
    _producers(into, table, counts)
    _epochs(into, table)
    if any(flag & (TRANSACTIONAL_BIT | CONTROL_BIT | DELETE_HORIZON_BIT) for flag in flags):
        _transactions(into, table, markers)


def _sample(table: BatchTable, legacy: bool, flags: set[int]) -> list[int]:
    """Rows that are decoded in a sample: the first, markers, and sets that do not store their count."""
    rows = {0}
    if any(flag & CONTROL_BIT for flag in flags):
        rows.update(row for row, attributes in enumerate(table.attributes) if attributes & CONTROL_BIT)
    if legacy:
        rows.update(
            row
            for row, (attributes, magic) in enumerate(zip(table.attributes, table.magic, strict=True))
            if magic < 2 and attributes & CODEC_MASK
        )
    return sorted(rows)


def _records(
    into: LogStatistics, reader: SegmentReader, data: Bytes, payload: Bytes, markers: dict[int, str]
) -> None:
    table, records = reader.batches, reader.records
    into.decoded_records += len(records)
    into.record_sizes.add(records.record_size)
    into.null_keys += records.key_size.count(-1)
    into.null_values += records.value_size.count(-1)
    into.headers += sum(records.header_count)
    row = records.batch[0]
    codec = table.attributes[row] & CODEC_MASK
    if codec:
        numbers = into.codec(codec)
        numbers.decoded_bytes += max(kernel.payload_span(data, table, row)[1], 0)
        numbers.plain_bytes += len(payload)
    if max(table.magic) >= 2 and any(table.attributes[row] & CONTROL_BIT for row in set(records.batch)):
        _markers(table, records, memoryview(payload), markers)


def _markers(table: BatchTable, records: RecordTable, view: memoryview, markers: dict[int, str]) -> None:
    for record, row in enumerate(records.batch):
        if table.attributes[row] & CONTROL_BIT and table.magic[row] >= 2:
            start, size = records.key_start[record], records.key_size[record]
            markers[row] = control_type_name(bytes(view[start : start + max(size, 0)])) or "unreadable"


def _legacy_counts(table: BatchTable, decoded: Counter[int]) -> array[int]:
    """Records of each batch; messages of magic 0 and 1 do not store their number."""
    counts = array("q")
    for row, (count, attributes) in enumerate(zip(table.count, table.attributes, strict=True)):
        if table.magic[row] >= 2:
            counts.append(count)
        else:
            counts.append(decoded[row] if attributes & CODEC_MASK else 1)
    return counts


def _codecs(into: LogStatistics, table: BatchTable, flags: set[int]) -> None:
    codecs = {flag & CODEC_MASK for flag in flags}
    if len(codecs) == 1:
        numbers = into.codec(codecs.pop())
        numbers.batches += len(table)
        numbers.size_bytes += sum(table.size)
        return
    for attributes, size in zip(table.attributes, table.size, strict=True):
        numbers = into.codec(attributes & CODEC_MASK)
        numbers.batches += 1
        numbers.size_bytes += size


def _times(into: LogStatistics, table: BatchTable, flags: set[int]) -> None:
    # With append time or a delete horizon the base timestamp is not the timestamp of the first record.
    plain = not any(flag & (TIMESTAMP_TYPE_BIT | DELETE_HORIZON_BIT) for flag in flags)
    lowest = min(table.base_timestamp if plain else table.max_timestamp)
    if lowest < 0:
        lowest = min((time for time in table.max_timestamp if time >= 0), default=-1)
    highest = max(table.max_timestamp)
    if lowest >= 0:
        known = into.min_timestamp_ms
        into.min_timestamp_ms = lowest if known is None else min(known, lowest)
    if highest >= 0:
        known = into.max_timestamp_ms
        into.max_timestamp_ms = highest if known is None else max(known, highest)


def _offsets(into: LogStatistics, table: BatchTable, counts: array[int]) -> None:
    first = table.base_offset[0] if table.base_offset[0] != OFFSET_UNKNOWN else table.last_offset[0]
    if into.first_offset < 0:
        into.first_offset = first
    expected = first if into.last_offset < 0 else into.last_offset + 1
    into.last_offset = table.last_offset[-1]
    if expected == first and sum(counts) == into.last_offset + 1 - first:
        return  # no offset is missing; nearly all chunks are like this
    for base, last, count in zip(table.base_offset, table.last_offset, counts, strict=True):
        start = expected if base == OFFSET_UNKNOWN else base
        missing = max(0, start - expected) + max(0, last + 1 - start - count)
        into.missing_offsets += missing
        into.gaps += missing > 0
        expected = last + 1


def _producers(into: LogStatistics, table: BatchTable, counts: array[int]) -> None:
    lowest, highest = min(table.producer_id), max(table.producer_id)
    if lowest == highest:
        if highest >= 0:
            into.producers[highest] += sum(counts)
        return
    for producer, count in zip(table.producer_id, counts, strict=True):
        if producer >= 0:
            into.producers[producer] += count


def _epochs(into: LogStatistics, table: BatchTable) -> None:
    lowest, highest = min(table.leader_epoch), max(table.leader_epoch)
    if lowest == highest:
        if highest >= 0:
            into.leader_epochs.setdefault(highest, table.base_offset[0])
        return
    for epoch, base in zip(table.leader_epoch, table.base_offset, strict=True):
        if epoch >= 0:
            into.leader_epochs.setdefault(epoch, base)


def _transactions(into: LogStatistics, table: BatchTable, markers: dict[int, str]) -> None:
    found = into.transactions
    for row, attributes in enumerate(table.attributes):
        if table.magic[row] < 2:
            continue
        into.delete_horizons += bool(attributes & DELETE_HORIZON_BIT)
        producer = table.producer_id[row]
        if attributes & CONTROL_BIT:
            kind = markers.get(row, "unreadable")
            into.control_records[kind] += 1
            found.committed += kind == "COMMIT"
            found.aborted += kind == "ABORT"
            if kind in {"COMMIT", "ABORT"}:
                found.open.pop(producer, None)
        elif attributes & TRANSACTIONAL_BIT:
            into.transactional_batches += 1
            found.open.setdefault(producer, table.base_offset[row])
