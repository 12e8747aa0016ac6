# What the append and read paths of a broker need of batches, without tables; `_pyappend` states the semantics.


def check_records(data, Py_ssize_t start, int64_t base_timestamp, int64_t count):
    cdef Buffer buffer
    cdef const uint8_t *p
    cdef const uint8_t *stop
    cdef const uint8_t *body
    cdef int64_t number = 0, timestamp, delta, smallest = -1, largest = -1
    cdef int32_t length, offset_delta, key_size, value_size, header_count
    cdef bint in_order = True, keyless = False, sound = False
    open_buffer(&buffer, data)
    if start < 0 or start > buffer.size or count < 0:
        PyBuffer_Release(&buffer.view)
        return None
    p = buffer.start + start
    stop = buffer.start + buffer.size
    with nogil:
        while number < count:
            body = varint32(p, stop, &length)
            if body == NULL or length < 1 or length > stop - body:
                break
            p = body + 1
            body = body + length
            p = varint64(p, body, &delta)
            if p == NULL:
                break
            p = varint32(p, body, &offset_delta)
            if p == NULL:
                break
            p = varint32(p, body, &key_size)
            if p == NULL or key_size > body - p:
                break
            if key_size < 0:
                keyless = True
                key_size = 0
            p = varint32(p + key_size, body, &value_size)
            if p == NULL or value_size > body - p:
                break
            p = varint32(p + (value_size if value_size > 0 else 0), body, &header_count)
            if p == NULL:
                break
            if header_count != 0 or p != body:
                if not headers_fit(p, body, header_count):
                    break
            timestamp = wrapping_sum(base_timestamp, delta)
            if timestamp != -1:
                if smallest == -1 or timestamp < smallest:
                    smallest = timestamp
                if timestamp > largest:
                    largest = timestamp
            if offset_delta != number:
                in_order = False
            p = body
            number += 1
        sound = number == count and (p == stop or count == 0)
    PyBuffer_Release(&buffer.view)
    return (smallest, largest, in_order, keyless) if sound else None


def seek(data, int64_t offset):
    cdef Buffer buffer
    cdef int64_t at = 0, last, found
    cdef int32_t follows
    cdef const uint8_t *p
    open_buffer(&buffer, data)
    with nogil:
        found = -1
        while buffer.size - at > MAGIC_AT:
            p = buffer.start + at
            follows = <int32_t>be32(p + 8)
            if follows < SMALLEST_FOLLOWS:
                break
            last = <int64_t>be64(p)
            if <int8_t>p[MAGIC_AT] >= 2:
                if buffer.size - at < LAST_DELTA_END:
                    break
                last = wrapping_sum(last, <int32_t>be32(p + 23))
            if last >= offset:
                found = at
                break
            at += <int64_t>follows + PREFIX_BYTES
    PyBuffer_Release(&buffer.view)
    return found if found >= 0 else -1 - at
