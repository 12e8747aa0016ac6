"""Finds in a replica again what a repository has lost: batches and snapshots by their offsets."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest

from klog.backup.model import Piece
from klog.backup.scanning import Listed
from klog.formats.names import FileKind, segment_file
from klog.kernel.columns import BatchTable
from klog.replicas.files import read_small
from klog.replicas.open_segment import OpenSegment
from klog.replicas.replica_contents import current_segments
from klog.replicas.replica_files import Found, SegmentFile, read_replica
from klog.storage.files.chunks import chunks
from klog.storage.reading.batch_search import MAX_BATCH_BYTES


def snapshots_of(listed: Listed, offset: int) -> Iterator[bytes]:
    """The producer snapshot at an offset, if there is one. Raises `StorageError`."""
    name = segment_file(FileKind.PRODUCER_SNAPSHOT, offset)
    for file in listed.files:
        if file.entry.name == name:
            yield read_small(file.entry.path)


def batches_of(listed: Listed, piece: Piece) -> Iterator[memoryview]:
    """The batches with the offsets of a piece, in parts that are valid until the next one is asked for.

    Other replicas may have rolled their segments elsewhere. Nothing is checked. Raises `StorageError`.
    """
    found = Found()
    replica = read_replica(listed.path, listed.name, [file.entry for file in listed.files], found)
    segments = current_segments(replica, found.skipped)
    for segment, following in zip_longest(segments, segments[1:]):
        if segment.base_offset >= piece.end_offset:
            return
        if following is None or following.base_offset > piece.first_offset:
            yield from _batches_in(segment, piece.first_offset, piece.end_offset)


def _batches_in(segment: SegmentFile, first_offset: int, end_offset: int) -> Iterator[memoryview]:
    table = BatchTable()
    with OpenSegment(segment) as opened:
        start = opened.search.at_or_before_offset(first_offset).position_bytes
        for data in chunks(opened.file, table, start_bytes=start, max_batch_bytes=MAX_BATCH_BYTES):
            yield batches_between(data, table, first_offset, end_offset)
            if len(table) and table.last_offset[-1] >= end_offset:
                return


def batches_between(data: memoryview, table: BatchTable, first_offset: int, end_offset: int) -> memoryview:
    """The batches of a table whose last offsets are in a range; `data` are the bytes that were scanned."""
    rows = [row for row, last in enumerate(table.last_offset) if first_offset <= last < end_offset]
    if not rows:
        return data[:0]
    end = table.position[rows[-1]] + table.size[rows[-1]]
    return data[table.position[rows[0]] - table.origin : end - table.origin]
