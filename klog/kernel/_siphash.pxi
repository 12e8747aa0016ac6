# SipHash-2-4 with 128 bits of output, for the keys of the compiled offset map.


cdef struct Hash:
    uint64_t high
    uint64_t low


cdef inline uint64_t rotated(uint64_t value, int bits) noexcept nogil:
    return (value << bits) | (value >> (64 - bits))


cdef inline void sip_round(uint64_t *v) noexcept nogil:
    v[0] += v[1]
    v[1] = rotated(v[1], 13) ^ v[0]
    v[0] = rotated(v[0], 32)
    v[2] += v[3]
    v[3] = rotated(v[3], 16) ^ v[2]
    v[0] += v[3]
    v[3] = rotated(v[3], 21) ^ v[0]
    v[2] += v[1]
    v[1] = rotated(v[1], 17) ^ v[2]
    v[2] = rotated(v[2], 32)


cdef inline uint64_t le64(const uint8_t *p) noexcept nogil:
    cdef uint64_t value = 0
    cdef int i
    for i in range(8):
        value |= <uint64_t>p[i] << (8 * i)
    return value


cdef inline Hash sip128(const uint8_t *data, int64_t size, uint64_t k0, uint64_t k1) noexcept nogil:
    cdef uint64_t v[4]
    cdef uint64_t word
    cdef int64_t at = 0, left
    cdef Hash result
    cdef int i
    v[0] = k0 ^ <uint64_t>0x736F6D6570736575
    v[1] = k1 ^ <uint64_t>0x646F72616E646F6D ^ 0xEE
    v[2] = k0 ^ <uint64_t>0x6C7967656E657261
    v[3] = k1 ^ <uint64_t>0x7465646279746573
    while size - at >= 8:
        word = le64(data + at)
        v[3] ^= word
        sip_round(v)
        sip_round(v)
        v[0] ^= word
        at += 8
    word = <uint64_t>size << 56
    left = size - at
    for i in range(<int>left):
        word |= <uint64_t>data[at + i] << (8 * i)
    v[3] ^= word
    sip_round(v)
    sip_round(v)
    v[0] ^= word
    v[2] ^= 0xEE
    for i in range(4):
        sip_round(v)
    result.high = v[0] ^ v[1] ^ v[2] ^ v[3]
    v[1] ^= 0xDD
    for i in range(4):
        sip_round(v)
    result.low = v[0] ^ v[1] ^ v[2] ^ v[3]
    return result
