"""Checks the index entries of a segment as they are used, and rebuilds its indexes if one is wrong.

Kafka trusts indexes after a clean stop. An index is not covered by a checksum, and everything in it follows
from the batches. So an entry that does not fit the segment costs one pass over the segment and a warning, and
neither a wrong answer nor the log directory. The log's lock guards the segment.
"""

from __future__ import annotations

import io
import logging
import os
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from klog.formats import fixed_fields
from klog.formats.constants import ENTRY_PREFIX_BYTES, INT64_MAX, MAGIC_V2, MIN_ENTRY_BYTES, TXN_INDEX_VERSION
from klog.formats.errors import CorruptRecordError
from klog.formats.names import FileKind
from klog.formats.packed import TXN_INDEX_ENTRY
from klog.storage.files.files import read_whole, write_atomically
from klog.storage.log.cold_reads import ColdReadError, read_at
from klog.storage.repair.segment_scan import IndexSettings, scan_segment

if TYPE_CHECKING:
    from klog.config.topic import TopicConfig
    from klog.storage.files.partition_files import PartitionFiles
    from klog.storage.log.batch_place import BatchPlace
    from klog.storage.log.index_files import OffsetIndexFile, TimeIndexFile, TimestampOffset
    from klog.storage.log.open_file import OpenFile

_log = logging.getLogger(__name__)

_HEADER: Final = fixed_fields.run("RecordBatch").only("baseOffset", "batchLength", "magic", "lastOffsetDelta")
_MAGICS: Final = range(MAGIC_V2 + 1)


class KnownBatch(NamedTuple):
    """What the header of a batch says of its offsets, and the position after it. In magic 0 and 1 the first
    offset is that of the segment, for the header has only the last one.
    """

    first_offset: int
    last_offset: int
    end: int


class IndexedSegment(Protocol):
    """A segment of a log (`LogSegment`), as its indexes are checked and rebuilt."""

    base_offset: int
    config: TopicConfig
    file: OpenFile
    size: int
    known_batches: dict[int, KnownBatch]
    indexes_rebuilt: bool

    @property
    def offset_index(self) -> OffsetIndexFile: ...
    @property
    def time_index(self) -> TimeIndexFile: ...
    def path(self, kind: FileKind) -> str: ...
    def batch_at(self, position: int) -> BatchPlace: ...
    def find(self, offset: int) -> BatchPlace | None: ...
    def start_before(self, offset: int) -> int: ...
    def forget_indexes(self) -> bool: ...
    def activate(self) -> None: ...


def checked_start(segment: IndexedSegment, offset: int, *, may_wait: bool) -> int:
    """Where to begin the search for `offset`: the position of a batch that starts at or before it.

    Raises `ColdReadError` if the disk is needed and the caller may not wait for it.
    """
    while True:
        position = segment.offset_index.lookup(offset, may_wait=may_wait).position
        if not position:
            return 0
        batch = _batch_of_entry(segment, position, may_wait)
        if batch is not None and batch.first_offset <= offset:
            segment.known_batches[position] = batch
            return position
        if segment.indexes_rebuilt:
            return 0  # the batches themselves are out of order
        if not may_wait:
            raise ColdReadError(segment.file.path, _HEADER.size, max(position, 0))
        what = f"no batch at or before offset {offset} starts at byte {position}"
        rebuild_indexes(segment, FileKind.OFFSET_INDEX, what)


def _batch_of_entry(segment: IndexedSegment, position: int, may_wait: bool) -> KnownBatch | None:
    """The batch at `position`; None if none starts there."""
    if not 0 <= position <= segment.size - MIN_ENTRY_BYTES:
        return None
    file = segment.file
    size_bytes = min(_HEADER.size, segment.size - position)
    header = read_at(file, file.descriptor, file.path, size_bytes, position, may_wait=may_wait)
    if len(header) < size_bytes:
        return None
    base, follows, magic, delta = _HEADER.unpack(bytes(header).ljust(_HEADER.size, b"\0"))
    end = position + ENTRY_PREFIX_BYTES + follows
    if magic not in _MAGICS or follows < MIN_ENTRY_BYTES - ENTRY_PREFIX_BYTES or end > segment.size:
        return None
    # In magic 0 and 1 the header has the last offset, and old brokers indexed the first.
    if magic < MAGIC_V2:
        return KnownBatch(segment.base_offset, base, end)
    return KnownBatch(max(base, segment.base_offset), base + delta, end)


def require_fitting(segment: IndexedSegment, next_offset: int) -> None:
    """Rebuild the indexes of a segment that ends before `next_offset` if their entries do not fit it.

    Every entry is looked at: the segment is about to be appended to, after its last entry.
    """
    what = _misfit(segment, FileKind.OFFSET_INDEX, next_offset)
    if what is not None:
        rebuild_indexes(segment, FileKind.OFFSET_INDEX, what)
        return
    what = _misfit(segment, FileKind.TIME_INDEX, next_offset)
    if what is not None:
        rebuild_indexes(segment, FileKind.TIME_INDEX, what)


def _misfit(segment: IndexedSegment, kind: FileKind, next_offset: int) -> str | None:
    index = segment.offset_index if kind is FileKind.OFFSET_INDEX else segment.time_index
    size_bytes = os.path.getsize(segment.path(kind))
    if size_bytes % index.entry.size:
        return f"{size_bytes} bytes are no whole number of entries"
    if index.entries > index.max_entries:
        return f"{index.entries} entries are more than it may have"
    if index.last.offset >= max(next_offset, segment.base_offset + 1):
        return f"its last entry has offset {index.last.offset}, the segment ends before {next_offset}"
    if not index.ascends():
        return "its entries do not ascend"
    return None


def checked_time(segment: IndexedSegment, timestamp: int) -> TimestampOffset:
    """The last time index entry at or below `timestamp`, which the batch at its offset confirms."""
    found = segment.time_index.lookup(timestamp)
    if segment.indexes_rebuilt or not segment.time_index.entries or _confirmed(segment, found):
        return found
    what = f"no batch with offset {found.offset} has the largest timestamp {found.timestamp}"
    rebuild_indexes(segment, FileKind.TIME_INDEX, what)
    return segment.time_index.lookup(timestamp)


def checked_largest(segment: IndexedSegment) -> TimestampOffset:
    """The last time index entry, which holds the largest timestamp of a segment that is complete.

    Retention trusts it. So the last batch must not be later, and a segment with timestamps has an entry.
    """
    found = checked_time(segment, INT64_MAX)
    if segment.indexes_rebuilt or not segment.size:
        return found
    last_ms = _last_timestamp(segment)
    if last_ms > found.timestamp:
        what = f"its last timestamp is {found.timestamp}, that of the last batch {last_ms}"
        rebuild_indexes(segment, FileKind.TIME_INDEX, what)
        found = segment.time_index.last
    return found


def _last_timestamp(segment: IndexedSegment) -> int:
    """The largest timestamp of the last batch, -1 if there is none or the batches are damaged."""
    position, timestamp = segment.start_before(INT64_MAX), -1
    try:
        while position < segment.size:
            place = segment.batch_at(position)
            timestamp, position = place.max_timestamp, position + place.size
    except CorruptRecordError:
        return -1
    return timestamp


def _confirmed(segment: IndexedSegment, entry: TimestampOffset) -> bool:
    if entry.timestamp < 0:
        return entry == segment.time_index.before_first
    try:
        place = segment.find(entry.offset)
    except CorruptRecordError:
        return True  # the batches are damaged, which is another problem
    return place is not None and place.max_timestamp == entry.timestamp


def rebuild_indexes(segment: IndexedSegment, kind: FileKind, what: str) -> None:
    """Write both indexes anew from the batches. Raises `OSError`, `StorageError`."""
    _log.warning("%s: %s; its segment's indexes are rebuilt", segment.path(kind), what)
    segment.indexes_rebuilt = True
    with io.FileIO(os.dup(segment.file.descriptor)) as file:
        scan = scan_segment(
            file,
            segment.base_offset,
            IndexSettings(segment.config.index_interval_bytes, segment.config.segment_index_bytes),
            end_bytes=segment.size,
            checked=True,
        )
    was_active = segment.forget_indexes()
    # A log whose offsets are out of order has no valid index: it is searched from its start.
    write_atomically(segment.path(FileKind.OFFSET_INDEX), b"" if scan.disordered else scan.offset_index)
    write_atomically(segment.path(FileKind.TIME_INDEX), b"" if scan.disordered else scan.time_index)
    if was_active:
        segment.activate()


def txn_index_damage(files: PartitionFiles, base_offset: int) -> CorruptRecordError | None:
    """Why the transaction index of a segment cannot be its own; None if it can or there is none.

    Kafka checks only versions and that no transaction ends before the segment. Raises `StorageError`.
    """
    if not files.has(FileKind.TXN_INDEX, base_offset):
        return None
    path = files.file(FileKind.TXN_INDEX, base_offset)
    data = read_whole(path)
    place = files.segments.index(base_offset) + 1
    end = files.segments[place] if place < len(files.segments) else INT64_MAX
    size = TXN_INDEX_ENTRY.size
    last = base_offset - 1
    for entry in range(-(-len(data) // size)):
        at = entry * size
        if at + size > len(data):
            return CorruptRecordError("an entry is incomplete", file=path, position_bytes=at)
        version, producer_id, first_offset, last_offset, _ = TXN_INDEX_ENTRY.unpack_from(data, at)
        fits = first_offset <= last_offset and last < last_offset < end and producer_id >= 0
        if version != TXN_INDEX_VERSION or not fits:
            what = f"entry {entry} (offsets {first_offset} to {last_offset}) does not fit its segment"
            return CorruptRecordError(what, file=path, position_bytes=at)
        last = last_offset
    return None
