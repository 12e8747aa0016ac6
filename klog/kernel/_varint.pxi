# Zig-zag varints of 32 and 64 bits, as the compiled modules read and write them; never past `stop`.


cdef const uint8_t *long_varint32(const uint8_t *p, const uint8_t *stop, int32_t *out) noexcept nogil:
    cdef uint32_t value = 0
    cdef uint8_t byte
    cdef int shift = 0
    while p < stop and shift < 35:
        byte = p[0]
        p += 1
        value |= <uint32_t>(byte & 0x7F) << shift
        if byte < 0x80:
            out[0] = <int32_t>((value >> 1) ^ (0 - (value & 1)))
            return p
        shift += 7
    return NULL


cdef inline const uint8_t *varint32(const uint8_t *p, const uint8_t *stop, int32_t *out) noexcept nogil:
    """Zig-zag varint of at most 5 bytes; NULL if it does not end before `stop`."""
    cdef uint32_t value
    cdef int32_t found = 0  # so that the compiler may keep what `out` points to in a register
    if p < stop and p[0] < 0x80:
        out[0] = <int32_t>(p[0] >> 1) ^ -<int32_t>(p[0] & 1)
        return p + 1
    if p + 1 < stop and p[1] < 0x80:
        value = (p[0] & 0x7F) | <uint32_t>p[1] << 7
        out[0] = <int32_t>(value >> 1) ^ -<int32_t>(value & 1)
        return p + 2
    p = long_varint32(p, stop, &found)
    out[0] = found
    return p


cdef inline const uint8_t *varint64(const uint8_t *p, const uint8_t *stop, int64_t *out) noexcept nogil:
    """Zig-zag varint of at most 10 bytes; NULL if it does not end before `stop`."""
    cdef uint64_t value = 0
    cdef uint8_t byte
    cdef int shift = 0
    if p < stop and p[0] < 0x80:
        out[0] = <int64_t>(p[0] >> 1) ^ -<int64_t>(p[0] & 1)
        return p + 1
    while p < stop and shift < 70:
        byte = p[0]
        p += 1
        value |= <uint64_t>(byte & 0x7F) << shift
        if byte < 0x80:
            out[0] = <int64_t>((value >> 1) ^ (0 - (value & 1)))
            return p
        shift += 7
    return NULL


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
