# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Keys to last offsets, and records of a batch written anew, compiled. `_pycompaction` states what they mean.

Keys are hashed by SipHash-2-4 with 128 bits of output. Hashing and probing go in blocks, so that the slots that
a block needs come from memory while the rest of it is hashed: the table is far larger than any cache.
"""

from cpython cimport array
from cpython.buffer cimport (
    Py_buffer,
    PyBUF_SIMPLE,
    PyBuffer_FillInfo,
    PyBuffer_Release,
    PyObject_GetBuffer,
)
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

from klog.formats.errors import CorruptRecordError, UsageError

include "_columns.pxi"
include "_records.pxi"
include "_varint.pxi"

IMPLEMENTATION = "cython"

cdef extern from *:
    """
    #if defined(__GNUC__) || defined(__clang__)
    #define klog_prefetch(p) __builtin_prefetch(p, 1)
    #else
    #define klog_prefetch(p) ((void)(p))
    #endif
    """
    void klog_prefetch(const void *p) noexcept nogil

cdef enum:
    SLOT_BYTES = 24
    SMALL_TABLE = 8192  # slots to begin with, at most
    BLOCK = 32
    MOST_ADDED = 32  # bytes that the fields before a key may grow by, with room to spare
    DELETE_HORIZON_BIT = 0x40

cdef struct Slot:
    uint64_t high
    uint64_t low
    int64_t next_offset  # the offset + 1; 0 says that the slot is empty

cdef struct Hash:
    uint64_t high
    uint64_t low


# SipHash


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


# The map


cdef class OffsetMap:
    # The table begins small and grows with its keys, by four, up to `slots`: most logs have few keys, and then
    # it stays in a cache. While it grows for the last time it takes a quarter more than its share.
    cdef Slot *table
    cdef int64_t room  # slots that the table has now
    cdef readonly int64_t slots
    cdef readonly int64_t capacity
    cdef readonly int64_t size
    cdef public int64_t latest_offset
    cdef uint64_t k0
    cdef uint64_t k1

    def __cinit__(self, int64_t memory_bytes, double load_factor, bytes secret):
        if len(secret) != 16:
            raise UsageError("the secret of an offset map has 16 bytes")
        self.slots = memory_bytes // SLOT_BYTES
        self.capacity = <int64_t>(self.slots * load_factor)
        if self.capacity < 1 or self.capacity >= self.slots:
            raise UsageError("offset map is too small to hold a single key, or may fill up",
                             cure="raise log.cleaner.dedupe.buffer.size")
        self.latest_offset = -1
        self.k0 = le64(<const uint8_t *>PyBytes_AS_STRING(secret))
        self.k1 = le64(<const uint8_t *>PyBytes_AS_STRING(secret) + 8)
        self.room = self.slots
        while self.room > SMALL_TABLE:
            self.room = (self.room + 3) // 4
        self.table = <Slot *>calloc(self.room, SLOT_BYTES)
        if self.table == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self.table)

    cdef inline Slot *home(self, Hash hash_of_key) noexcept nogil:
        return self.table + <int64_t>(hash_of_key.low % <uint64_t>self.room)

    cdef inline Slot *find(self, Hash wanted) noexcept nogil:
        """The slot of a key, or the empty one where it would go."""
        cdef Slot *slot = self.home(wanted)
        cdef Slot *end = self.table + self.room
        while slot.next_offset != 0 and (slot.high != wanted.high or slot.low != wanted.low):
            slot += 1
            if slot == end:
                slot = self.table
        return slot

    cdef bint grow(self) noexcept nogil:
        """Move to a table four times as large, or to the largest; False where there is no memory for it."""
        cdef Slot *old = self.table
        cdef int64_t old_room = self.room, at
        cdef Hash moved
        cdef int64_t room = self.slots if self.room > self.slots // 4 else self.room * 4
        cdef Slot *table = <Slot *>calloc(room, SLOT_BYTES)
        if table == NULL:
            return False
        self.table = table
        self.room = room
        for at in range(old_room):
            if old[at].next_offset != 0:
                moved.high = old[at].high
                moved.low = old[at].low
                self.find(moved)[0] = old[at]
        free(old)
        return True

    def put(self, payload, records, Py_ssize_t first, Py_ssize_t last, int64_t from_offset):
        cdef Buffer buffer
        cdef Records rows
        cdef Hash hashes[BLOCK]
        cdef Slot *slot
        cdef Py_ssize_t start, stop, row
        cdef bint full = False, starved = False
        look_at(&rows, records, first, last)
        open_buffer(&buffer, payload)
        try:
            demand_spans(&buffer, &rows, first, last)
            row = start = first
            with nogil:
                while start < last and not full:
                    stop = start + BLOCK if last - start > BLOCK else last
                    if self.size + BLOCK > self.room // 4 * 3 and self.room < self.slots:
                        if not self.grow():
                            starved = True
                            break
                    for row in range(start, stop):
                        if rows.key_size[row] >= 0 and rows.offset[row] >= from_offset:
                            hashes[row - start] = sip128(
                                buffer.start + rows.key_start[row], rows.key_size[row], self.k0, self.k1
                            )
                            klog_prefetch(self.home(hashes[row - start]))
                    for row in range(start, stop):
                        if rows.key_size[row] < 0 or rows.offset[row] < from_offset:
                            continue
                        if self.size >= self.capacity:
                            full = True
                            break
                        slot = self.find(hashes[row - start])
                        if slot.next_offset == 0:
                            slot.high = hashes[row - start].high
                            slot.low = hashes[row - start].low
                            self.size += 1
                        slot.next_offset = rows.offset[row] + 1
                        self.latest_offset = rows.offset[row]
                    start = stop
        finally:
            PyBuffer_Release(&buffer.view)
        if starved:
            raise MemoryError
        return row if full else last

    def hash_of(self, key):
        """The 16 bytes that stand for a key."""
        cdef Buffer buffer
        cdef Hash found
        open_buffer(&buffer, key)
        found = sip128(buffer.start, buffer.size, self.k0, self.k1)
        PyBuffer_Release(&buffer.view)
        return int(found.high).to_bytes(8, "little") + int(found.low).to_bytes(8, "little")

    def get(self, key):
        cdef Buffer buffer
        open_buffer(&buffer, key)
        try:
            return self.find(sip128(buffer.start, buffer.size, self.k0, self.k1)).next_offset - 1
        finally:
            PyBuffer_Release(&buffer.view)

    def select(
        self, payload, table, records, Py_ssize_t first, Py_ssize_t last, int64_t now_ms, bint keep_legacy, chosen
    ):
        cdef Buffer buffer
        cdef Records rows
        cdef Batches batches
        cdef Hash hashes[BLOCK]
        cdef Py_ssize_t start, stop, row, batch
        cdef int64_t found, invalid = 0
        cdef int keep
        cdef array.array keep_column = flags_of(chosen, last)
        cdef array.array kept = column(chosen, "kept"), tombstones = column(chosen, "tombstones")
        cdef array.array last_kept = column(chosen, "last_kept_offset")
        cdef uint8_t *keeps
        cdef int64_t *kept_of
        cdef int64_t *tombstones_of
        cdef int64_t *last_kept_of
        look_at(&rows, records, first, last)
        open_batches(&batches, table)
        demand_batches(&rows, first, last, batches.rows)
        if len(kept) != batches.rows or len(tombstones) != batches.rows or len(last_kept) != batches.rows:
            raise UsageError("a selection of another table")
        keeps = keep_column.data.as_uchars
        kept_of = longs(kept)
        tombstones_of = longs(tombstones)
        last_kept_of = longs(last_kept)
        open_buffer(&buffer, payload)
        try:
            demand_spans(&buffer, &rows, first, last)
            start = first
            with nogil:
                while start < last:
                    stop = start + BLOCK if last - start > BLOCK else last
                    for row in range(start, stop):
                        if rows.key_size[row] >= 0 and rows.offset[row] <= self.latest_offset:
                            hashes[row - start] = sip128(
                                buffer.start + rows.key_start[row], rows.key_size[row], self.k0, self.k1
                            )
                            klog_prefetch(self.home(hashes[row - start]))
                    for row in range(start, stop):
                        batch = rows.batch[row]
                        if rows.offset[row] > self.latest_offset:
                            keep = 1
                        elif rows.key_size[row] < 0:
                            keep = 0
                            invalid += 1
                        else:
                            found = self.find(hashes[row - start]).next_offset - 1
                            keep = rows.offset[row] >= found
                            if keep and rows.value_size[row] < 0:
                                if batches.magic[batch] < 2:
                                    keep = keep_legacy
                                elif batches.attributes[batch] & DELETE_HORIZON_BIT:
                                    keep = now_ms < batches.base_timestamp[batch]
                        keeps[row] = keep
                        if keep:
                            kept_of[batch] += 1
                            last_kept_of[batch] = rows.offset[row]
                            tombstones_of[batch] += rows.value_size[row] < 0
                    start = stop
        finally:
            PyBuffer_Release(&buffer.view)
        return invalid


cdef array.array flags_of(chosen, Py_ssize_t rows):
    cdef array.array keep = chosen.keep
    if keep.ob_descr.itemsize != 1 or keep.ob_descr.typecode_char != c"B":
        raise UsageError("flags are not an array of bytes")
    if len(keep) < rows:
        resize_column(keep, rows)
    return keep


cdef int look_at(Records *rows, records, Py_ssize_t first, Py_ssize_t last) except -1:
    open_records(rows, records, 0)
    if not 0 <= first <= last <= rows.rows:
        raise UsageError(f"records {first} to {last} of a table of {rows.rows}")
    return 0


cdef int demand_spans(const Buffer *buffer, const Records *rows, Py_ssize_t first, Py_ssize_t last) except -1:
    cdef Py_ssize_t row
    for row in range(first, last):
        if not fits(buffer, rows.key_start[row], rows.key_size[row]):
            raise UsageError(f"record {row} of the table does not lie in the payload")
    return 0


cdef int demand_batches(const Records *rows, Py_ssize_t first, Py_ssize_t last, Py_ssize_t batches) except -1:
    cdef Py_ssize_t row
    for row in range(first, last):
        if not 0 <= rows.batch[row] < batches:
            raise UsageError(f"record {row} belongs to no batch of the table")
    return 0


cdef inline bint fits(const Buffer *buffer, int64_t start, int64_t size) noexcept nogil:
    return size <= 0 or (0 <= start <= buffer.size and size <= buffer.size - start)


# Records written anew


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
    """The end of `count` headers; NULL where they are not there."""
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


def rewrite(payload, records, Py_ssize_t first, Py_ssize_t last, keep, int64_t base_offset, base_timestamp):
    cdef Buffer buffer
    cdef Records rows
    cdef array.array flags = keep
    cdef Py_ssize_t row, count = 0
    cdef int64_t size = 0, base = 0, largest = -1, previous = -1, body, headers_bytes, delta
    cdef const uint8_t *headers_end
    cdef const uint8_t *end
    cdef uint8_t *out
    cdef uint8_t *p
    cdef bytes room
    cdef bint based = base_timestamp is not None
    look_at(&rows, records, first, last)
    if len(flags) < last or flags.ob_descr.typecode_char != c"B":
        raise UsageError("flags for fewer records than there are")
    if based:
        base = base_timestamp
    open_buffer(&buffer, payload)
    try:
        for row in range(first, last):
            if not flags.data.as_uchars[row]:
                continue
            if (
                not fits(&buffer, rows.key_start[row], rows.key_size[row])
                or not fits(&buffer, rows.value_start[row], rows.value_size[row])
                or not 0 <= rows.headers_start[row] <= buffer.size
                or rows.record_size[row] < 0
            ):
                raise UsageError(f"record {row} of the table does not lie in the payload")
            size += rows.record_size[row] + MOST_ADDED
        # `record_size` bounds what is written: its parts are copied from there or written no longer.
        room = PyBytes_FromStringAndSize(NULL, size)
        out = p = <uint8_t *>PyBytes_AS_STRING(room)
        end = buffer.start + buffer.size
        for row in range(first, last):
            if not flags.data.as_uchars[row]:
                continue
            if rows.timestamp[row] < -1:
                raise CorruptRecordError(f"record {rows.offset[row]} has the timestamp {rows.timestamp[row]}")
            if count and rows.offset[row] <= previous:
                raise CorruptRecordError(f"offset {rows.offset[row]} follows {previous} in one batch")
            previous = rows.offset[row]
            if not based:
                base = rows.timestamp[row]
                based = True
            headers_end = after_headers(buffer.start + rows.headers_start[row], end, rows.header_count[row])
            if headers_end == NULL:
                raise UsageError(f"headers of record {row} do not lie in the payload")
            headers_bytes = headers_end - buffer.start - rows.headers_start[row]
            delta = <int64_t>(<uint64_t>rows.timestamp[row] - <uint64_t>base)
            body = (
                1
                + size_of_varint(zigzag64(delta))
                + size_of_varint(zigzag64(rows.offset[row] - base_offset))
                + size_of_varint(zigzag64(rows.key_size[row]))
                + (rows.key_size[row] if rows.key_size[row] > 0 else 0)
                + size_of_varint(zigzag64(rows.value_size[row]))
                + (rows.value_size[row] if rows.value_size[row] > 0 else 0)
                + size_of_varint(zigzag64(rows.header_count[row]))
                + headers_bytes
            )
            if body > rows.record_size[row] + MOST_ADDED - 10:
                raise UsageError(f"record {row} is larger than the table says")
            p = put_varint(p, zigzag64(body))
            p[0] = 0
            p = put_varint(p + 1, zigzag64(delta))
            p = put_varint(p, zigzag64(rows.offset[row] - base_offset))
            p = put_sized(p, buffer.start + rows.key_start[row], rows.key_size[row])
            p = put_sized(p, buffer.start + rows.value_start[row], rows.value_size[row])
            p = put_varint(p, zigzag64(rows.header_count[row]))
            memcpy(p, buffer.start + rows.headers_start[row], headers_bytes)
            p += headers_bytes
            count += 1
            if rows.timestamp[row] > largest:
                largest = rows.timestamp[row]
    finally:
        PyBuffer_Release(&buffer.view)
    return room[: p - out], count, base, largest
