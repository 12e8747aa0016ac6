# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The record kernel, compiled. `_pykernel`, `_pydecode` and `_pyappend` state the meaning of each function.

Every read is inside the buffer: a position is compared with the end before it is read, and a size is compared
with the bytes that are left (adding it to the position first could overflow). Columns grow by the number of
records that the bytes can hold (a magic 2 record takes at least 7 bytes), never by what a count field says.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from klog.formats.checksums import confirm_crc32, confirm_crc32c, crc32, crc32c
from klog.formats.errors import CorruptRecordError, UsageError

IMPLEMENTATION = "cython"

include "_columns.pxi"
include "_records.pxi"
include "_varint.pxi"
include "_derived.pxi"
include "_numbers.pxi"
include "_derived_records.pxi"
include "_record_checks.pxi"

cdef enum:
    SMALLEST_RECORD = 7  # seven fields of a byte each


# Batches


cdef struct FoundBatches:
    Py_ssize_t batches
    int64_t consumed
    int64_t need
    bint bad_size
    int32_t size_field


cdef FoundBatches find_batches(const uint8_t *data, int64_t end, bint final) noexcept nogil:
    """Find the whole batches of a buffer."""
    cdef FoundBatches found
    cdef int64_t at = 0, size, need
    cdef int32_t follows
    found.batches = 0
    found.need = 0
    found.bad_size = False
    found.size_field = 0
    while end - at > MAGIC_POSITION + 1:
        follows = <int32_t>be32(data + at + ENTRY_SIZE_POSITION)
        if follows < MIN_MESSAGE_SIZE:
            found.bad_size = True
            found.size_field = follows
            break
        size = <int64_t>follows + ENTRY_PREFIX_BYTES
        need = size
        if <int8_t>data[at + MAGIC_POSITION] >= 2 and need < BATCH_HEADER_BYTES:
            need = BATCH_HEADER_BYTES
        if end - at < size or (end - at < need and not final):
            found.need = need
            break
        found.batches += 1
        at += size
    found.consumed = at
    return found


def scan(data, int64_t origin, bint final, table):
    cdef Buffer buffer
    cdef FoundBatches found
    cdef Batches batches
    cdef const uint8_t *p
    cdef uint8_t header[BATCH_HEADER_BYTES]
    cdef int64_t at = 0
    cdef Py_ssize_t row
    cdef int i
    table.clear(origin)
    open_buffer(&buffer, data)
    try:
        found = find_batches(buffer.start, buffer.size, final)
        resize_batches(table, found.batches)
        open_batches(&batches, table)
        for row in range(found.batches):
            p = buffer.start + at
            batches.position[row] = origin + at
            batches.size[row] = <int64_t><int32_t>be32(p + ENTRY_SIZE_POSITION) + ENTRY_PREFIX_BYTES
            batches.magic[row] = <int8_t>p[MAGIC_POSITION]
            at += batches.size[row]
            if batches.magic[row] < 2:
                put_legacy(&batches, row, p)
                continue
            if p - buffer.start > buffer.size - BATCH_HEADER_BYTES:
                # The file ends inside the header of a batch whose size field is smaller than the header.
                for i in range(BATCH_HEADER_BYTES):
                    header[i] = p[i] if p + i < buffer.start + buffer.size else 0
                p = header
            put_v2(&batches, row, p)
    finally:
        PyBuffer_Release(&buffer.view)
    table.consumed_bytes = found.consumed
    table.need_bytes = found.need
    if found.bad_size:
        table.stop = 1
        table.stop_size = found.size_field


cdef inline void put_v2(Batches *batches, Py_ssize_t row, const uint8_t *p) noexcept nogil:
    """`p` points at a whole header."""
    batches.base_offset[row] = <int64_t>be64(p + BATCH_BASE_OFFSET_POSITION)
    batches.last_offset[row] = wrapping_sum(<int64_t>be64(p + BATCH_BASE_OFFSET_POSITION), <int32_t>be32(p + BATCH_LAST_OFFSET_DELTA_POSITION))
    batches.crc[row] = be32(p + BATCH_CRC_POSITION)
    batches.attributes[row] = <int16_t>be16(p + BATCH_ATTRIBUTES_POSITION)
    batches.count[row] = <int32_t>be32(p + BATCH_COUNT_POSITION)
    batches.base_timestamp[row] = <int64_t>be64(p + BATCH_BASE_TIMESTAMP_POSITION)
    batches.max_timestamp[row] = <int64_t>be64(p + BATCH_MAX_TIMESTAMP_POSITION)
    batches.producer_id[row] = <int64_t>be64(p + BATCH_PRODUCER_ID_POSITION)
    batches.producer_epoch[row] = <int16_t>be16(p + BATCH_PRODUCER_EPOCH_POSITION)
    batches.base_sequence[row] = <int32_t>be32(p + BATCH_BASE_SEQUENCE_POSITION)
    batches.leader_epoch[row] = <int32_t>be32(p + BATCH_LEADER_EPOCH_POSITION)


cdef inline void put_legacy(Batches *batches, Py_ssize_t row, const uint8_t *p) noexcept nogil:
    """`p` points at a message, which has at least `MIN_ENTRY_BYTES`."""
    cdef int64_t timestamp = -1
    if batches.magic[row] != 0:
        timestamp = <int64_t>be64(p + MESSAGE_TIMESTAMP_POSITION)
    batches.last_offset[row] = <int64_t>be64(p + BATCH_BASE_OFFSET_POSITION)
    batches.base_offset[row] = -1 if p[MESSAGE_ATTRIBUTES_POSITION] & CODEC_MASK else batches.last_offset[row]
    batches.crc[row] = be32(p + MESSAGE_CRC_POSITION)
    batches.attributes[row] = p[MESSAGE_ATTRIBUTES_POSITION]
    batches.count[row] = -1
    batches.base_timestamp[row] = timestamp
    batches.max_timestamp[row] = timestamp
    batches.producer_id[row] = -1
    batches.producer_epoch[row] = -1
    batches.base_sequence[row] = -1
    batches.leader_epoch[row] = -1


cdef inline int64_t batch_at(const Buffer *buffer, const Batches *batches, Py_ssize_t row) except -1:
    """The position of batch `row` in the buffer. Raises `UsageError` unless all of it is there."""
    cdef int64_t at = <int64_t>(<uint64_t>batches.position[row] - <uint64_t>batches.origin)
    cdef int64_t size = batches.size[row]
    if at < 0 or size < MIN_ENTRY_BYTES or at > buffer.size or size > buffer.size - at:
        raise UsageError(f"batch {row} of the table does not lie in the buffer")
    return at


def verify(data, table):
    cdef Buffer buffer
    cdef Batches batches
    cdef Py_ssize_t row = 0
    cdef int64_t at, size
    cdef int64_t computed
    cdef bint good
    cdef Py_ssize_t bad = 0
    cdef Span span = Span.__new__(Span)
    cdef object of_message = crc32, of_batch = crc32c
    cdef array.array valid = column(table, "valid"), computed_crc = column(table, "computed_crc")
    resize_column(valid, 0)
    resize_column(computed_crc, 0)
    resize_column(valid, len(table))
    resize_column(computed_crc, len(table))
    open_buffer(&buffer, data)
    try:
        open_batches(&batches, table)
        while row < batches.rows:
            at = batch_at(&buffer, &batches, row)
            size = batches.size[row]
            if batches.magic[row] < 2:
                span.point(buffer.start + at + MESSAGE_CRC_FROM, size - MESSAGE_CRC_FROM)
                computed = of_message(span)
                good = computed == batches.crc[row]
                if not good:
                    confirm_crc32(span, computed)
            else:
                span.point(buffer.start + at + BATCH_CRC_FROM, size - BATCH_CRC_FROM)
                computed = of_batch(span)
                good = size >= BATCH_HEADER_BYTES and computed == batches.crc[row]
                if computed != batches.crc[row]:
                    confirm_crc32c(span, computed)
            valid.data.as_longlongs[row] = good
            computed_crc.data.as_longlongs[row] = computed
            bad += not good
            row += 1
    except BaseException:
        resize_column(valid, row)
        resize_column(computed_crc, row)
        raise
    finally:
        PyBuffer_Release(&buffer.view)
    return bad


def index(table, state):
    cdef Batches batches
    cdef array.array valid = column(table, "valid")
    cdef array.array offsets = column(state, "offsets"), positions = column(state, "positions")
    cdef array.array timestamps = column(state, "timestamps")
    cdef array.array timestamp_offsets = column(state, "timestamp_offsets")
    cdef Py_ssize_t entries = len(offsets), times = len(timestamps), row
    cdef int64_t base = state.base_offset, interval = state.interval_bytes
    cdef int64_t since = state.bytes_since_entry
    cdef int64_t largest = state.max_timestamp, largest_offset = state.max_timestamp_offset
    cdef int64_t last_time = state.last_index_timestamp, last_taken = state.last_offset, last
    cdef str why = None
    open_batches(&batches, table)
    if len(valid) != batches.rows:
        raise UsageError("index of a table that was not verified")
    if len(positions) != entries or len(timestamp_offsets) != times:
        raise UsageError("columns of unequal length")
    for one in (offsets, positions):
        resize_column(one, entries + batches.rows)
    for one in (timestamps, timestamp_offsets):
        resize_column(one, times + batches.rows)
    row = 0
    while row < batches.rows:
        last = batches.last_offset[row]
        if not valid.data.as_longlongs[row]:
            why = "checksum"
            break
        if last < base or <uint64_t>last - <uint64_t>base > <uint64_t>INT32_MAX:
            why = "offset"
            break
        if batches.max_timestamp[row] > largest:
            largest = batches.max_timestamp[row]
            largest_offset = last
        if since > interval:
            offsets.data.as_longlongs[entries] = last - base
            positions.data.as_longlongs[entries] = batches.position[row]
            entries += 1
            if largest > last_time:
                timestamps.data.as_longlongs[times] = largest
                timestamp_offsets.data.as_longlongs[times] = largest_offset - base
                times += 1
                last_time = largest
            since = 0
        since += batches.size[row]
        last_taken = last
        row += 1
    for one in (offsets, positions):
        resize_column(one, entries)
    for one in (timestamps, timestamp_offsets):
        resize_column(one, times)
    state.bytes_since_entry = since
    state.max_timestamp = largest
    state.max_timestamp_offset = largest_offset
    state.last_index_timestamp = last_time
    state.last_offset = last_taken
    if why is not None:
        state.stopped_at = batches.position[row]
        state.why = why
    return why is None


include "_decode_messages.pxi"
include "_decode.pxi"
include "_append.pxi"
include "_follow.pxi"
