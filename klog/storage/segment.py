"""A segment as a value of the library: open it by path, iterate its batches or records, or get Arrow.

Everything is read lazily and in one pass, through `klog.storage.reader`; offset and time bounds go through
the segment's indexes. A segment holds no open file: each iteration opens it and closes it at its end, so a
segment can be read by several threads, and a file that grows is read as it is then.
"""

from __future__ import annotations

import io
import os
import warnings
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, BinaryIO

from klog.formats import kernel
from klog.formats.checksums import Bytes
from klog.formats.columns import BatchTable, RecordTable
from klog.formats.compression import DEFAULT_LIMIT_BYTES
from klog.formats.errors import KlogError, StorageError
from klog.storage.files import open_for_reading, read_exactly, size_bytes
from klog.storage.reader import OnProblem, SegmentReader, raise_problem
from klog.storage.select import Bounds
from klog.storage.values import Batch, Header, Record, batch_of_row
from klog.storage.walk import identify

if TYPE_CHECKING:
    import pyarrow as pa


class DamagedDataWarning(UserWarning):
    """Something in a file could not be read and was passed over; the message says what and where."""


def warn_of_problem(problem: KlogError) -> None:
    """The `on_problem` of readers that were given none: nothing is passed over in silence."""
    warnings.warn(str(problem), DamagedDataWarning, stacklevel=3)


def problem_handler(on_problem: OnProblem | None, strict: bool) -> OnProblem:
    """What reading does about problems: raise them (`strict`), tell `on_problem`, or warn."""
    if strict:
        return raise_problem
    return warn_of_problem if on_problem is None else on_problem


class Segment:
    """One `.log` file, or a gzipped copy of one. Opening it reads nothing yet.

    `base_offset`, `topic` and `partition` come from the names of the file and its directory (None where
    those say nothing). All reading methods take `on_problem`, called with each `KlogError` that was met and
    read past, or `strict=True` to have the first one raised; with neither, problems become
    `DamagedDataWarning`s.
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
            pass  # whoever opens a segment wants to hear at once that it cannot be read

    def __repr__(self) -> str:
        return f"<Segment {self.path}>"

    @property
    def size_bytes(self) -> int:
        """Bytes of the file now (of a gzipped copy: compressed). Raises `StorageError`."""
        return size_bytes(self.path)

    def batches(
        self,
        *,
        start_offset: int | None = None,
        end_offset: int | None = None,
        since_ms: int | None = None,
        on_problem: OnProblem | None = None,
        strict: bool = False,
    ) -> Iterator[Batch]:
        """The batches in file order, by their headers alone: no record is decoded, no checksum computed.

        Restricted to those that may hold offsets from `start_offset` to before `end_offset`, or timestamps
        from `since_ms` (ms since the epoch) on. Raises `StorageError`, and with `strict` any `KlogError`.
        """
        bounds = _bounds(start_offset, end_offset, since_ms, None)
        on_problem = problem_handler(on_problem, strict)
        with open_for_reading(self.path) as file:
            reader = self.reader(file, bounds=bounds, verify=False, on_problem=on_problem)
            for _ in reader.chunks():
                for row in range(len(reader.batches)):
                    if bounds.may_hold(reader.batches, row):
                        yield self._batch(reader.batches, row)

    def records(
        self,
        *,
        start_offset: int | None = None,
        end_offset: int | None = None,
        since_ms: int | None = None,
        until_ms: int | None = None,
        verify: bool = True,
        on_problem: OnProblem | None = None,
        strict: bool = False,
    ) -> Iterator[Record]:
        """The records in file order, control records included.

        `start_offset` and `since_ms` are inclusive, `end_offset` and `until_ms` exclusive (ms since the
        epoch). `verify` checks checksums and the order of offsets. Raises `StorageError`, and with `strict`
        any `KlogError`.
        """
        bounds = _bounds(start_offset, end_offset, since_ms, until_ms)
        on_problem = problem_handler(on_problem, strict)
        with open_for_reading(self.path) as file:
            reader = self.reader(file, bounds=bounds, verify=verify, on_problem=on_problem)
            for payload in reader.runs():
                yield from self._values(payload, reader.batches, reader.records)

    def arrow_batches(
        self,
        columns: Sequence[str] | None = None,
        *,
        start_offset: int | None = None,
        end_offset: int | None = None,
        since_ms: int | None = None,
        until_ms: int | None = None,
        verify: bool = True,
        on_problem: OnProblem | None = None,
        strict: bool = False,
    ) -> Iterator[pa.RecordBatch]:
        """The records as Arrow record batches of about 1 MiB; `columns` as in `klog.formats.arrow.COLUMNS`.

        The other arguments are those of `records`. Raises `UsageError` for an unknown column.
        """
        from klog.formats.arrow import ARROW_BATCH_BYTES, DEFAULT_COLUMNS, ArrowBuilder

        builder = ArrowBuilder(DEFAULT_COLUMNS if columns is None else columns)
        bounds = _bounds(start_offset, end_offset, since_ms, until_ms)
        on_problem = problem_handler(on_problem, strict)
        with open_for_reading(self.path) as file:
            reader = self.reader(file, bounds=bounds, verify=verify, on_problem=on_problem)
            decoded = ((payload, reader.batches, reader.records) for payload in reader.runs())
            yield from builder.batches_of(decoded, ARROW_BATCH_BYTES)

    def to_arrow(
        self,
        columns: Sequence[str] | None = None,
        *,
        start_offset: int | None = None,
        end_offset: int | None = None,
        since_ms: int | None = None,
        until_ms: int | None = None,
        verify: bool = True,
        on_problem: OnProblem | None = None,
        strict: bool = False,
    ) -> pa.Table:
        """All records (within the bounds) as one Arrow table; arguments as of `arrow_batches`."""
        import pyarrow as pa

        from klog.formats.arrow import DEFAULT_COLUMNS, schema

        batches = self.arrow_batches(
            columns,
            start_offset=start_offset,
            end_offset=end_offset,
            since_ms=since_ms,
            until_ms=until_ms,
            verify=verify,
            on_problem=on_problem,
            strict=strict,
        )
        return pa.Table.from_batches(batches, schema(DEFAULT_COLUMNS if columns is None else columns))

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
                _span(view, records.key_start[row], records.key_size[row]),
                _span(view, records.value_start[row], records.value_size[row]),
                headers,
                records.record_size[row],
                batch,
            )

    def _read_batch(self, batch: Batch) -> tuple[bytes, BatchTable]:
        """The bytes of one batch, read again, and its header."""
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


def _bounds(
    start_offset: int | None, end_offset: int | None, since_ms: int | None, until_ms: int | None
) -> Bounds:
    return Bounds(start_offset, None if end_offset is None else end_offset - 1, since_ms, until_ms)


def _span(view: memoryview, start: int, size: int) -> bytes | None:
    return None if size < 0 else bytes(view[start : start + size])
