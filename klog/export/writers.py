"""Writes Arrow record batches as Parquet, ORC or JSON Lines.

A writer holds rows up to a row group (Parquet) or stripe (ORC) of some MiB and then encodes them; the file
itself may be of any size. The same rows give the same bytes. `klog.export.outputs` takes the bytes.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, Protocol

from klog.export.outputs import Sink
from klog.formats.errors import UsageError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow import orc
    from pyarrow import parquet as pq

ROW_GROUP_BYTES: Final = 32 << 20
"""Size of a row group, as rows in memory. Large ones are faster to read; small ones take less memory to
write."""

_LEAST_GROUP_BYTES: Final = 1 << 20
_DICTIONARY_BYTES: Final = ROW_GROUP_BYTES // 2
"""The most that a dictionary page takes. Arrow's default of 1 MiB is too small for repeated values of some
hundred bytes."""


class Format(StrEnum):
    """The format of an export's files."""

    PARQUET = "parquet"
    ORC = "orc"
    JSONL = "jsonl"


_SUFFIXES: Final = {
    Format.PARQUET: {"zstd": "", "snappy": "", "gzip": "", "lz4": "", "brotli": "", "none": ""},
    Format.ORC: {"zstd": "", "snappy": "", "zlib": "", "lz4": "", "none": ""},
    Format.JSONL: {"zstd": ".zst", "gzip": ".gz", "none": ""},
}
"""The compressions of each format, the default first, and the suffixes that they add to file names."""


def compression_of(wanted: Format, name: str | None) -> str:
    """The compression called `name`, or the default. Raises `UsageError` if the format does not have it."""
    known = _SUFFIXES[wanted]
    if name is None:
        return next(iter(known))
    if name.lower() not in known:
        raise UsageError(f"{wanted} has no compression {name!r}", cure=f"one of {', '.join(known)}")
    return name.lower()


def suffix(wanted: Format, compression: str) -> str:
    """The suffix of file names."""
    return f".{wanted}{_SUFFIXES[wanted][compression]}"


class RowWriter(Protocol):
    """Writes rows to a file, which is complete after `close`."""

    held_bytes: int
    """Size of the rows that are not yet encoded."""

    def write(self, rows: pa.RecordBatch) -> None:
        """Write some rows."""

    def flush(self) -> None:
        """Encode the rows that are held."""

    def close(self) -> None:
        """Encode the remaining rows and write the footer."""

    def abandon(self) -> None:
        """Close the writer of a file that is discarded: its sink discards all bytes."""


def row_writer(
    wanted: Format, compression: str, schema: pa.Schema, sink: Sink, *, target_bytes: int | None = None
) -> RowWriter:
    """A writer of a file of `wanted` into `sink`. Raises `StorageError`.

    If files are to have `target_bytes`, groups of rows are not larger, but have 1 MiB at least.
    """
    if wanted == Format.JSONL:
        from klog.export.json_lines import JsonLinesWriter

        return JsonLinesWriter(sink, compression)
    if wanted == Format.ORC:
        return _OrcWriter(sink, compression, schema, target_bytes)
    return _ParquetWriter(sink, compression, schema, target_bytes)


class _GroupingWriter(ABC):
    """Holds rows until they fill a group."""

    def __init__(self, schema: pa.Schema, target_bytes: int | None) -> None:
        self.schema = schema
        self.group_bytes = (
            ROW_GROUP_BYTES
            if target_bytes is None
            else min(ROW_GROUP_BYTES, max(target_bytes, _LEAST_GROUP_BYTES))
        )
        self.held_bytes = 0
        self._held: list[pa.RecordBatch] = []

    def write(self, rows: pa.RecordBatch) -> None:
        self._held.append(rows)
        self.held_bytes += rows.nbytes
        if self.held_bytes >= self.group_bytes:
            self.flush()

    def flush(self) -> None:
        import pyarrow as pa

        if self._held:
            self._encode(pa.Table.from_batches(self._held, self.schema))
        self._held, self.held_bytes = [], 0

    @abstractmethod
    def _encode(self, rows: pa.Table) -> None:
        """Encode a group."""


def parquet_settings(rows: pa.Table) -> dict[str, Any]:
    """The encodings of a Parquet file that begins with the row group `rows`, as arguments of
    `pyarrow.parquet.ParquetWriter`."""
    from klog.export.parquet_encodings import choose

    encodings = choose(rows, _DICTIONARY_BYTES)
    return {
        "use_dictionary": list(encodings.dictionary),
        "dictionary_pagesize_limit": _DICTIONARY_BYTES,
        "column_encoding": dict.fromkeys(encodings.delta, "DELTA_BINARY_PACKED"),
        "write_statistics": list(encodings.statistics),
    }


class _ParquetWriter(_GroupingWriter):
    """Chooses the encodings when it has the first row group."""

    def __init__(self, sink: Sink, compression: str, schema: pa.Schema, target_bytes: int | None) -> None:
        super().__init__(schema, target_bytes)
        self._sink = sink
        self._compression = compression
        self._writer: pq.ParquetWriter | None = None

    def _encode(self, rows: pa.Table) -> None:
        if self._writer is None:
            self._writer = self._begun(rows)
        self._writer.write_table(rows, row_group_size=rows.num_rows)

    def _begun(self, rows: pa.Table) -> pq.ParquetWriter:
        from pyarrow import parquet as pq

        return pq.ParquetWriter(
            self._sink, self.schema, compression=self._compression, **parquet_settings(rows)
        )

    def close(self) -> None:
        self.flush()
        if self._writer is not None:
            self._writer.close()

    def abandon(self) -> None:
        if self._writer is not None:
            _close_whatever_state(self._writer)


def _close_whatever_state(writer: pq.ParquetWriter | orc.ORCWriter) -> None:
    """Close a writer that may have failed before, and ignore further errors."""
    import pyarrow as pa

    with contextlib.suppress(OSError, pa.ArrowException):
        writer.close()


class _OrcWriter(_GroupingWriter):
    def __init__(self, sink: Sink, compression: str, schema: pa.Schema, target_bytes: int | None) -> None:
        from pyarrow import orc

        super().__init__(schema, target_bytes)
        self._writer = orc.ORCWriter(
            sink,
            compression="uncompressed" if compression == "none" else compression,
            stripe_size=self.group_bytes,
        )

    def _encode(self, rows: pa.Table) -> None:
        self._writer.write(rows)

    def close(self) -> None:
        self.flush()
        self._writer.close()

    def abandon(self) -> None:
        _close_whatever_state(self._writer)
