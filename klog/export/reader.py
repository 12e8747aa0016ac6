"""A split of a segment as Arrow record batches: what a consumer would get, in the columns of Spark's source.

The way: chunks of batch headers, of which the sound and wanted ones stay; their records decoded as columns;
those gathered into Arrow. What is damaged becomes a `LostRange` and all behind it is read. Where things are,
which records are wanted and what read_committed drops was decided by the planner.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING, BinaryIO, Final

from klog.export.columns import SplitColumns
from klog.export.fallbacks import read_with_fallbacks
from klog.export.files import open_input
from klog.export.hidden_batches import HiddenBatches
from klog.export.lost_ranges import LostRangeReporter
from klog.export.options import ReadOptions
from klog.export.schema import arrow_schema
from klog.export.splits import LostRange, Split
from klog.export.valid_batches import ValidBatches
from klog.formats.checksums import Bytes
from klog.formats.errors import CorruptRecordError, KlogError, UsageError
from klog.storage.chunks import LARGEST_REUSED_BYTES
from klog.storage.reader import SegmentReader
from klog.storage.select import Bounds, compact

if TYPE_CHECKING:
    import pyarrow as pa

BATCH_BYTES: Final = 4 << 20
"""Of gathered columns, about; what one record needs beyond it, it gets."""

_MEASURED_BYTES: Final = BATCH_BYTES // 4
"""Read between two looks at how much is gathered: a look costs as much as a small batch."""


def read_split(
    split: Split,
    options: ReadOptions,
    *,
    columns: Sequence[str] | None = None,
    on_lost: Callable[[LostRange], None],
    on_repaired: Callable[[LostRange], None] = lambda _: None,
) -> Iterator[pa.RecordBatch]:
    """The records of `split` in the order of the log, as batches of about `BATCH_BYTES`, none empty.

    `columns` are those wanted of `klog.export.schema.column_names(options)`, in the order wanted (default:
    all). Control records never come. What cannot be read is told to `on_lost`, once for each stretch; with
    `options.fail_on_data_loss` it is raised as the `KlogError` that it is. Raises UsageError for an unknown
    column. What is damaged comes from the split's fallbacks, where it has some, behind all the rest, and is
    told to `on_repaired`.
    """
    if columns is not None and not columns:
        raise UsageError("no columns to read", cure="name at least one: `offset` is the cheapest")
    if not split.fallbacks:
        yield from _read(split, options, columns, on_lost)
        return
    tolerant = replace(options, fail_on_data_loss=False)
    yield from read_with_fallbacks(
        lambda part, on_part_lost: _read(part, tolerant, columns, on_part_lost),
        split,
        on_lost,
        on_repaired,
        fail=options.fail_on_data_loss,
    )


def _read(
    split: Split, options: ReadOptions, columns: Sequence[str] | None, on_lost: Callable[[LostRange], None]
) -> Iterator[pa.RecordBatch]:
    """The split, without its fallbacks."""
    wanted = arrow_schema(options, columns)
    losses = LostRangeReporter(split, on_lost, fail=options.fail_on_data_loss)
    by_time = options.since_ms is not None or options.until_ms is not None
    names = [*wanted.names, *(name for name in ("timestamp",) if by_time and name not in wanted.names)]
    try:
        file = open_input(split.file)
    except KlogError as error:
        losses.open(split.start_bytes, error)
        losses.finish(None)
        return
    with closing(file):
        out = SplitColumns(arrow_schema(options, names), split.topic, split.partition, split.file)
        for batch in _SplitReader(split, options, file, losses).batches(out):
            rows = (
                _within(batch, options.since_ms, options.until_ms).select(wanted.names) if by_time else batch
            )
            if rows.num_rows:
                yield rows


def _within(batch: pa.RecordBatch, since_ms: int | None, until_ms: int | None) -> pa.RecordBatch:
    """The rows whose timestamp is in the bounds; none without a timestamp."""
    import pyarrow as pa
    import pyarrow.compute as pc

    times_us = batch.column("timestamp").cast(pa.int64())
    rows = pc.is_valid(times_us)
    if since_ms is not None:
        rows = pc.and_(rows, pc.greater_equal(times_us, _micros(since_ms)))
    if until_ms is not None:
        rows = pc.and_(rows, pc.less(times_us, _micros(until_ms)))
    return batch.filter(rows)


def _micros(time_ms: int) -> int:
    """Microseconds, as far as 64 bits go."""
    return max(-(2**63), min(time_ms * 1000, 2**63 - 1))


class _SplitReader:
    """One pass over a split: which of its batches and records are taken."""

    def __init__(self, split: Split, options: ReadOptions, file: BinaryIO, losses: LostRangeReporter) -> None:
        self._split = split
        self._losses = losses
        self._hidden = HiddenBatches(split.aborted)
        self._bounds = Bounds(split.first_offset, split.end_offset - 1, options.since_ms)
        self._offsets = Bounds(split.first_offset, split.end_offset - 1)
        self._reader = SegmentReader(
            file,
            split.file,
            split.base_offset,
            verify=False,
            on_problem=self._lose_batch,
            max_decompressed_bytes=options.max_decompressed_bytes,
        )
        self._sound = ValidBatches(split, file, self._reader.batches, losses, options.max_decompressed_bytes)
        self._unmeasured_bytes = 0

    def batches(self, out: SplitColumns) -> Iterator[pa.RecordBatch]:
        """All wanted records, gathered by `out`."""
        for data in self._sound.chunks():
            cut = self._drop_unwanted()
            for payload in self._reader.decode(data):
                self._drop_damaged()
                if cut:
                    self._offsets.keep(self._reader.records)
                yield from self._gathered(payload, out)
                del payload  # a large one must not outlive its batch: the next may be as large
            del data
        if out.rows:
            yield out.finish()

    def _gathered(self, payload: Bytes, out: SplitColumns) -> Iterator[pa.RecordBatch]:
        """Take the records of the run at hand in; yields what is full by that."""
        batches, records = self._reader.batches, self._reader.records
        first = 0
        while first < len(records):
            last = self._fitting(payload, first)
            if records.record_size[first] > max(LARGEST_REUSED_BYTES, len(payload) // 2):
                # Not copied: what it lies in is mostly the record itself.
                if out.rows:
                    yield out.finish()
                yield out.alone(payload, batches, records, first)
            else:
                out.append(payload, batches, records, first, last)
                self._unmeasured_bytes += len(payload)
                if self._unmeasured_bytes >= _MEASURED_BYTES:
                    self._unmeasured_bytes = 0
                    if out.nbytes >= BATCH_BYTES:
                        yield out.finish()
            first = last

    def _fitting(self, payload: Bytes, first: int) -> int:
        """The row up to which the records from `first` on make a batch of the usual size, or one record."""
        records = self._reader.records
        if len(payload) <= 2 * BATCH_BYTES:
            return len(records)
        end_bytes = records.key_start[first] + BATCH_BYTES
        last = max(bisect_left(records.value_start, end_bytes, first), first + 1)
        # A large record at the end is for itself.
        return last - 1 if last - first > 1 and records.record_size[last - 1] > LARGEST_REUSED_BYTES else last

    def _drop_unwanted(self) -> bool:
        """Drop the batches without wanted records; whether any of the others has some that are not wanted."""
        table, split = self._reader.batches, self._split
        hidden = self._hidden.rows(table)
        low, high = table.base_offset[0], table.last_offset[-1]
        cut = low < split.first_offset or high >= split.end_offset
        if hidden or cut or self._bounds.since_ms is not None:
            wanted = [
                row for row in range(len(table)) if row not in hidden and self._bounds.may_hold(table, row)
            ]
            compact(table, wanted)
        return cut

    def _drop_damaged(self) -> None:
        """Drop messages of magic 0 and 1 inside a sound set that fail their own checksum."""
        records, table = self._reader.records, self._reader.batches
        if 0 not in records.valid:
            return
        sound = []
        for valid, rows in groupby(range(len(records)), records.valid.__getitem__):
            stretch = list(rows)
            if valid:
                sound += stretch
                continue
            start = table.position[records.batch[stretch[0]]]
            end = start + table.size[records.batch[stretch[0]]]
            problem = CorruptRecordError("messages inside a compressed set fail their checksums")
            first, last = records.offset[stretch[0]], records.offset[stretch[-1]]
            self._losses.report(problem, start, end, first, last + 1)
        compact(records, sound)

    def _lose_batch(self, problem: KlogError) -> None:
        """The records of a sound batch do not decode, or not all of them."""
        table, records = self._reader.batches, self._reader.records
        row = bisect_left(table.position, problem.position_bytes or 0)
        decoded = len(records) > 0 and records.batch[-1] == row
        first = records.offset[-1] + 1 if decoded else table.base_offset[row]
        start = table.position[row]
        self._losses.report(problem, start, start + table.size[row], first, table.last_offset[row] + 1)
