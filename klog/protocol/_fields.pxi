# Unsigned varints of messages, as the compiled modules read them.


cdef inline const uint8_t *uvarint32(const uint8_t *p, const uint8_t *stop, uint32_t *out) noexcept nogil:
    """An unsigned varint of at most 32 bits; NULL if it does not end before `stop` or is larger."""
    cdef uint64_t value = 0
    cdef int shift = 0
    while p < stop and shift < 35:
        value |= <uint64_t>(p[0] & 0x7F) << shift
        p += 1
        if p[-1] < 0x80:
            if value >> 32:
                return NULL
            out[0] = <uint32_t>value
            return p
        shift += 7
    return NULL
