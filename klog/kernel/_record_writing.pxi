# The rows of a RecordTable as what is written, for the compiled modules that rebuild batches.


cdef inline Data data_of(const uint8_t *payload, int64_t start, int64_t size) noexcept nogil:
    cdef Data data
    data.start = payload + start
    data.size = <int32_t>size
    return data


cdef inline RecordFields record_of(
    const uint8_t *payload, const Records *rows, Py_ssize_t row, int64_t base_offset, int64_t base_timestamp
) noexcept nogil:
    """A record without headers, of a batch that begins with these."""
    cdef RecordFields record
    record.attributes = 0
    record.timestampDelta = <int64_t>(<uint64_t>rows.timestamp[row] - <uint64_t>base_timestamp)
    record.offsetDelta = <int32_t>(rows.offset[row] - base_offset)
    record.key = data_of(payload, rows.key_start[row], rows.key_size[row])
    record.value = data_of(payload, rows.value_start[row], rows.value_size[row])
    record.headers = 0
    return record


cdef const uint8_t *after_headers(const uint8_t *p, const uint8_t *end, int64_t count) noexcept nogil:
    """The end of `count` headers; NULL if they do not end before `end`."""
    cdef RecordHeaderFields header
    cdef int64_t i
    for i in range(count):
        p = read_record_header(p, end, &header)
        if p == NULL:
            return NULL
    return p
