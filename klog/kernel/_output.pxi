# Shared by the text kernels: a growing output buffer, numbers, UTF-8 by Java's rules.
#
# `Out` writes into a bytearray that the caller owns and reuses. A `put_*` function whose docstring names the bytes
# that it writes expects that the caller has reserved them; the others reserve what they need.

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE, PyByteArray_Resize
from cpython.object cimport PyObject
from libc.stdint cimport int32_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

from klog.formats.errors import FormatError


cdef struct Out:
    PyObject *holder  # the caller's bytearray; borrowed
    char *base
    char *at
    char *end


cdef inline int open_out(Out *o, bytearray holder, Py_ssize_t at) except -1:
    if at < 0 or at > PyByteArray_GET_SIZE(holder):
        raise ValueError(f"cannot write at {at} of a buffer of {len(holder)} bytes")
    o.holder = <PyObject *>holder
    o.base = PyByteArray_AS_STRING(holder)
    o.at = o.base + at
    o.end = o.base + PyByteArray_GET_SIZE(holder)
    return 0


cdef int grow(Out *o, Py_ssize_t need) except -1:
    cdef Py_ssize_t used = o.at - o.base
    PyByteArray_Resize(<object>o.holder, 2 * (used + need) + 4096)
    o.base = PyByteArray_AS_STRING(<object>o.holder)
    o.at = o.base + used
    o.end = o.base + PyByteArray_GET_SIZE(<object>o.holder)
    return 0


cdef inline int reserve(Out *o, Py_ssize_t need) except -1:
    return grow(o, need) if o.end - o.at < need else 0


cdef inline Py_ssize_t used(const Out *o) noexcept:
    return o.at - o.base


cdef extern from *:
    """
    /* A macro around a function that is always inlined: only then does the compiler know the size of a literal. */
    #include <string.h>
    #if defined(__GNUC__)
    #define klog_always_inline inline __attribute__((always_inline))
    #else
    #define klog_always_inline inline
    #endif
    static klog_always_inline void klog_put(char **at, const char *text) {
        size_t size = strlen(text);
        memcpy(*at, text, size);
        *at += size;
    }
    #define put(o, text) klog_put(&(o)->at, (text))
    """
    void put(Out *o, const char *text) noexcept


cdef inline int put_bytes(Out *o, const uint8_t *data, Py_ssize_t size) except -1:
    reserve(o, size)
    memcpy(o.at, data, size)
    o.at += size
    return 0


cdef char[200] DIGIT_PAIRS
for _number in range(100):
    DIGIT_PAIRS[2 * _number] = 48 + _number // 10
    DIGIT_PAIRS[2 * _number + 1] = 48 + _number % 10


cdef inline void put_int(Out *o, long long number) noexcept:
    """Writes at most 20 bytes."""
    cdef char[24] digits
    cdef char *at = &digits[24]
    cdef uint64_t rest = <uint64_t>number
    cdef uint64_t pair
    if number < 0:
        rest = 0 - rest
        o.at[0] = 45
        o.at += 1
    while rest >= 100:
        pair = rest % 100
        rest //= 100
        at -= 2
        memcpy(at, &DIGIT_PAIRS[2 * pair], 2)
    if rest >= 10:
        at -= 2
        memcpy(at, &DIGIT_PAIRS[2 * rest], 2)
    else:
        at -= 1
        at[0] = <char>(48 + rest)
    memcpy(o.at, at, &digits[24] - at)
    o.at += &digits[24] - at


cdef inline void put_field(Out *o, const char *label, long long number) noexcept:
    """Writes the label and at most 20 bytes."""
    put(o, label)
    put_int(o, number)


cdef uint64_t ASCII_MASK = 0x8080808080808080ULL
cdef uint64_t ONES = 0x0101010101010101ULL


cdef inline uint64_t load64(const uint8_t *data) noexcept:
    cdef uint64_t word
    memcpy(&word, data, 8)
    return word


cdef inline bint follows(uint8_t byte) noexcept:
    return (byte & 0xC0) == 0x80


cdef inline Py_ssize_t sequence_size(const uint8_t *p, Py_ssize_t left) noexcept:
    """How many bytes the well-formed UTF-8 sequence at `p` has; 0 if it is not well-formed."""
    cdef uint8_t lead = p[0]
    if lead < 0x80:
        return 1
    if lead < 0xC2 or lead > 0xF4 or left < 2 or not follows(p[1]):
        return 0
    if lead < 0xE0:
        return 2
    if lead < 0xF0:
        if (lead == 0xE0 and p[1] < 0xA0) or (lead == 0xED and p[1] > 0x9F):
            return 0
        return 3 if left >= 3 and follows(p[2]) else 0
    if (lead == 0xF0 and p[1] < 0x90) or (lead == 0xF4 and p[1] > 0x8F):
        return 0
    return 4 if left >= 4 and follows(p[2]) and follows(p[3]) else 0


cdef inline Py_ssize_t well_formed(const uint8_t *p, Py_ssize_t size) noexcept:
    """How many bytes from `p` on are well-formed UTF-8."""
    cdef Py_ssize_t at = 0
    cdef Py_ssize_t step
    while at < size:
        while size - at >= 16 and not ((load64(p + at) | load64(p + at + 8)) & ASCII_MASK):
            at += 16
        if at == size:
            break
        step = sequence_size(p + at, size - at)
        if step == 0:
            break
        at += step
    return at


cdef inline Py_ssize_t ill_formed(const uint8_t *p, Py_ssize_t left) noexcept:
    """How many bytes Java's decoder replaces by one U+FFFD at `p`, if no well-formed sequence starts there.

    It replaces a maximal prefix of a sequence, as Unicode recommends, and a whole encoded surrogate.
    """
    cdef uint8_t lead = p[0]
    if lead < 0xE0 or lead > 0xF4 or left < 2 or not follows(p[1]):
        return 1
    if lead < 0xF0:
        if lead == 0xE0 and p[1] < 0xA0:
            return 1
        return 3 if left >= 3 and follows(p[2]) else 2
    if (lead == 0xF0 and p[1] < 0x90) or (lead == 0xF4 and p[1] > 0x8F):
        return 1
    return 3 if left >= 3 and follows(p[2]) else 2


ctypedef int (*PutText)(Out *o, const uint8_t *p, Py_ssize_t size) except -1


cdef inline int put_replacing(Out *o, const uint8_t *p, Py_ssize_t size, PutText put_text) except -1:
    """Pass the well-formed runs of UTF-8 to `put_text`; U+FFFD takes the place of what Java would replace."""
    cdef Py_ssize_t run
    while True:
        run = well_formed(p, size)
        put_text(o, p, run)
        if run == size:
            return 0
        reserve(o, 3)
        put(o, b"\xef\xbf\xbd")
        p += run
        size -= run
        run = ill_formed(p, size)
        p += run
        size -= run


cdef inline int32_t wrap32(long long number) noexcept:
    return <int32_t><uint32_t><uint64_t>number


cdef inline int32_t sequence_after(int32_t sequence, int32_t increment) noexcept:
    """As `klog.formats.wrapping.sequence_after`."""
    if sequence > wrap32(2147483647LL - increment):
        return wrap32(<long long>increment - wrap32(2147483647LL - sequence) - 1)
    return wrap32(<long long>sequence + increment)
