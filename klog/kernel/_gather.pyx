# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Gathers decoded values into contiguous columns, compiled; `_pygather` states the meaning of each function.

Spans are checked before anything is written, so a call that raises leaves the columns unchanged.
"""

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE, PyByteArray_Resize
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from klog.formats.errors import CorruptRecordError, UsageError

IMPLEMENTATION = "cython"

include "_columns.pxi"
include "_varint.pxi"
include "_derived.pxi"
include "_numbers.pxi"
include "_derived_records.pxi"


cdef int check_rows(Py_ssize_t first, Py_ssize_t last, Py_ssize_t rows) except -1:
    if not 0 <= first <= last <= rows:
        raise UsageError(f"rows {first} to {last} of a table of {rows}")
    return 0


cdef int refuse_size() except -1:
    raise UsageError("a column of more than 2 GiB", cure="finish the row group earlier")


def take(array.array source, array.array rows, Py_ssize_t first, Py_ssize_t last, array.array out):
    cdef const int64_t *values = longs(source)
    cdef const int64_t *chosen = longs(rows)
    cdef int64_t *written
    cdef Py_ssize_t at = len(out), count = last - first, i
    cdef int64_t size = len(source)
    check_rows(first, last, len(rows))
    for i in range(first, last):
        if chosen[i] < 0 or chosen[i] >= size:
            raise UsageError("rows point outside the table they were taken from")
    longs(out)
    resize_column(out, at + count)
    written = longs(out) + at
    for i in range(count):
        written[i] = values[chosen[first + i]]


# A SpanColumn while it is written


cdef struct Spans:
    Py_ssize_t rows
    int64_t size  # bytes of data
    int32_t *ends
    uint8_t *valid
    uint8_t *data


cdef array.array ends_of(column):
    cdef array.array ends = column.ends
    if ends.ob_descr.typecode_char != c"i" or ends.ob_descr.itemsize != 4 or len(ends) == 0:
        raise UsageError("ends are not an array of 32-bit integers")
    return ends


cdef int open_spans(Spans *spans, column, Py_ssize_t more, int64_t more_bytes) except -1:
    """Add `more` uninitialised values, of `more_bytes` bytes together."""
    cdef array.array ends = ends_of(column)
    cdef bytearray data = column.data, valid = column.valid
    cdef Py_ssize_t held = PyByteArray_GET_SIZE(valid), need
    spans.rows = len(ends) - 1
    spans.size = PyByteArray_GET_SIZE(data)
    if spans.size + more_bytes > INT32_MAX:
        refuse_size()
    need = (spans.rows + more + 7) // 8
    resize_column(ends, spans.rows + 1 + more)
    PyByteArray_Resize(valid, need)
    PyByteArray_Resize(data, spans.size + more_bytes)
    spans.ends = <int32_t *>ends.data.as_ints
    spans.valid = <uint8_t *>PyByteArray_AS_STRING(valid)
    spans.data = <uint8_t *>PyByteArray_AS_STRING(data)
    if need > held:
        memset(spans.valid + held, 0, need - held)
    return 0


cdef inline void put_span(Spans *spans, const uint8_t *start, int64_t size) noexcept nogil:
    """Writes the next value that `open_spans` has added. A size below 0 is null."""
    cdef Py_ssize_t row = spans.rows
    if size >= 0:
        spans.valid[row >> 3] |= <uint8_t>(1 << (row & 7))
        memcpy(spans.data + spans.size, start, size)
        spans.size += size
    spans.rows = row + 1
    spans.ends[row + 1] = <int32_t>spans.size


def gather(payload, array.array starts, array.array sizes, Py_ssize_t first, Py_ssize_t last, out):
    cdef Buffer buffer
    cdef Spans spans
    cdef const int64_t *start = longs(starts)
    cdef const int64_t *size = longs(sizes)
    cdef int64_t total = 0
    cdef Py_ssize_t i
    check_rows(first, last, min(len(starts), len(sizes)))
    open_buffer(&buffer, payload)
    try:
        for i in range(first, last):
            if size[i] >= 0:
                if start[i] < 0 or start[i] > buffer.size or size[i] > buffer.size - start[i]:
                    raise UsageError("spans point outside the payload")
                total += size[i]
                if total > INT32_MAX:
                    refuse_size()
        open_spans(&spans, out, last - first, total)
        for i in range(first, last):
            put_span(&spans, buffer.start + start[i], size[i])
    finally:
        PyBuffer_Release(&buffer.view)


# Headers


cdef struct HeaderSizes:
    int64_t headers
    int64_t key_bytes
    int64_t value_bytes


cdef int measure_headers(
    const Buffer *buffer,
    const int64_t *starts,
    const int64_t *counts,
    Py_ssize_t first,
    Py_ssize_t last,
    HeaderSizes *sizes,
) except -1:
    cdef const uint8_t *p
    cdef const uint8_t *stop = buffer.start + buffer.size
    cdef RecordHeaderFields header
    cdef int64_t left
    cdef Py_ssize_t i
    sizes.headers = sizes.key_bytes = sizes.value_bytes = 0
    for i in range(first, last):
        left = counts[i]
        p = buffer.start + starts[i] if 0 <= starts[i] <= buffer.size else stop
        while left > 0:
            left -= 1
            p = read_record_header(p, stop, &header)
            if p == NULL:
                raise CorruptRecordError("headers do not fit the payload")
            sizes.headers += 1
            sizes.key_bytes += header.key.size
            sizes.value_bytes += bytes_of(&header.value)
            if sizes.key_bytes + sizes.value_bytes > INT32_MAX or sizes.headers > INT32_MAX:
                refuse_size()
    return 0


def gather_headers(
    payload, array.array starts, array.array counts, Py_ssize_t first, Py_ssize_t last, out
):
    cdef Buffer buffer
    cdef HeaderSizes sizes
    cdef Spans keys, values
    cdef array.array ends = ends_of(out)
    cdef const int64_t *start = longs(starts)
    cdef const int64_t *count = longs(counts)
    cdef const uint8_t *p
    cdef RecordHeaderFields header
    cdef int64_t left
    cdef Py_ssize_t i, at = len(ends)
    check_rows(first, last, min(len(starts), len(counts)))
    open_buffer(&buffer, payload)
    try:
        measure_headers(&buffer, start, count, first, last, &sizes)
        if len(out.keys.data) + sizes.key_bytes + len(out.values.data) + sizes.value_bytes > INT32_MAX:
            refuse_size()
        open_spans(&keys, out.keys, sizes.headers, sizes.key_bytes)
        open_spans(&values, out.values, sizes.headers, sizes.value_bytes)
        resize_column(ends, at + last - first)
        for i in range(first, last):
            left = count[i]
            p = buffer.start + start[i]
            while left > 0:
                left -= 1
                p = read_record_header(p, buffer.start + buffer.size, &header)
                put_span(&keys, header.key.start, header.key.size)
                put_span(&values, header.value.start, header.value.size)
            ends.data.as_ints[at] = <int32_t>keys.rows
            at += 1
    finally:
        PyBuffer_Release(&buffer.view)
