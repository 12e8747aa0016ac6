# What the append and read paths of a broker need of batches, without tables; `_pyappend` states the semantics.


def check_records(data, Py_ssize_t start, int64_t base_timestamp, int64_t count):
    cdef Buffer buffer
    cdef CheckedRecords found
    open_buffer(&buffer, data)
    if start < 0 or start > buffer.size or count < 0:
        PyBuffer_Release(&buffer.view)
        return None
    with nogil:
        found = look_through(buffer.start + start, buffer.start + buffer.size, base_timestamp, count)
    PyBuffer_Release(&buffer.view)
    return (found.smallest, found.largest, found.in_order, found.keyless) if found.valid else None


def seek(data, int64_t offset):
    cdef Buffer buffer
    cdef int64_t at = 0, last, found
    cdef int32_t follows
    cdef const uint8_t *p
    open_buffer(&buffer, data)
    with nogil:
        found = -1
        while buffer.size - at > MAGIC_POSITION:
            p = buffer.start + at
            follows = <int32_t>be32(p + ENTRY_SIZE_POSITION)
            if follows < MIN_MESSAGE_SIZE:
                break
            last = <int64_t>be64(p + BATCH_BASE_OFFSET_POSITION)
            if <int8_t>p[MAGIC_POSITION] >= 2:
                if buffer.size - at < BATCH_LAST_OFFSET_DELTA_POSITION + 4:
                    break
                last = wrapping_sum(last, <int32_t>be32(p + BATCH_LAST_OFFSET_DELTA_POSITION))
            if last >= offset:
                found = at
                break
            at += <int64_t>follows + ENTRY_PREFIX_BYTES
    PyBuffer_Release(&buffer.view)
    return found if found >= 0 else -1 - at
