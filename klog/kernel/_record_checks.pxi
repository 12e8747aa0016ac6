# Checks of uncompressed magic 2 records without tables; `_pyappend` states the semantics.


cdef bint headers_fit(const uint8_t *p, const uint8_t *stop, int32_t count) noexcept nogil:
    """Whether `count` headers fill exactly the bytes up to `stop`."""
    cdef RecordHeaderFields header
    if count < 0 or count > stop - p:
        return False
    while count > 0:
        count -= 1
        p = read_record_header(p, stop, &header)
        if p == NULL:
            return False
    return p == stop


cdef struct CheckedRecords:  # what `check_records` returns; nothing else is set unless `valid`
    bint valid
    bint in_order
    bint keyless
    int64_t smallest
    int64_t largest


cdef CheckedRecords look_through(
    const uint8_t *p, const uint8_t *stop, int64_t base_timestamp, int64_t count
) noexcept nogil:
    """Checks that the bytes from `p` to `stop` are exactly `count` records."""
    cdef CheckedRecords found
    cdef const uint8_t *body
    cdef RecordFields record
    cdef int64_t number = 0, timestamp
    cdef int32_t length
    found.valid = False
    found.in_order = True
    found.keyless = False
    found.smallest = -1
    found.largest = -1
    while number < count:
        body = read_size_of_record(p, stop, &length)
        if body == NULL or length < 1 or length > stop - body:
            return found
        p = body
        body = body + length
        p = read_record(p, body, &record)
        if p == NULL:
            return found
        if record.key.size < 0:
            found.keyless = True
        if record.headers != 0 or p != body:
            if not headers_fit(p, body, record.headers):
                return found
        timestamp = wrapping_sum(base_timestamp, record.timestampDelta)
        if timestamp != -1:
            if found.smallest == -1 or timestamp < found.smallest:
                found.smallest = timestamp
            if timestamp > found.largest:
                found.largest = timestamp
        if record.offsetDelta != number:
            found.in_order = False
        p = body
        number += 1
    found.valid = p == stop or count == 0
    return found
