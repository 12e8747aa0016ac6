# Rewrites the records of a magic 2 batch for a compacted log. `_pycompaction` states the rules of `rewrite`.


def rewrite(payload, records, Py_ssize_t first, Py_ssize_t last, keep, int64_t base_offset, base_timestamp):
    cdef Buffer buffer
    cdef Records rows
    cdef array.array flags = keep
    cdef Py_ssize_t row, count = 0
    cdef int64_t size = 0, base = 0, largest = -1, previous = -1, body, headers_bytes
    cdef RecordFields record
    cdef const uint8_t *headers_end
    cdef const uint8_t *end
    cdef uint8_t *out
    cdef uint8_t *p
    cdef bytes written
    cdef bint based = base_timestamp is not None
    open_rows(&rows, records, first, last)
    if len(flags) < last or flags.ob_descr.typecode_char != c"B":
        raise UsageError("flags for fewer records than there are")
    if based:
        base = base_timestamp
    open_buffer(&buffer, payload)
    try:
        for row in range(first, last):
            if not flags.data.as_uchars[row]:
                continue
            if (
                not fits(&buffer, rows.key_start[row], rows.key_size[row])
                or not fits(&buffer, rows.value_start[row], rows.value_size[row])
                or not 0 <= rows.headers_start[row] <= buffer.size
                or rows.record_size[row] < 0
            ):
                raise UsageError(f"record {row} of the table does not lie in the payload")
            size += rows.record_size[row] + MOST_ADDED
        # `record_size` limits what is written: its parts are copied, or become no longer.
        written = PyBytes_FromStringAndSize(NULL, size)
        out = p = <uint8_t *>PyBytes_AS_STRING(written)
        end = buffer.start + buffer.size
        for row in range(first, last):
            if not flags.data.as_uchars[row]:
                continue
            if rows.timestamp[row] < -1:
                raise CorruptRecordError(f"record {rows.offset[row]} has the timestamp {rows.timestamp[row]}")
            if count and rows.offset[row] <= previous:
                raise CorruptRecordError(f"offset {rows.offset[row]} follows {previous} in one batch")
            previous = rows.offset[row]
            if not based:
                base = rows.timestamp[row]
                based = True
            headers_end = after_headers(buffer.start + rows.headers_start[row], end, rows.header_count[row])
            if headers_end == NULL:
                raise UsageError(f"headers of record {row} do not lie in the payload")
            headers_bytes = headers_end - buffer.start - rows.headers_start[row]
            record = record_of(buffer.start, &rows, row, base_offset, base)
            record.headers = <int32_t>rows.header_count[row]
            body = size_of_record(&record) + headers_bytes
            if body > rows.record_size[row] + MOST_ADDED - 10:
                raise UsageError(f"record {row} is larger than the table says")
            p = write_size_of_record(p, <int32_t>body)
            p = write_record(p, &record)
            memcpy(p, buffer.start + rows.headers_start[row], headers_bytes)
            p += headers_bytes
            count += 1
            if rows.timestamp[row] > largest:
                largest = rows.timestamp[row]
    finally:
        PyBuffer_Release(&buffer.view)
    return written[: p - out], count, base, largest
