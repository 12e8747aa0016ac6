"""Gathers fields of decoded records from many runs into columns that Arrow can use without copying.

This module knows the fields and how they grow. `klog.kernel.arrow` and the export give the columns their
names, types and meanings.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from klog.formats.checksums import Bytes
from klog.formats.errors import UsageError
from klog.kernel.columns import BatchTable, HeadersColumn, RecordTable, SpanColumn
from klog.kernel.twins import members

if TYPE_CHECKING:
    import pyarrow as pa

SPAN_FIELDS: Final = ("key", "value")


class BatchField:
    """A field of batch headers, with a value for each record. While the value does not change, it is kept
    once with a count.
    """

    __slots__ = ("_same", "_values", "rows")

    def __init__(self) -> None:
        self.rows = 0
        self._same: int | None = None
        self._values: array[int] | None = None

    @property
    def constant(self) -> int | None:
        """The value of all rows; None if they differ or there are none."""
        return self._same if self._values is None else None

    @property
    def values(self) -> array[int]:
        """The value of each row."""
        if self._values is None:
            self._values = array("q", () if self._same is None else (self._same,)) * self.rows
        return self._values

    def append(self, source: array[int], batches: array[int], first: int, last: int) -> None:
        """Append `source[batch]` for each of `batches[first:last]`, which do not decrease."""
        if first == last:
            return
        lowest, highest = batches[first], batches[last - 1]
        value = source[lowest]
        same = self._values is None and (self._same is None or self._same == value)
        if same and lowest != highest:
            same = source[lowest : highest + 1].count(value) == highest + 1 - lowest
        if same:
            self._same = value
        else:
            take(source, batches, first, last, self.values)
        self.rows += last - first


class Gathered:
    """Columns of the named fields of records, which grow; not for two threads at a time.

    `of_record` are fields of `RecordTable`, `of_batch` of `BatchTable`. `spans` ("key", "value") and
    `headers` say which of those are gathered.
    """

    def __init__(
        self, of_record: Iterable[str], of_batch: Iterable[str], spans: Iterable[str], headers: bool
    ) -> None:
        self.rows = 0
        self.of_record: dict[str, array[int]] = {name: array("q") for name in of_record}
        self.of_batch = {name: BatchField() for name in of_batch}
        self.spans = {name: SpanColumn() for name in spans}
        self.headers = HeadersColumn() if headers else None

    @property
    def nbytes(self) -> int:
        """Approximate bytes of the finished columns in memory."""
        total = self.rows * 8 * (len(self.of_record) + len(self.of_batch))
        total += sum(len(spans.data) + 4 * self.rows for spans in self.spans.values())
        if self.headers is not None:
            keys, values = self.headers.keys, self.headers.values
            total += len(keys.data) + len(values.data) + 8 * len(keys) + 4 * self.rows
        return total

    def append(self, payload: Bytes, table: BatchTable, records: RecordTable, first: int, last: int) -> None:
        """Append the rows `first` to `last` (exclusive) of `records`, which point into `payload`.

        Raises UsageError if rows, records and payload do not belong together.
        """
        if not 0 <= first <= last <= len(records):
            raise UsageError(f"rows {first} to {last} of a table of {len(records)}")
        for name, spans in self.spans.items():
            starts, sizes = getattr(records, f"{name}_start"), getattr(records, f"{name}_size")
            gather(payload, starts, sizes, first, last, spans)
        if self.headers is not None:
            gather_headers(payload, records.headers_start, records.header_count, first, last, self.headers)
        for name, column in self.of_batch.items():
            column.append(getattr(table, name), records.batch, first, last)
        for name, values in self.of_record.items():
            found: array[int] = getattr(records, name)
            values.extend(found if last - first == len(found) else found[first:last])
        self.rows += last - first


def int64_array(values: array[int]) -> pa.Array:
    """The column without copying it; it cannot grow any more."""
    import pyarrow as pa

    return pa.Array.from_buffers(pa.int64(), len(values), [None, pa.py_buffer(values)], null_count=0)


def binary_array(spans: SpanColumn, kind: pa.DataType) -> pa.Array:
    """The values as an array of `kind` (binary), without copying them."""
    import pyarrow as pa

    buffers = [pa.py_buffer(spans.valid), pa.py_buffer(spans.ends), pa.py_buffer(spans.data)]
    return pa.Array.from_buffers(kind, len(spans), buffers)


def header_pairs(column: HeadersColumn, kind: pa.StructType) -> pa.Array:
    """All headers in order, as structs of a string key and a binary value.

    Bytes of keys that are not UTF-8 become U+FFFD, as in Kafka's own reader.
    """
    import pyarrow as pa

    keys = binary_array(column.keys, pa.binary())
    try:
        keys = keys.cast(pa.string())
    except pa.ArrowInvalid:  # a key is not UTF-8
        keys = pa.array([key.decode("utf-8", "replace") for key in keys.to_pylist()], pa.string())
    values = binary_array(column.values, pa.binary())
    return pa.StructArray.from_arrays([keys, values], fields=list(kind))


# Decoded values gathered into contiguous columns: the compiled functions, or their twins in pure Python.
# `IMPLEMENTATION` says which ones run; `_pygather` states the meaning of the functions.

__all__ = ["IMPLEMENTATION", "gather", "gather_headers", "take"]

if TYPE_CHECKING:
    from klog.kernel._pygather import IMPLEMENTATION, gather, gather_headers, take
else:
    _found = members("klog.kernel._gather", "klog.kernel._pygather", __all__)
    IMPLEMENTATION, gather, gather_headers, take = _found
