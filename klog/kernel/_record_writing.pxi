# Writes the parts of magic 2 records, for the compiled modules that rebuild batches.


cdef inline uint8_t *put_varint(uint8_t *p, uint64_t zigzag) noexcept nogil:
    while zigzag > 0x7F:
        p[0] = <uint8_t>(zigzag & 0x7F | 0x80)
        p += 1
        zigzag >>= 7
    p[0] = <uint8_t>zigzag
    return p + 1


cdef inline uint64_t zigzag64(int64_t value) noexcept nogil:
    return (<uint64_t>value << 1) ^ <uint64_t>(value >> 63)


cdef inline int64_t size_of_varint(uint64_t zigzag) noexcept nogil:
    cdef int64_t size = 1
    while zigzag > 0x7F:
        size += 1
        zigzag >>= 7
    return size


cdef inline uint8_t *put_sized(uint8_t *p, const uint8_t *data, int64_t size) noexcept nogil:
    p = put_varint(p, zigzag64(size))
    if size > 0:
        memcpy(p, data, size)
        p += size
    return p


cdef const uint8_t *after_headers(const uint8_t *p, const uint8_t *end, int64_t count) noexcept nogil:
    """The end of `count` headers; NULL if they do not end before `end`."""
    cdef int32_t size
    cdef int64_t i
    for i in range(2 * count):
        p = varint32(p, end, &size)
        if p == NULL:
            return NULL
        if size > 0:
            if size > end - p:
                return NULL
            p += size
    return p
