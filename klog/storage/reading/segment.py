"""A segment as a value of the library: open it by path, then iterate its batches or records, or get Arrow.

Reading is lazy and takes one pass, through `klog.storage.reading.reader`. Offset and time bounds use the
indexes of the segment. A segment holds no open file: each iteration opens the file and closes it at its end.
So several threads can read one segment, and an iteration reads what the file holds at that time.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, BinaryIO, Unpack

from klog.formats.checksums import Bytes
from klog.formats.compression import DEFAULT_LIMIT_BYTES
from klog.formats.errors import StorageError
from klog.kernel import kernel
from klog.kernel.columns import BatchTable, RecordTable
from klog.storage.files.files import open_for_reading, read_exactly, size_bytes
from klog.storage.files.kafka_files import files_of, identify
from klog.storage.reading.read_bounds import BatchKeywords, ReadBounds, RecordKeywords, read_bounds
from klog.storage.reading.reader import OnProblem, SegmentReader, raise_problem
from klog.storage.reading.select import Bounds, compact
from klog.storage.reading.transactions import without_uncommitted
from klog.storage.reading.values import Batch, Header, Record, batch_of_row

if TYPE_CHECKING:
    import pyarrow as pa

    from klog.kernel.arrow import ArrowBuilder


class Segment:
    """One `.log` file, or a gzipped copy of one.

    `base_offset`, `topic` and `partition` come from the names of the file and its directory; they are None if
    the names do not say them. Raises `StorageError` if the file cannot be opened.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, max_decompressed_bytes: int = DEFAULT_LIMIT_BYTES
    ) -> None:
        self.path = os.fspath(path)
        self.max_decompressed_bytes = max_decompressed_bytes
        known = identify(self.path)
        self.base_offset = None if known is None else known.base_offset
        self.topic = None if known is None else known.topic
        self.partition = None if known is None else known.partition
        with open_for_reading(self.path):
            pass  # a file that cannot be read is reported now, not at the first iteration

    def __repr__(self) -> str:
        return f"<Segment {self.path}>"

    @property
    def size_bytes(self) -> int:
        """Bytes of the file now; of a gzipped copy, its compressed bytes. Raises `StorageError`."""
        return size_bytes(self.path)

    def batches(self, **keywords: Unpack[BatchKeywords]) -> Iterator[Batch]:
        """The batches in file order, from their headers: records are not decoded, checksums not computed.

        `BatchKeywords` describes the keywords. Raises `StorageError`; with `strict` any `KlogError`.
        """
        return self._batches(read_bounds(**keywords, verify=False))

    def records(self, **keywords: Unpack[RecordKeywords]) -> Iterator[Record]:
        """The records in file order, without control records unless they are asked for.

        `RecordKeywords` describes the keywords. read_committed reads the other segments of the partition,
        too. Raises `StorageError`; with `strict` any `KlogError`.
        """
        return self.records_within(read_bounds(**keywords))

    def arrow_batches(
        self, columns: Sequence[str] | None = None, **keywords: Unpack[RecordKeywords]
    ) -> Iterator[pa.RecordBatch]:
        """The records as Arrow record batches of about 1 MiB; `columns` as in `klog.kernel.arrow.COLUMNS`.

        The keywords are those of `records`. Raises `UsageError` for an unknown column, and without pyarrow.
        """
        return self.arrow_batches_within(new_builder(columns), read_bounds(**keywords))

    def to_arrow(self, columns: Sequence[str] | None = None, **keywords: Unpack[RecordKeywords]) -> pa.Table:
        """All records within the bounds as one Arrow table; arguments as of `arrow_batches`."""
        from klog.kernel.arrow import table_of

        return table_of(self.arrow_batches(columns, **keywords), columns)

    def reader(self, file: BinaryIO, *, bounds: Bounds, verify: bool, on_problem: OnProblem) -> SegmentReader:
        """One pass over the opened segment, by columns."""
        return SegmentReader(
            file,
            self.path,
            self.base_offset,
            bounds=bounds,
            verify=verify,
            on_problem=on_problem,
            max_decompressed_bytes=self.max_decompressed_bytes,
        )

    def _reader(self, file: BinaryIO, wanted: ReadBounds) -> SegmentReader:
        return self.reader(file, bounds=wanted.bounds, verify=wanted.verify, on_problem=wanted.on_problem)

    def _batches(self, wanted: ReadBounds) -> Iterator[Batch]:
        with open_for_reading(self.path) as file:
            reader = self._reader(file, wanted)
            for _ in reader.chunks():
                for row in range(len(reader.batches)):
                    if wanted.bounds.may_hold(reader.batches, row):
                        yield self._batch(reader.batches, row)

    def records_within(self, wanted: ReadBounds) -> Iterator[Record]:
        """The records that `wanted` describes."""
        wanted = self._with_transactions(wanted)
        with open_for_reading(self.path) as file:
            reader = self._reader(file, wanted)
            for payload in _visible_runs(reader, wanted):
                yield from self._values(payload, reader.batches, reader.records)

    def arrow_batches_within(self, builder: ArrowBuilder, wanted: ReadBounds) -> Iterator[pa.RecordBatch]:
        """The records that `wanted` describes, gathered by `builder`."""
        from klog.kernel.arrow import ARROW_BATCH_BYTES

        wanted = self._with_transactions(wanted)
        with open_for_reading(self.path) as file:
            reader = self._reader(file, wanted)
            decoded = ((payload, reader.batches, reader.records) for payload in _visible_runs(reader, wanted))
            yield from builder.batches_of(decoded, ARROW_BATCH_BYTES)

    def _with_transactions(self, wanted: ReadBounds) -> ReadBounds:
        if not wanted.committed:
            return wanted
        itself = identify(self.path)
        files = [] if itself is None else [itself]
        if self.base_offset is not None:
            files = files_of(os.path.dirname(self.path) or ".")
        name = os.path.basename(self.path)
        return without_uncommitted(
            wanted, files, self.base_offset, lambda file, _: os.path.basename(file.path) == name
        )

    def _batch(self, table: BatchTable, row: int) -> Batch:
        return batch_of_row(self.path, table, row, self._checks, self._decode)

    def _values(self, payload: Bytes, batches: BatchTable, records: RecordTable) -> Iterator[Record]:
        view = memoryview(payload)
        known_row = -1
        batch: Batch
        for row in range(len(records)):
            if records.batch[row] != known_row:
                known_row = records.batch[row]
                batch = self._batch(batches, known_row)
            headers: tuple[Header, ...] = ()
            if records.header_count[row]:
                found = kernel.headers(view, records.headers_start[row], records.header_count[row])
                headers = tuple(Header(key.decode("utf-8", "surrogateescape"), value) for key, value in found)
            yield Record(
                records.offset[row],
                records.timestamp[row],
                records.key(row, view),
                records.value(row, view),
                headers,
                records.record_size[row],
                batch,
            )

    def _read_batch(self, batch: Batch) -> tuple[bytes, BatchTable]:
        """The bytes and the header of one batch, read again."""
        table = BatchTable()
        with open_for_reading(self.path) as file:
            file.seek(batch.position_bytes)
            data = read_exactly(file, batch.size_bytes)
        kernel.scan(data, batch.position_bytes, True, table)
        if not len(table):
            raise StorageError(
                "the batch is no longer there", file=self.path, position_bytes=batch.position_bytes
            )
        return data, table

    def _checks(self, batch: Batch) -> bool:
        data, table = self._read_batch(batch)
        return kernel.verify(data, table) == 0

    def _decode(self, batch: Batch) -> Iterator[Record]:
        data, table = self._read_batch(batch)
        with io.BytesIO(data) as file:
            reader = self.reader(file, bounds=Bounds(), verify=False, on_problem=raise_problem)
            reader.batches = table
            for payload in reader.decode(data):
                yield from self._values(payload, table, reader.records)


def new_builder(columns: Sequence[str] | None) -> ArrowBuilder:
    """A builder of Arrow record batches; None stands for the default columns."""
    from klog.kernel.arrow import DEFAULT_COLUMNS, ArrowBuilder

    return ArrowBuilder(DEFAULT_COLUMNS if columns is None else columns)


def _visible_runs(reader: SegmentReader, wanted: ReadBounds) -> Iterator[Bytes]:
    """The runs of the reader, of batches that are not hidden."""
    for data in reader.chunks():
        if hidden := wanted.hidden.rows(reader.batches):
            compact(reader.batches, [row for row in range(len(reader.batches)) if row not in hidden])
        yield from reader.decode(data)
