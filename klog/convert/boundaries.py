"""Finds where a log can be divided so that no joined batch would cross the division.

Such a place follows from the two batches beside it: no rule lets them join, or they are too large together.
So all replicas with the same batches find the same places, wherever their segments begin.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from klog.convert.batches import EpochOfOffset, decompressed, upgraded
from klog.convert.options import ConvertOptions
from klog.formats.checksums import Bytes
from klog.formats.constants import BATCH_HEADER_BYTES, CODEC_MASK, CONTROL_BIT, MAGIC_V2
from klog.formats.errors import KlogError
from klog.kernel.columns import BatchTable
from klog.kernel.conversion import Joiner
from klog.storage.cleaner.source import position_of, verified_batches

_BUFFER_BYTES: Final = 256 << 10
_MOST_SHRUNK_BYTES: Final = 9
"""By so many bytes a record can become smaller if its timestamp is relative to that of another batch."""
_MOST_GROWTH: Final = 8
"""No record becomes that many times larger by it."""


class SegmentPlace(NamedTuple):
    """A segment: its `.log` and `.index`, its size, and its base offset."""

    log: str
    index_path: str
    size_bytes: int
    base_offset: int


class _Batch(NamedTuple):
    """One batch of magic 2 with its records, uncompressed; `payload` is None if it is joined with none."""

    position: int
    payload: Bytes | None
    table: BatchTable
    row: int


def division_in(
    previous: SegmentPlace, segment: SegmentPlace, options: ConvertOptions, epoch_of: EpochOfOffset
) -> int | None:
    """The position of the first batch of `segment` that would not be joined with the one before it.

    0 if that is its first batch. None if there is none, and the segment belongs to the one before it as a
    whole. Raises `KlogError` if batches are damaged.
    """
    if not options.join_bytes:
        return 0
    before = None
    start = position_of(previous.index_path, previous.base_offset, (1 << 63) - 1)
    for batch in _batches(previous, start, epoch_of, only_last=True):
        before = batch
    return _first_apart(before, _batches(segment, 0, epoch_of), options)


def division_after(
    segment: SegmentPlace, start: int, options: ConvertOptions, epoch_of: EpochOfOffset
) -> int | None:
    """The position of the first batch after the one at `start` that would not be joined with the one before
    it. None if there is none.

    Raises `KlogError` if batches are damaged, or none starts at `start`.
    """
    batches = _batches(segment, start, epoch_of)
    return _first_apart(next(batches, None), batches, options)


def _first_apart(before: _Batch | None, batches: Iterator[_Batch], options: ConvertOptions) -> int | None:
    """The position of the first of the batches that is not joined with the one before it, if there is one."""
    for batch in batches:
        if before is None or not options.join_bytes or _are_apart(before, batch, options):
            return batch.position
        before = batch
    return None


def _are_apart(before: _Batch, batch: _Batch, options: ConvertOptions) -> bool:
    """Whether the batches can never be in one, whatever comes before them."""
    if before.payload is None or batch.payload is None:
        return True
    size = len(before.payload) + len(batch.payload)
    count = before.table.count[before.row] + batch.table.count[batch.row]
    if size - _MOST_SHRUNK_BYTES * count > options.join_bytes:
        return True
    joiner = Joiner(_MOST_GROWTH * size + _BUFFER_BYTES, options.codec is None)
    joiner.add(before.payload, 0, before.table, before.row)
    return not joiner.add(batch.payload, 0, batch.table, batch.row)


def _batches(
    segment: SegmentPlace, start: int, epoch_of: EpochOfOffset, *, only_last: bool = False
) -> Iterator[_Batch]:
    """The batches of a segment from a position on; with `only_last` only the last one is decompressed."""
    table = BatchTable()
    try:
        for data in verified_batches(
            segment.log, segment.size_bytes, table, start_bytes=start, buffer_bytes=_BUFFER_BYTES
        ):
            if only_last and table.origin + table.consumed_bytes < segment.size_bytes:
                continue
            for row in range(len(table) - 1 if only_last else 0, len(table)):
                yield _batch(data, table, row, epoch_of)
    except KlogError as error:
        raise error if error.file is not None else error.at(segment.log) from None


def _batch(data: memoryview, table: BatchTable, row: int, epoch_of: EpochOfOffset) -> _Batch:
    position = table.position[row]
    if table.magic[row] < MAGIC_V2:
        made = upgraded(data, table, row, row + 1, epoch_of)
        return _Batch(position, made.data[BATCH_HEADER_BYTES:], made.table, 0)
    alone = BatchTable()
    for name in BatchTable.COLUMNS[:-2]:
        getattr(alone, name).append(getattr(table, name)[row])
    attributes = table.attributes[row]
    if attributes & CONTROL_BIT or table.count[row] < 1:
        return _Batch(position, None, alone, 0)
    if attributes & CODEC_MASK:
        return _Batch(position, decompressed(data, table, row), alone, 0)
    at = position - table.origin
    return _Batch(position, bytes(data[at + BATCH_HEADER_BYTES : at + table.size[row]]), alone, 0)
