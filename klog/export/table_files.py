"""Writes the files of one split: one file, or one for each day; none for a split without rows.

Each row goes to the file of its directory. A file that has the target size is closed, and another one
follows. Memory is bounded over all files of the split: if the rows held exceed a limit, the file with the
most rows encodes them early. If too many files are open, the least recently used one is closed, and later
rows of its directory go to another file.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, Self

from klog.export.layout import PartitionBy, directory, file_stem, reject_directory
from klog.export.outputs import Output, PendingFile, WrittenFile, writing
from klog.export.tables import Table
from klog.export.writers import ROW_GROUP_BYTES, Format, RowWriter, row_writer, suffix
from klog.formats.errors import StorageError
from klog.replicas.splits import Split

if TYPE_CHECKING:
    import pyarrow as pa

_OPEN_FILES: Final = 32
_HELD_BYTES: Final = 2 * ROW_GROUP_BYTES
_FIRST_DAY: Final = -719_162
"""0001-01-01 in days since the epoch; Spark does not take the name of an earlier day for a date."""
_LAST_DAY: Final = 2_932_896
"""9999-12-31."""


class TableFile:
    """A file that is being written, until `commit`. It is created with its first rows."""

    def __init__(
        self, output: Output, wanted: Format, compression: str, target_bytes: int | None = None
    ) -> None:
        self._output = output
        self._format, self._compression = wanted, compression
        self._target_bytes = target_bytes
        self._pending: PendingFile | None = None
        self._writer: RowWriter | None = None
        self.rows = 0
        self.first_offset = self.last_offset = 0

    @property
    def held_bytes(self) -> int:
        """Rows taken and not yet encoded."""
        return 0 if self._writer is None else self._writer.held_bytes

    @property
    def is_full(self) -> bool:
        """Whether it has the target size."""
        written_bytes = 0 if self._pending is None else self._pending.sink.size_bytes
        return self._target_bytes is not None and written_bytes >= self._target_bytes

    def write(self, rows: pa.RecordBatch, offsets: pa.Array) -> None:
        """Write rows with these offsets. Raises `StorageError`."""
        with writing(self._output.root):
            if self._writer is None:
                self._pending = self._output.create()
                self._writer = row_writer(
                    self._format,
                    self._compression,
                    rows.schema,
                    self._pending.sink,
                    target_bytes=self._target_bytes,
                )
            self._writer.write(rows)
        first, last = _bounds(offsets)
        self.first_offset = min(self.first_offset, first) if self.rows else first
        self.last_offset = max(self.last_offset, last) if self.rows else last
        self.rows += rows.num_rows

    def flush(self) -> None:
        """Encode the rows that are held. Raises `StorageError`."""
        if self._writer is not None:
            with writing(self._output.root):
                self._writer.flush()

    def commit(self, name: str) -> WrittenFile:
        """Make the file appear as `name`; it must have rows. Raises `StorageError`."""
        writer, pending = self._writer, self._pending
        if writer is None or pending is None:
            raise StorageError("a file without rows is not written", file=name)
        with writing(self._output.root):
            writer.close()
        self._writer = None
        pending.commit(name)
        sink = pending.sink
        return WrittenFile(
            name, self.rows, self.first_offset, self.last_offset, sink.size_bytes, sink.checksum
        )

    def discard(self) -> None:
        """Remove the file. After `commit` this does nothing."""
        if self._pending is not None:
            self._pending.discard()
        if self._writer is not None:
            # Its last bytes are discarded, so a full disk is no error any more.
            self._writer.abandon()
            self._writer = None


def _bounds(offsets: pa.Array) -> tuple[int, int]:
    import pyarrow.compute as pc

    found = pc.min_max(offsets).as_py()
    return found["min"], found["max"]


class TableFiles:
    """All files of one split. The end of the block discards those that were not committed."""

    def __init__(
        self,
        output: Output,
        split: Split,
        table: Table,
        wanted: Format,
        compression: str,
        target_bytes: int | None = None,
    ) -> None:
        self._output, self._split, self._table = output, split, table
        self._target_bytes = target_bytes
        self._format, self._compression = wanted, compression
        self._suffix = suffix(wanted, compression)
        self._open: dict[str, TableFile] = {}
        self._written: dict[str, WrittenFile] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._open.values():
            file.discard()

    def write(self, rows: pa.RecordBatch) -> None:
        """Write each row to the file of its directory. Raises `StorageError`."""
        if PartitionBy.DAY not in self._table.levels:
            self._put(None, rows)
            return
        for day, of_day in _by_day(rows):
            self._put(day, of_day)
            self._limit_memory()

    def commit(self) -> tuple[WrittenFile, ...]:
        """Make all files appear. Returns them in the order of their names. Raises `StorageError`."""
        for place in list(self._open):
            self._commit(place)
        return tuple(self._written[name] for name in sorted(self._written))

    def _put(self, day: str | None, rows: pa.RecordBatch) -> None:
        place = directory(self._split, self._table.levels, day)
        # The most recently used file is the last one.
        file = self._open.pop(place, None) or TableFile(
            self._output, self._format, self._compression, self._target_bytes
        )
        self._open[place] = file
        shown = rows.select(self._table.written(rows.schema.names))
        file.write(shown, rows.column(self._table.offset_column))
        if file.is_full:
            self._commit(place)

    def _commit(self, place: str) -> None:
        file = self._open[place]
        stem = file_stem(self._split, file.first_offset, file.last_offset)
        path = "/".join(filter(None, (self._table.root, place, stem)))
        name = f"{path}{self._suffix}"
        again = 1
        while name in self._written:  # only if a damaged log has offsets twice
            again += 1
            name = f"{path}-{again}{self._suffix}"
        self._written[name] = file.commit(name)
        del self._open[place]

    def _limit_memory(self) -> None:
        if len(self._open) > _OPEN_FILES:
            self._commit(next(iter(self._open)))
        while sum(file.held_bytes for file in self._open.values()) > _HELD_BYTES:
            max(self._open.values(), key=lambda file: file.held_bytes).flush()


class RejectFile:
    """The file for rejected records of a split. It is JSON Lines, whatever the format of the tables."""

    def __init__(self, output: Output, split: Split) -> None:
        self._split = split
        self._file = TableFile(output, Format.JSONL, "none")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.discard()

    def write(self, rows: pa.RecordBatch) -> None:
        """Write rejected records. Raises `StorageError`."""
        self._file.write(rows, rows.column("offset"))

    def commit(self) -> WrittenFile | None:
        """Make the file appear; None if there are no rejected records. Raises `StorageError`."""
        file = self._file
        if not file.rows:
            return None
        stem = file_stem(self._split, file.first_offset, file.last_offset)
        return file.commit(f"{reject_directory(self._split)}/{stem}{suffix(Format.JSONL, 'none')}")


def _by_day(rows: pa.RecordBatch) -> Iterator[tuple[str | None, pa.RecordBatch]]:
    """Yield each day (UTC) with its rows; the day is None for records without a timestamp."""
    import pyarrow as pa
    import pyarrow.compute as pc

    times = rows.column("timestamp").cast(pa.int64())
    # Spark's Kafka source gives a record without a timestamp -1 ms.
    none = pc.or_kleene(pc.is_null(times), pc.equal(times, -1000))
    days = pc.if_else(none, None, pc.floor(pc.divide(times.cast(pa.float64()), 86_400e6)).cast(pa.int64()))
    encoded = days.dictionary_encode()
    if len(encoded.dictionary) == 1 and encoded.null_count == 0:
        yield _day_text(encoded.dictionary[0].as_py()), rows
        return
    for index, day in enumerate(encoded.dictionary.to_pylist()):
        yield _day_text(day), rows.filter(pc.fill_null(pc.equal(encoded.indices, index), False))
    if encoded.null_count:
        yield None, rows.filter(pc.is_null(encoded.indices))


def _day_text(day: int) -> str | None:
    from datetime import date

    if not _FIRST_DAY <= day <= _LAST_DAY:
        return None
    return date.fromordinal(day - _FIRST_DAY + 1).isoformat()
