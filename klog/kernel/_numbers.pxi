# Big-endian numbers, sums that wrap and 64-bit varints, as the compiled modules read them.


cdef inline uint16_t be16(const uint8_t *p) noexcept nogil:
    return (<uint16_t>p[0] << 8) | p[1]


cdef inline uint32_t be32(const uint8_t *p) noexcept nogil:
    return (<uint32_t>p[0] << 24) | (<uint32_t>p[1] << 16) | (<uint32_t>p[2] << 8) | p[3]


cdef inline uint64_t be64(const uint8_t *p) noexcept nogil:
    return (<uint64_t>be32(p) << 32) | be32(p + 4)


cdef inline int64_t wrapping_sum(int64_t a, int64_t b) noexcept nogil:
    return <int64_t>(<uint64_t>a + <uint64_t>b)


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
