"""Writes Arrow record batches as Parquet, ORC or JSON Lines.

A writer holds rows up to a row group (Parquet) or stripe (ORC) of some MiB and then encodes them; the file
itself may be of any size. The same rows give the same bytes. `klog.export.outputs` takes the bytes.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Final, Protocol

from klog.export.outputs import Sink
from klog.formats.errors import UsageError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow import orc
    from pyarrow import parquet as pq

ROW_GROUP_BYTES: Final = 32 << 20
"""Size of a row group, as rows in memory. Large ones are faster to read; small ones take less memory to
write."""


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

_DELTA_ENCODED: Final = {"offset", "timestamp", "batchPosition", "sequence"}
"""Columns whose numbers mostly grow by small steps: encoding the differences takes less time and space."""


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


def row_writer(wanted: Format, compression: str, schema: pa.Schema, sink: Sink) -> RowWriter:
    """A writer of a file of `wanted` into `sink`. Raises `StorageError`."""
    if wanted == Format.JSONL:
        from klog.export.json_lines import JsonLinesWriter

        return JsonLinesWriter(sink, compression)
    if wanted == Format.ORC:
        return _OrcWriter(sink, compression, schema)
    return _ParquetWriter(sink, compression, schema)


class _GroupingWriter(ABC):
    """Holds rows until they fill a group."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self.held_bytes = 0
        self._held: list[pa.RecordBatch] = []

    def write(self, rows: pa.RecordBatch) -> None:
        self._held.append(rows)
        self.held_bytes += rows.nbytes
        if self.held_bytes >= ROW_GROUP_BYTES:
            self.flush()

    def flush(self) -> None:
        import pyarrow as pa

        if self._held:
            self._encode(pa.Table.from_batches(self._held, self.schema))
        self._held, self.held_bytes = [], 0

    @abstractmethod
    def _encode(self, rows: pa.Table) -> None:
        """Encode a group."""


class _ParquetWriter(_GroupingWriter):
    def __init__(self, sink: Sink, compression: str, schema: pa.Schema) -> None:
        import pyarrow as pa
        from pyarrow import parquet as pq

        super().__init__(schema)
        leaves = [leaf for field in schema for leaf in _leaves(field.name, field.type)]
        self._writer = pq.ParquetWriter(
            sink,
            schema,
            compression=compression,
            use_dictionary=[path for path, kind in leaves if _repeats(path, kind)],
            column_encoding={field.name: "DELTA_BINARY_PACKED" for field in schema if _counts(field)},
            # Readers do not need the least and greatest key or value, and computing them would hold a record
            # of 100 MiB in memory six times.
            write_statistics=[path for path, kind in leaves if not pa.types.is_binary(kind)],
        )

    def _encode(self, rows: pa.Table) -> None:
        self._writer.write_table(rows, row_group_size=rows.num_rows)

    def close(self) -> None:
        self.flush()
        self._writer.close()

    def abandon(self) -> None:
        _close_whatever_state(self._writer)


def _close_whatever_state(writer: pq.ParquetWriter | orc.ORCWriter) -> None:
    """Close a writer that may have failed before, and ignore further errors."""
    import pyarrow as pa

    with contextlib.suppress(OSError, pa.ArrowException):
        writer.close()


def _counts(field: pa.Field) -> bool:
    import pyarrow as pa

    return field.name in _DELTA_ENCODED and (
        pa.types.is_integer(field.type) or pa.types.is_timestamp(field.type)
    )


def _leaves(path: str, kind: pa.DataType) -> Iterator[tuple[str, pa.DataType]]:
    """Yield the Parquet columns of an Arrow column, by their paths."""
    import pyarrow as pa

    if pa.types.is_struct(kind):
        for field in kind:
            yield from _leaves(f"{path}.{field.name}", field.type)
    elif pa.types.is_map(kind):
        yield from _leaves(f"{path}.key_value.key", kind.key_type)
        yield from _leaves(f"{path}.key_value.value", kind.item_type)
    elif pa.types.is_list(kind):
        yield from _leaves(f"{path}.list.element", kind.value_type)
    else:
        yield path, kind


def _repeats(path: str, kind: pa.DataType) -> bool:
    """Whether a column gets a dictionary: for binary and delta encoded ones it takes time and memory in
    vain."""
    import pyarrow as pa

    return not (pa.types.is_binary(kind) or pa.types.is_boolean(kind) or path in _DELTA_ENCODED)


class _OrcWriter(_GroupingWriter):
    def __init__(self, sink: Sink, compression: str, schema: pa.Schema) -> None:
        from pyarrow import orc

        super().__init__(schema)
        self._writer = orc.ORCWriter(
            sink,
            compression="uncompressed" if compression == "none" else compression,
            stripe_size=ROW_GROUP_BYTES,
        )

    def _encode(self, rows: pa.Table) -> None:
        self._writer.write(rows)

    def close(self) -> None:
        self.flush()
        self._writer.close()

    def abandon(self) -> None:
        _close_whatever_state(self._writer)
