"""Gathers decoded values into contiguous columns, in pure Python: the twin of `_gather`.

The meaning and the rules are stated here; tests hold both equal. Every function appends the rows `first` to
`last` (exclusive). If spans do not lie in the payload, or columns would exceed Arrow's 32-bit offsets, it
raises `UsageError` and appends nothing.
"""

from __future__ import annotations

from array import array
from typing import Final

from klog.formats.checksums import Bytes
from klog.formats.constants import INT32_MAX
from klog.formats.errors import UsageError
from klog.kernel._pykernel import headers
from klog.kernel.columns import HeadersColumn, SpanColumn

IMPLEMENTATION: Final = "python"


def take(source: array[int], rows: array[int], first: int, last: int, out: array[int]) -> None:
    """Append `source[row]` to `out` for each of `rows`: a field of a batch, for each record."""
    _check_rows(first, last, len(rows))
    chosen = rows[first:last]
    if chosen and not 0 <= min(chosen) <= max(chosen) < len(source):
        raise UsageError("rows point outside the table they were taken from")
    out.extend([source[row] for row in chosen])


def gather(
    payload: Bytes, starts: array[int], sizes: array[int], first: int, last: int, out: SpanColumn
) -> None:
    """Append the bytes of the spans (`starts`, `sizes`; size below 0: null) of `payload` to `out`."""
    _check_rows(first, last, min(len(starts), len(sizes)))
    view = memoryview(payload)
    total = len(out.data)
    for start, size in zip(starts[first:last], sizes[first:last], strict=True):
        if size >= 0:
            if start < 0 or start + size > len(view):
                raise UsageError("spans point outside the payload")
            total += size
    if total > INT32_MAX:
        raise UsageError("a column of more than 2 GiB", cure="finish the row group earlier")
    for start, size in zip(starts[first:last], sizes[first:last], strict=True):
        _append(out, view[start : start + size] if size >= 0 else None)


def gather_headers(
    payload: Bytes, starts: array[int], counts: array[int], first: int, last: int, out: HeadersColumn
) -> None:
    """Append the headers of records (`headers_start` and `header_count` of a RecordTable) to `out`."""
    _check_rows(first, last, min(len(starts), len(counts)))
    view = memoryview(payload)
    found = [
        headers(view, start, count)
        for start, count in zip(starts[first:last], counts[first:last], strict=True)
    ]
    grown = len(out.keys.data) + len(out.values.data)
    grown += sum(len(key) + len(value or b"") for of_record in found for key, value in of_record)
    if grown > INT32_MAX:
        raise UsageError("a column of more than 2 GiB", cure="finish the row group earlier")
    for of_record in found:
        for key, value in of_record:
            _append(out.keys, key)
            _append(out.values, value)
        out.ends.append(len(out.keys))


def _check_rows(first: int, last: int, rows: int) -> None:
    if not 0 <= first <= last <= rows:
        raise UsageError(f"rows {first} to {last} of a table of {rows}")


def _append(column: SpanColumn, value: Bytes | None) -> None:
    row = len(column)
    if row % 8 == 0:
        column.valid.append(0)
    if value is not None:
        column.valid[-1] |= 1 << row % 8
        column.data += value
    column.ends.append(len(column.data))
