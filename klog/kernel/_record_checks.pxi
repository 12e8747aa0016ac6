# Checks of uncompressed magic 2 records without tables; `_pyappend` states the semantics.


cdef bint headers_fit(const uint8_t *p, const uint8_t *stop, int32_t count) noexcept nogil:
    """Whether `count` headers fill exactly the bytes up to `stop`."""
    cdef int32_t size
    if count < 0 or count > stop - p:
        return False
    while count > 0:
        count -= 1
        p = varint32(p, stop, &size)
        if p == NULL or size < 0 or size > stop - p:
            return False
        p = varint32(p + size, stop, &size)
        if p == NULL or size > stop - p:
            return False
        if size > 0:
            p += size
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
    cdef int64_t number = 0, timestamp, delta
    cdef int32_t length, offset_delta, key_size, value_size, header_count
    found.valid = False
    found.in_order = True
    found.keyless = False
    found.smallest = -1
    found.largest = -1
    while number < count:
        body = varint32(p, stop, &length)
        if body == NULL or length < 1 or length > stop - body:
            return found
        p = body + 1
        body = body + length
        p = varint64(p, body, &delta)
        if p == NULL:
            return found
        p = varint32(p, body, &offset_delta)
        if p == NULL:
            return found
        p = varint32(p, body, &key_size)
        if p == NULL or key_size > body - p:
            return found
        if key_size < 0:
            found.keyless = True
            key_size = 0
        p = varint32(p + key_size, body, &value_size)
        if p == NULL or value_size > body - p:
            return found
        p = varint32(p + (value_size if value_size > 0 else 0), body, &header_count)
        if p == NULL:
            return found
        if header_count != 0 or p != body:
            if not headers_fit(p, body, header_count):
                return found
        timestamp = wrapping_sum(base_timestamp, delta)
        if timestamp != -1:
            if found.smallest == -1 or timestamp < found.smallest:
                found.smallest = timestamp
            if timestamp > found.largest:
                found.largest = timestamp
        if offset_delta != number:
            found.in_order = False
        p = body
        number += 1
    found.valid = p == stop or count == 0
    return found
