# Zig-zag varints of 32 bits, as the compiled modules read them: at most 5 bytes, never past `stop`.


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
    if p < stop and p[0] < 0x80:
        out[0] = <int32_t>(p[0] >> 1) ^ -<int32_t>(p[0] & 1)
        return p + 1
    if p + 1 < stop and p[1] < 0x80:
        value = (p[0] & 0x7F) | <uint32_t>p[1] << 7
        out[0] = <int32_t>(value >> 1) ^ -<int32_t>(value & 1)
        return p + 2
    return long_varint32(p, stop, out)
