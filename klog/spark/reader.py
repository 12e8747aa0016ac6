"""A split of a segment as Arrow record batches: what a consumer would get, in the columns of Spark's source.

The way: chunks of batch headers, of which the sound and wanted ones stay; their records decoded as columns;
those gathered into Arrow. What is damaged becomes a `LostRange` and all behind it is read. Where things are,
which records are wanted and what read_committed drops was decided by the planner.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, BinaryIO, Final

from klog.formats import kernel
from klog.formats.checksums import Bytes
from klog.formats.columns import OFFSET_UNKNOWN
from klog.formats.errors import CorruptRecordError, KlogError, UsageError
from klog.spark.columns import SplitColumns
from klog.spark.files import open_input
from klog.spark.isolation import HiddenBatches
from klog.spark.losses import Losses
from klog.spark.options import ReadOptions
from klog.spark.schema import arrow_schema
from klog.spark.splits import LostRange, Split
from klog.storage.chunks import chunks
from klog.storage.reader import SegmentReader, tail_problem
from klog.storage.select import Bounds, compact

if TYPE_CHECKING:
    import pyarrow as pa

BATCH_BYTES: Final = 4 << 20
"""Of gathered columns, about; what one record needs beyond it, it gets."""


def read_split(
    split: Split,
    options: ReadOptions,
    *,
    columns: Sequence[str] | None = None,
    on_lost: Callable[[LostRange], None],
) -> Iterator[pa.RecordBatch]:
    """The records of `split` in the order of the log, as batches of about `BATCH_BYTES`, none empty.

    `columns` are those wanted of `klog.spark.schema.column_names(options)`, in the order wanted (default:
    all). Control records never come. What cannot be read is told to `on_lost`, once for each stretch; with
    `options.fail_on_data_loss` it is raised as the `KlogError` that it is. Raises UsageError for an unknown
    column.
    """
    if columns is not None and not columns:
        raise UsageError("no columns to read", cure="name at least one: `offset` is the cheapest")
    schema = arrow_schema(options, columns)
    losses = Losses(split, on_lost, fail=options.fail_on_data_loss)
    try:
        file = open_input(split.file)
    except KlogError as error:
        losses.report(error, split.start_bytes, split.end_bytes, split.first_offset, split.end_offset)
        return
    with closing(file):
        out = SplitColumns(schema, split.topic, split.partition, split.file)
        yield from _SplitReader(split, options, file, losses).batches(out)


class _SplitReader:
    """One pass over the batches of a split."""

    def __init__(self, split: Split, options: ReadOptions, file: BinaryIO, losses: Losses) -> None:
        self._split = split
        self._file = file
        self._losses = losses
        self._hidden = HiddenBatches(split.aborted)
        self._bounds = Bounds(split.first_offset, split.end_offset - 1, options.since_ms, options.until_ms)
        self._limit_bytes = options.max_decompressed_bytes
        self._reader = SegmentReader(
            file,
            split.file,
            split.base_offset,
            verify=False,
            on_problem=self._lose_batch,
            max_decompressed_bytes=options.max_decompressed_bytes,
        )

    def batches(self, out: SplitColumns) -> Iterator[pa.RecordBatch]:
        """Everything, gathered by `out`."""
        records = self._reader.records
        for data in self._sound():
            cut = self._drop_unwanted()
            for payload in self._reader.decode(data):
                self._drop_damaged()
                if cut:
                    self._bounds.keep(records)
                first = 0
                while first < len(records):
                    last = self._fitting(payload, first)
                    out.append(payload, self._reader.batches, records, first, last)
                    first = last
                    if out.nbytes >= BATCH_BYTES:
                        yield out.finish()
        if out.rows:
            yield out.finish()

    def _fitting(self, payload: Bytes, first: int) -> int:
        """The row up to which the records from `first` on make a batch of the usual size, or one record."""
        records = self._reader.records
        if len(payload) <= 2 * BATCH_BYTES:
            return len(records)
        end_bytes = records.key_start[first] + BATCH_BYTES
        return max(bisect_left(records.value_start, end_bytes, first), first + 1)

    def _sound(self) -> Iterator[memoryview]:
        """Chunks of the split's batches, of which only the sound ones stay in the reader's table."""
        split, table = self._split, self._reader.batches
        rest: Bytes = b""
        try:
            for data in chunks(
                self._file, table, start_bytes=split.start_bytes, starts_before_bytes=split.end_bytes
            ):
                self._drop_unsound(data)
                rest = data[table.consumed_bytes :]
                yield data
        except KlogError as error:
            self._lose_rest(error, table.origin + table.consumed_bytes)
            return
        position = table.origin + table.consumed_bytes
        if position < split.end_bytes and any(rest):
            problem = tail_problem(table, rest)
            if problem is not None:
                self._lose_rest(problem, position)
        else:
            self._losses.close(position, split.end_offset)

    def _drop_unsound(self, data: Bytes) -> None:
        table, losses = self._reader.batches, self._losses
        kernel.verify(data, table)
        sound = []
        for row, valid in enumerate(table.valid):
            if table.position[row] >= self._split.end_bytes:
                break
            if not valid:
                what = (
                    f"batch fails its checksum (stored {table.crc[row]}, computed {table.computed_crc[row]})"
                )
                losses.open(table.position[row], CorruptRecordError(what))
                continue
            base = table.base_offset[row]
            losses.close(table.position[row], losses.next_offset if base == OFFSET_UNKNOWN else base)
            losses.next_offset = table.last_offset[row] + 1
            sound.append(row)
        if len(sound) < len(table):
            compact(table, sound)

    def _drop_unwanted(self) -> bool:
        """Drop the batches without wanted records; whether any of the others has some that are not wanted."""
        table, bounds = self._reader.batches, self._bounds
        hidden = set(self._hidden.hidden(table))
        wanted = [row for row in range(len(table)) if row not in hidden and bounds.may_hold(table, row)]
        if len(wanted) < len(table):
            compact(table, wanted)
        if not wanted:
            return False
        if bounds.since_ms is not None or bounds.until_ms is not None:
            return True
        return (
            min(table.base_offset) < self._split.first_offset
            or max(table.last_offset) >= self._split.end_offset
        )

    def _drop_damaged(self) -> None:
        """Drop messages of magic 0 and 1 inside a sound set that fail their own checksum."""
        records, table = self._reader.records, self._reader.batches
        if 0 not in records.valid:
            return
        sound = []
        for row, valid in enumerate(records.valid):
            if valid:
                sound.append(row)
                continue
            start = table.position[records.batch[row]]
            end = start + table.size[records.batch[row]]
            problem = CorruptRecordError("message inside a compressed set fails its checksum")
            self._losses.report(problem, start, end, records.offset[row], records.offset[row] + 1)
        compact(records, sound)

    def _lose_batch(self, problem: KlogError) -> None:
        """A sound batch's records do not decode, or not all of them."""
        table, records = self._reader.batches, self._reader.records
        row = bisect_left(table.position, problem.position_bytes or 0)
        first = table.base_offset[row]
        if len(records) and records.batch[-1] == row:
            first = records.offset[-1] + 1
        elif first == OFFSET_UNKNOWN:
            first = table.last_offset[row - 1] + 1 if row else self._split.base_offset
        start = table.position[row]
        self._losses.report(problem, start, start + table.size[row], first, table.last_offset[row] + 1)

    def _lose_rest(self, problem: KlogError, position_bytes: int) -> None:
        self._losses.open(position_bytes, problem)
        self._losses.close(self._split.end_bytes, self._split.end_offset)
