"""Reads the damaged offsets of a split from other replicas.

The planner knows which replicas agree about a split's offsets. Damage in the chosen one shows only when it is
read. Then the missing offsets are read from the other replicas, and only those that none of them has are
lost. Records come in the order of their offsets, whatever replica they come from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from klog.formats.constants import INT64_MAX
from klog.formats.errors import CorruptRecordError, KlogError
from klog.replicas.open_segment import OpenSegment
from klog.replicas.replica_files import SegmentFile
from klog.replicas.splits import FallbackSegment, LostRange, Split

if TYPE_CHECKING:
    import pyarrow as pa

OnLost = Callable[[LostRange], None]
ReadSplit = Callable[[Split, OnLost], "Iterator[pa.RecordBatch]"]
"""Reads one split without its fallbacks, with the column `offset`, and reports the ranges that it cannot
read."""


def read_with_fallbacks(
    read: ReadSplit,
    split: Split,
    on_lost: OnLost,
    on_repaired: OnLost,
    *,
    fail: bool,
) -> Iterator[pa.RecordBatch]:
    """Yield what `read` yields for a split, and the missing offsets from its fallbacks, by offset.

    Ranges that no fallback has go to `on_lost`, or with `fail` are raised as `CorruptRecordError`. Ranges
    that a fallback has, at least in part, go to `on_repaired`.
    """

    def fill(lost: LostRange) -> Iterator[pa.RecordBatch]:
        missing: list[LostRange] = []
        yield from _from_fallbacks(read, split, split.fallbacks, lost, missing.append)
        if missing != [lost]:
            on_repaired(lost)
        for part in missing:
            if fail:
                raise CorruptRecordError(part.reason, file=part.file, position_bytes=part.start_bytes)
            on_lost(part)

    yield from _filled(partial(read, split), fill)


def _filled(
    read: Callable[[OnLost], Iterator[pa.RecordBatch]],
    fill: Callable[[LostRange], Iterator[pa.RecordBatch]],
) -> Iterator[pa.RecordBatch]:
    """Yield what `read` yields, and in place of each range that it reports what `fill` yields for it.

    A range is reported before a batch with records after it is yielded; that batch may also have records
    before it.
    """
    lost: list[LostRange] = []
    for batch in read(lost.append):
        rest = batch
        while rest.num_rows:
            lost.sort(key=_first_offset)
            before = rest.num_rows if not lost else _rows_before(rest, _first_offset(lost[0]))
            if before:
                yield rest.slice(0, before)
            rest = rest.slice(before)
            if rest.num_rows:
                yield from fill(lost.pop(0))
    for one in sorted(lost, key=_first_offset):
        yield from fill(one)


def _first_offset(lost: LostRange) -> int:
    return -1 if lost.first_offset is None else lost.first_offset


def _rows_before(batch: pa.RecordBatch, offset: int) -> int:
    """The number of rows before the first one with this offset or a greater one."""
    import pyarrow as pa
    import pyarrow.compute as pc

    reached = pc.greater_equal(batch.column("offset"), pa.scalar(offset, pa.int64()))
    row: int = pc.index(reached, True).as_py()
    return batch.num_rows if row < 0 else row


def _from_fallbacks(
    read: ReadSplit,
    split: Split,
    fallbacks: Sequence[FallbackSegment],
    lost: LostRange,
    on_lost: OnLost,
) -> Iterator[pa.RecordBatch]:
    """Yield the records of a lost range that the fallbacks have, by offset; what they lack goes to
    `on_lost`."""
    if not fallbacks:
        on_lost(lost)
        return
    fallback, others = fallbacks[0], fallbacks[1:]
    first = split.first_offset if lost.first_offset is None else lost.first_offset
    end = split.end_offset if lost.end_offset is None else lost.end_offset
    low, high = max(first, fallback.first_offset), min(end, fallback.end_offset)

    def fill(missing: LostRange) -> Iterator[pa.RecordBatch]:
        # It is reported with the file and position of the chosen replica.
        part = replace(lost, first_offset=missing.first_offset, end_offset=missing.end_offset)
        return _from_fallbacks(read, split, others, part, on_lost)

    if low >= high:
        yield from fill(lost)
        return
    if first < low:
        yield from fill(replace(lost, first_offset=first, end_offset=low))
    yield from _filled(partial(read, _narrowed(split, fallback, low, high)), fill)
    if high < end:
        yield from fill(replace(lost, first_offset=high, end_offset=end))


def _narrowed(split: Split, fallback: FallbackSegment, first_offset: int, end_offset: int) -> Split:
    """The part of a fallback segment that holds these offsets, as a split."""
    start_bytes, end_bytes = 0, fallback.end_bytes
    index = fallback.file.removesuffix(".log") + ".index" if fallback.file.endswith(".log") else None
    try:
        with OpenSegment(
            SegmentFile(fallback.base_offset, fallback.file, fallback.end_bytes, index)
        ) as opened:
            start_bytes = opened.search.at_or_before_offset(first_offset).position_bytes
            following = opened.search.at_or_after_offset(min(end_offset, INT64_MAX))
    except KlogError:
        following = None  # whoever reads it reports the error
    if following is not None:
        end_bytes = min(end_bytes, following.position_bytes)
    return replace(
        split,
        file=fallback.file,
        base_offset=fallback.base_offset,
        start_bytes=start_bytes,
        end_bytes=end_bytes,
        first_offset=first_offset,
        end_offset=end_offset,
        fallbacks=(),
    )
