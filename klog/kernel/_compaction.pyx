# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The offset map of compaction, and the rewriting of batches, compiled. `_pycompaction` states their meaning.

Keys are hashed by SipHash-2-4 with 128 bits of output. Keys are hashed and looked up in blocks: the slots of a
block are prefetched while the rest of the block is hashed, because the table is far larger than any cache.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

from klog.formats.errors import CorruptRecordError, UsageError

include "_columns.pxi"
include "_records.pxi"
include "_varint.pxi"
include "_derived.pxi"
include "_numbers.pxi"
include "_derived_records.pxi"
include "_record_writing.pxi"
include "_siphash.pxi"

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
    SMALL_TABLE = 8192  # the largest number of slots at the beginning
    BLOCK = 32
    MOST_ADDED = 32  # more bytes than the fields before a key can grow by

cdef struct Slot:
    uint64_t high
    uint64_t low
    int64_t next_offset  # the offset + 1; 0 says that the slot is empty


# The map


cdef class OffsetMap:
    # The table begins small, and is made four times as large as it fills, up to `slots`. Most logs have few keys,
    # and a small table stays in a cache. While it grows for the last time it takes a quarter more memory.
    cdef Slot *table
    cdef int64_t allocated  # slots that the table has now
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
        self.allocated = self.slots
        while self.allocated > SMALL_TABLE:
            self.allocated = (self.allocated + 3) // 4
        self.table = <Slot *>calloc(self.allocated, SLOT_BYTES)
        if self.table == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self.table)

    cdef inline Slot *home(self, Hash hash_of_key) noexcept nogil:
        return self.table + <int64_t>(hash_of_key.low % <uint64_t>self.allocated)

    cdef inline Slot *find(self, Hash wanted) noexcept nogil:
        """The slot of a key, or the empty one in which it would be put."""
        cdef Slot *slot = self.home(wanted)
        cdef Slot *end = self.table + self.allocated
        while slot.next_offset != 0 and (slot.high != wanted.high or slot.low != wanted.low):
            slot += 1
            if slot == end:
                slot = self.table
        return slot

    cdef bint grow(self) noexcept nogil:
        """Move to a table four times as large, or to the largest; False if there is no memory for it."""
        cdef Slot *old = self.table
        cdef int64_t old_slots = self.allocated, at
        cdef Hash moved
        cdef int64_t slots = self.slots if self.allocated > self.slots // 4 else self.allocated * 4
        cdef Slot *table = <Slot *>calloc(slots, SLOT_BYTES)
        if table == NULL:
            return False
        self.table = table
        self.allocated = slots
        for at in range(old_slots):
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
        cdef bint full = False, out_of_memory = False
        open_rows(&rows, records, first, last)
        open_buffer(&buffer, payload)
        try:
            require_spans(&buffer, &rows, first, last)
            row = start = first
            with nogil:
                while start < last and not full:
                    stop = start + BLOCK if last - start > BLOCK else last
                    if self.size + BLOCK > self.allocated // 4 * 3 and self.allocated < self.slots:
                        if not self.grow():
                            out_of_memory = True
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
        if out_of_memory:
            raise MemoryError
        return row if full else last

    def hash_of(self, key):
        """The 16 bytes that represent a key."""
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
        open_rows(&rows, records, first, last)
        open_batches(&batches, table)
        require_batches(&rows, first, last, batches.rows)
        if len(kept) != batches.rows or len(tombstones) != batches.rows or len(last_kept) != batches.rows:
            raise UsageError("a selection of another table")
        keeps = keep_column.data.as_uchars
        kept_of = longs(kept)
        tombstones_of = longs(tombstones)
        last_kept_of = longs(last_kept)
        open_buffer(&buffer, payload)
        try:
            require_spans(&buffer, &rows, first, last)
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


cdef int open_rows(Records *rows, records, Py_ssize_t first, Py_ssize_t last) except -1:
    open_records(rows, records, 0)
    if not 0 <= first <= last <= rows.rows:
        raise UsageError(f"records {first} to {last} of a table of {rows.rows}")
    return 0


cdef int require_spans(const Buffer *buffer, const Records *rows, Py_ssize_t first, Py_ssize_t last) except -1:
    cdef Py_ssize_t row
    for row in range(first, last):
        if not fits(buffer, rows.key_start[row], rows.key_size[row]):
            raise UsageError(f"record {row} of the table does not lie in the payload")
    return 0


cdef int require_batches(const Records *rows, Py_ssize_t first, Py_ssize_t last, Py_ssize_t batches) except -1:
    cdef Py_ssize_t row
    for row in range(first, last):
        if not 0 <= rows.batch[row] < batches:
            raise UsageError(f"record {row} belongs to no batch of the table")
    return 0


cdef inline bint fits(const Buffer *buffer, int64_t start, int64_t size) noexcept nogil:
    return size <= 0 or (0 <= start <= buffer.size and size <= buffer.size - start)


include "_rewrite.pxi"
