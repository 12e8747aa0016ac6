"""Reads a split of a segment as Arrow record batches: the records of a consumer, in the columns of Spark's
source.

It reads chunks of batches, keeps those that are valid and belong to the split, decodes their records to
columns, and gathers these into Arrow. Damage becomes a `LostRange`, and reading continues after it. The
planner has already decided which offsets to read from where, and which transactions to leave out.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, BinaryIO, Final

from klog.export.columns import SplitColumns
from klog.export.options import ReadOptions
from klog.export.schema import arrow_schema
from klog.formats.checksums import Bytes
from klog.formats.errors import CorruptRecordError, KlogError, UsageError
from klog.replicas.fallbacks import read_with_fallbacks
from klog.replicas.files import open_input
from klog.replicas.lost_ranges import LostRangeReporter
from klog.replicas.splits import LostRange, Split
from klog.replicas.valid_batches import ValidBatches
from klog.storage.files.chunks import LARGEST_REUSED_BYTES
from klog.storage.reading.hidden_batches import HiddenBatches
from klog.storage.reading.reader import SegmentReader
from klog.storage.reading.select import Bounds, compact

if TYPE_CHECKING:
    import pyarrow as pa

OpenFile = Callable[[str], BinaryIO]
"""Opens a path or URI as a seekable stream of plain bytes. Raises `StorageError`, as the stream does."""

BATCH_BYTES: Final = 4 << 20
"""The approximate size of a record batch; a larger record gets a larger one."""

_MEASURED_BYTES: Final = BATCH_BYTES // 4
"""Bytes read between two measurements of what is gathered: one costs as much as a small batch."""


def read_split(
    split: Split,
    options: ReadOptions,
    *,
    columns: Sequence[str] | None = None,
    on_lost: Callable[[LostRange], None],
    on_repaired: Callable[[LostRange], None] = lambda _: None,
    on_position: Callable[[int], None] = lambda _: None,
    open_file: OpenFile = open_input,
) -> Iterator[pa.RecordBatch]:
    """Yield the records of `split` by offset, in batches of about `BATCH_BYTES`, none of them empty.

    `columns` selects and orders columns of `klog.export.schema.column_names(options)` (default: all). Control
    records are left out. Each range that cannot be read goes to `on_lost`; with `options.fail_on_data_loss`
    its `KlogError` is raised. If the split has fallbacks, damaged offsets are read from them, and the range
    goes to `on_repaired`. `on_position` receives the position in the segment up to which it
    was read. `open_file` opens the files of the split. Raises UsageError for an unknown column.
    """
    if columns is not None and not columns:
        raise UsageError("no columns to read", cure="name at least one: `offset` is the cheapest")
    if not split.fallbacks:
        done_bytes = 0
        for part in split.of_each_file():
            yield from _read(
                part, options, columns, on_lost, partial(_advance, on_position, done_bytes), open_file
            )
            done_bytes += part.length_bytes
        return
    tolerant = replace(options, fail_on_data_loss=False)
    wanted = arrow_schema(options, columns).names
    read = wanted if "offset" in wanted else [*wanted, "offset"]
    for batch in read_with_fallbacks(
        lambda part, on_part_lost: _read(
            part,
            tolerant,
            read,
            on_part_lost,
            on_position if part.file == split.file else _ignored,
            open_file,
        ),
        split,
        on_lost,
        on_repaired,
        fail=options.fail_on_data_loss,
    ):
        yield batch if read == wanted else batch.select(wanted)


def _ignored(_position_bytes: int) -> None:
    pass


def _advance(on_position: Callable[[int], None], done_bytes: int, position_bytes: int) -> None:
    on_position(done_bytes + position_bytes)


def _read(
    split: Split,
    options: ReadOptions,
    columns: Sequence[str] | None,
    on_lost: Callable[[LostRange], None],
    on_position: Callable[[int], None],
    open_file: OpenFile,
) -> Iterator[pa.RecordBatch]:
    """Yield the records of the split, without its fallbacks."""
    wanted = arrow_schema(options, columns)
    lost_ranges = LostRangeReporter(split, on_lost, fail=options.fail_on_data_loss)
    by_time = options.since_ms is not None or options.until_ms is not None
    names = [*wanted.names, *(name for name in ("timestamp",) if by_time and name not in wanted.names)]
    try:
        file = open_file(split.file)
    except KlogError as error:
        lost_ranges.open(split.start_bytes, error)
        lost_ranges.finish(None)
        return
    with closing(file):
        out = SplitColumns(arrow_schema(options, names), split.topic, split.partition, split.file)
        for batch in _SplitReader(split, options, file, lost_ranges).batches(out, on_position):
            rows = (
                _within(batch, options.since_ms, options.until_ms).select(wanted.names) if by_time else batch
            )
            if rows.num_rows:
                yield rows


def _within(batch: pa.RecordBatch, since_ms: int | None, until_ms: int | None) -> pa.RecordBatch:
    """The rows with a timestamp within the bounds."""
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
    """Microseconds, limited to 64 bits."""
    return max(-(2**63), min(time_ms * 1000, 2**63 - 1))


class _SplitReader:
    """One pass over a split: decides which batches and records to take."""

    def __init__(
        self, split: Split, options: ReadOptions, file: BinaryIO, lost_ranges: LostRangeReporter
    ) -> None:
        self._split = split
        self._lost_ranges = lost_ranges
        self._hidden = HiddenBatches(split.aborted)
        self._bounds = Bounds(split.first_offset, split.end_offset - 1, options.since_ms)
        self._offsets = Bounds(split.first_offset, split.end_offset - 1)
        self._reader = SegmentReader(
            file,
            split.file,
            split.base_offset,
            verify=False,
            on_problem=self._report_batch,
            max_decompressed_bytes=options.max_decompressed_bytes,
        )
        self._valid_batches = ValidBatches(
            split, file, self._reader.batches, lost_ranges, options.max_decompressed_bytes
        )
        self._unmeasured_bytes = 0

    def batches(self, out: SplitColumns, on_position: Callable[[int], None]) -> Iterator[pa.RecordBatch]:
        """Yield all records of the split, gathered by `out`."""
        table = self._reader.batches
        for data in self._valid_batches.chunks():
            on_position(table.origin + table.consumed_bytes)
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
        """Add the records of the current run; yields batches that are full."""
        batches, records = self._reader.batches, self._reader.records
        first = 0
        while first < len(records):
            last = self._fitting(payload, first)
            if records.record_size[first] > max(LARGEST_REUSED_BYTES, len(payload) // 2):
                # It is not copied: most of its buffer is the record itself.
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
        """The row before which the records from `first` on fill a batch of the usual size, or one record."""
        records = self._reader.records
        if len(payload) <= 2 * BATCH_BYTES:
            return len(records)
        end_bytes = records.key_start[first] + BATCH_BYTES
        last = max(bisect_left(records.value_start, end_bytes, first), first + 1)
        # A large last record gets a batch of its own.
        return last - 1 if last - first > 1 and records.record_size[last - 1] > LARGEST_REUSED_BYTES else last

    def _drop_unwanted(self) -> bool:
        """Drop the batches without records of the split.

        Returns whether the other batches have records that do not belong to the split.
        """
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
        """Drop messages of magic 0 and 1 that fail their own checksum, inside a set whose checksum
        matches."""
        records, table = self._reader.records, self._reader.batches
        if 0 not in records.valid:
            return
        kept: list[int] = []
        for valid, rows in groupby(range(len(records)), records.valid.__getitem__):
            run = list(rows)
            if valid:
                kept += run
                continue
            start = table.position[records.batch[run[0]]]
            end = start + table.size[records.batch[run[0]]]
            problem = CorruptRecordError("messages inside a compressed set fail their checksums")
            first, last = records.offset[run[0]], records.offset[run[-1]]
            self._lost_ranges.report(problem, start, end, first, last + 1)
        compact(records, kept)

    def _report_batch(self, problem: KlogError) -> None:
        """Report the records of a valid batch that do not decode, some or all of them."""
        table, records = self._reader.batches, self._reader.records
        row = bisect_left(table.position, problem.position_bytes or 0)
        decoded = len(records) > 0 and records.batch[-1] == row
        first = records.offset[-1] + 1 if decoded else table.base_offset[row]
        start = table.position[row]
        self._lost_ranges.report(problem, start, start + table.size[row], first, table.last_offset[row] + 1)
