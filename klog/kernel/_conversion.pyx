# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Joins batches, changes message formats and compares records, compiled.

`_pyconversion` states the meaning and the rules.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy, memset

from klog.formats.checksums import crc32
from klog.formats.errors import CorruptRecordError, UsageError

include "_columns.pxi"
include "_records.pxi"
include "_varint.pxi"
include "_derived.pxi"
include "_numbers.pxi"
include "_derived_records.pxi"
include "_record_writing.pxi"

IMPLEMENTATION = "cython"

cdef enum:
    CELL_OFFSETS = 4096
    MALFORMED = -2
    NO_ROOM = -1
    MOST_ADDED = 32  # more bytes than a record's fields, without key, value and headers, take

cdef str BAD_RECORDS = "records of the batch do not decode"


cdef int64_t rebase(
    const uint8_t *p, const uint8_t *end, int64_t count, int64_t offset_shift, int64_t timestamp_shift,
    uint8_t *out, int64_t room,
) noexcept nogil:
    """Write `count` records with shifted deltas; the bytes written, NO_ROOM or MALFORMED."""
    cdef RecordHeadFields head
    cdef int32_t length
    cdef int64_t number, rest, body, delta
    cdef const uint8_t *stop
    cdef uint8_t *to = out
    for number in range(count):
        p = read_size_of_record(p, end, &length)
        if p == NULL or length < 1 or length > end - p:
            return MALFORMED
        stop = p + length
        p = read_record_head(p, stop, &head)
        if p == NULL:
            return MALFORMED
        delta = head.offsetDelta + offset_shift
        if delta < 0 or delta > INT32_MAX:
            return MALFORMED
        rest = stop - p
        head.timestampDelta = wrapping_sum(head.timestampDelta, timestamp_shift)
        head.offsetDelta = <int32_t>delta
        body = size_of_record_head(&head) + rest
        if body > INT32_MAX or body + size_of_varint(zigzag64(body)) > room - (to - out):
            return NO_ROOM
        to = write_size_of_record(to, <int32_t>body)
        to = write_record_head(to, &head)
        memcpy(to, p, rest)
        to += rest
        p = stop
    return to - out if p == end else MALFORMED


cdef class Joiner:
    cdef readonly int64_t limit_bytes
    cdef readonly int64_t rows
    cdef readonly int64_t base_offset
    cdef readonly int64_t last_offset
    cdef readonly int64_t leader_epoch
    cdef readonly int64_t attributes
    cdef readonly int64_t base_timestamp
    cdef readonly int64_t max_timestamp
    cdef readonly int64_t producer_id
    cdef readonly int64_t producer_epoch
    cdef readonly int64_t base_sequence
    cdef readonly int64_t count
    cdef int64_t compared
    cdef object lone  # the payload of the first batch, as long as it is the only one
    cdef int64_t lone_start
    cdef int64_t lone_size
    cdef uint8_t *out
    cdef int64_t size

    def __cinit__(self, int64_t limit_bytes, bint same_codec):
        self.limit_bytes = limit_bytes if limit_bytes > 0 else 0
        self.compared = 0xFFFF if same_codec else 0xFFFF & ~CODEC_MASK
        self.rows = 0
        self.out = <uint8_t *>malloc(self.limit_bytes + 1)
        if self.out == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self.out)

    cdef void begin(self, const Batches *batches, Py_ssize_t row) noexcept nogil:
        self.rows = 1
        self.size = 0
        self.base_offset = batches.base_offset[row]
        self.last_offset = batches.last_offset[row]
        self.leader_epoch = batches.leader_epoch[row]
        self.attributes = batches.attributes[row]
        self.base_timestamp = batches.base_timestamp[row]
        self.max_timestamp = batches.max_timestamp[row]
        self.producer_id = batches.producer_id[row]
        self.producer_epoch = batches.producer_epoch[row]
        self.base_sequence = batches.base_sequence[row]
        self.count = batches.count[row]

    cdef bint follows(self, const Batches *batches, Py_ssize_t row) noexcept nogil:
        """Whether the rules let the batch join the group, whatever its size is."""
        cdef int64_t base = batches.base_offset[row], attributes = batches.attributes[row]
        if (
            self.base_offset < 0
            or base <= self.last_offset
            or batches.last_offset[row] < base
            or batches.last_offset[row] - self.base_offset > INT32_MAX
            or base // CELL_OFFSETS != self.base_offset // CELL_OFFSETS
            or batches.leader_epoch[row] != self.leader_epoch
            or (attributes ^ self.attributes) & self.compared
            or attributes & (CONTROL_BIT | DELETE_HORIZON_BIT)
            or self.attributes & (CONTROL_BIT | DELETE_HORIZON_BIT)
            or self.count < 1
            or batches.count[row] < 1
            or self.count + batches.count[row] > INT32_MAX
            or batches.producer_id[row] != self.producer_id
        ):
            return False
        if attributes & TIMESTAMP_TYPE_BIT and batches.max_timestamp[row] != self.max_timestamp:
            return False
        if batches.producer_epoch[row] != self.producer_epoch:
            return False
        if self.producer_id < 0:
            return self.base_sequence < 0 and batches.base_sequence[row] == self.base_sequence and not (
                attributes & TRANSACTIONAL_BIT
            )
        return (
            self.base_sequence >= 0
            and base == self.last_offset + 1
            and batches.base_sequence[row] == self.base_sequence + (base - self.base_offset)
            and self.base_sequence + (batches.last_offset[row] - self.base_offset) <= INT32_MAX
        )

    cdef int64_t append(
        self, const uint8_t *start, int64_t size, const Batches *batches, Py_ssize_t row
    ) noexcept nogil:
        cdef int64_t written = rebase(
            start,
            start + size,
            batches.count[row],
            batches.base_offset[row] - self.base_offset,
            <int64_t>(<uint64_t>batches.base_timestamp[row] - <uint64_t>self.base_timestamp),
            self.out + self.size,
            self.limit_bytes - self.size,
        )
        if written < 0:
            return written
        self.size += written
        self.rows += 1
        self.count += batches.count[row]
        self.last_offset = batches.last_offset[row]
        if batches.max_timestamp[row] > self.max_timestamp:
            self.max_timestamp = batches.max_timestamp[row]
        return written

    cdef int64_t open_lone(self) except? -3:
        """Write the records of the first batch, before those of the second; its size, or what `rebase` says."""
        cdef Buffer buffer
        cdef int64_t written
        if self.lone_size > self.limit_bytes:
            return NO_ROOM
        open_buffer(&buffer, self.lone)
        try:
            if self.lone_start < 0 or self.lone_start + self.lone_size > buffer.size:
                raise UsageError("the batch does not lie in the buffer")
            written = rebase(
                buffer.start + self.lone_start, buffer.start + self.lone_start + self.lone_size, self.count,
                0, 0, self.out, self.limit_bytes,
            )
        finally:
            PyBuffer_Release(&buffer.view)
        if written >= 0:
            self.size = written
            self.lone = None
        return written

    cdef bint _add(self, payload, const Buffer *buffer, int64_t start, int64_t size,
                   const Batches *batches, Py_ssize_t row) except -1:
        cdef int64_t written
        if start < 0 or size < 0 or size > buffer.size - start:
            raise UsageError("the batch does not lie in the buffer")
        if self.rows == 0:
            self.begin(batches, row)
            self.lone, self.lone_start, self.lone_size = payload, start, size
            return True
        if self.limit_bytes == 0 or not self.follows(batches, row):
            return False
        if self.lone is not None:
            written = self.open_lone()
            if written == NO_ROOM:
                return False
            if written == MALFORMED:
                raise CorruptRecordError(BAD_RECORDS)
        written = self.append(buffer.start + start, size, batches, row)
        if written == MALFORMED:
            raise CorruptRecordError(BAD_RECORDS)
        return written >= 0

    def add(self, payload, Py_ssize_t start, table, Py_ssize_t row):
        cdef Buffer buffer
        cdef Batches batches
        open_batches(&batches, table)
        if not 0 <= row < batches.rows:
            raise UsageError(f"batch {row} of a table of {batches.rows}")
        open_buffer(&buffer, payload)
        try:
            return self._add(payload, &buffer, start, buffer.size - start, &batches, row)
        finally:
            PyBuffer_Release(&buffer.view)

    def add_run(self, data, table, Py_ssize_t first, Py_ssize_t last, bint any_codec):
        cdef Buffer buffer
        cdef Batches batches
        cdef Py_ssize_t row = first
        cdef int64_t at
        open_batches(&batches, table)
        if not 0 <= first <= last <= batches.rows:
            raise UsageError(f"batches {first} to {last} of a table of {batches.rows}")
        open_buffer(&buffer, data)
        try:
            while row < last:
                if (
                    batches.magic[row] < 2
                    or batches.count[row] < 1
                    or batches.attributes[row] & CONTROL_BIT
                    or (batches.attributes[row] & CODEC_MASK and not any_codec)
                ):
                    break
                at = batches.position[row] - batches.origin + BATCH_HEADER_BYTES
                if not self._add(data, &buffer, at, batches.size[row] - BATCH_HEADER_BYTES, &batches, row):
                    break
                row += 1
        except CorruptRecordError as error:
            raise error.at(position_bytes=batches.position[row])
        finally:
            PyBuffer_Release(&buffer.view)
        return row

    def keep(self):
        if self.rows == 1 and self.lone is not None and not isinstance(self.lone, bytes):
            self.lone = bytes(memoryview(self.lone)[self.lone_start : self.lone_start + self.lone_size])
            self.lone_start = 0

    def take(self):
        cdef bytes taken
        if self.lone is not None:
            self.keep()
            taken = self.lone
            if self.lone_start or self.lone_size != len(taken):
                taken = taken[self.lone_start : self.lone_start + self.lone_size]
        else:
            taken = PyBytes_FromStringAndSize(<char *>self.out, self.size)
        self.lone = None
        self.rows = 0
        self.size = 0
        return taken


# Magic 0 and 1


cdef inline MessageDataFields message_data_of(
    const uint8_t *payload, const Records *rows, Py_ssize_t row
) noexcept nogil:
    cdef MessageDataFields data
    data.key = data_of(payload, rows.key_start[row], rows.key_size[row])
    data.value = data_of(payload, rows.value_start[row], rows.value_size[row])
    return data


def upgrade(payload, table, records, int64_t leader_epoch):
    cdef Buffer buffer
    cdef Batches batches
    cdef Records rows
    cdef RecordFields record
    cdef Py_ssize_t row, first = 0, last
    cdef int64_t size = 0, base, timestamp, largest, previous, batch, attributes
    cdef bint append_time
    cdef bytes written
    cdef uint8_t *out
    cdef uint8_t *p
    open_batches(&batches, table)
    open_records(&rows, records, 0)
    open_buffer(&buffer, payload)
    try:
        for row in range(rows.rows):
            require_record(&batches, &rows, &buffer, row)
            size += MOST_ADDED + 10
            size += rows.key_size[row] if rows.key_size[row] > 0 else 0
            size += rows.value_size[row] if rows.value_size[row] > 0 else 0
            if row == 0 or rows.batch[row] != rows.batch[row - 1]:
                size += BATCH_HEADER_BYTES
        written = PyBytes_FromStringAndSize(NULL, size)
        out = p = <uint8_t *>PyBytes_AS_STRING(written)
        while first < rows.rows:
            batch = rows.batch[first]
            last = first
            while last < rows.rows and rows.batch[last] == batch:
                last += 1
            attributes = batches.attributes[batch] & CODEC_MASK
            append_time = batches.magic[batch] == 1 and batches.attributes[batch] & TIMESTAMP_TYPE_BIT
            if append_time:
                attributes |= TIMESTAMP_TYPE_BIT
            base = rows.offset[first]
            timestamp = batches.max_timestamp[batch] if append_time else rows.timestamp[first]
            largest = batches.max_timestamp[batch] if append_time else -1
            out = p
            memset(p, 0, BATCH_HEADER_BYTES)
            p += BATCH_HEADER_BYTES
            previous = base - 1
            for row in range(first, last):
                if rows.offset[row] <= previous or rows.offset[row] - base > INT32_MAX:
                    raise CorruptRecordError(
                        f"offset {rows.offset[row]} follows {previous} in one batch",
                        position_bytes=batches.position[batch],
                    )
                previous = rows.offset[row]
                if rows.timestamp[row] > largest and not append_time:
                    largest = rows.timestamp[row]
                record = record_of(buffer.start, &rows, row, base, timestamp)
                p = write_record(write_size_of_record(p, <int32_t>size_of_record(&record)), &record)
            put64(out + BATCH_BASE_OFFSET_POSITION, base)
            put32(out + ENTRY_SIZE_POSITION, p - out - ENTRY_PREFIX_BYTES)
            put32(out + BATCH_LEADER_EPOCH_POSITION, leader_epoch)
            out[MAGIC_POSITION] = 2
            put16(out + BATCH_ATTRIBUTES_POSITION, attributes)
            put32(out + BATCH_LAST_OFFSET_DELTA_POSITION, previous - base)
            put64(out + BATCH_BASE_TIMESTAMP_POSITION, timestamp)
            put64(out + BATCH_MAX_TIMESTAMP_POSITION, largest)
            # No producer.
            memset(out + BATCH_PRODUCER_ID_POSITION, 0xFF, BATCH_COUNT_POSITION - BATCH_PRODUCER_ID_POSITION)
            put32(out + BATCH_COUNT_POSITION, last - first)
            first = last
    finally:
        PyBuffer_Release(&buffer.view)
    return written[: p - <uint8_t *>PyBytes_AS_STRING(written)]


def downgrade(
    payload, table, records, Py_ssize_t first, Py_ssize_t last, int64_t magic, int64_t base_offset
):
    cdef Buffer buffer
    cdef Batches batches
    cdef Records rows
    cdef Py_ssize_t row
    cdef int64_t size = 0, batch, timestamp, append_time
    cdef bytes written
    cdef uint8_t *out
    cdef uint8_t *p
    cdef MessageDataFields data
    cdef Span span = Span.__new__(Span)
    open_batches(&batches, table)
    open_records(&rows, records, 0)
    if magic not in (0, 1) or not 0 <= first <= last <= rows.rows:
        raise UsageError(f"records {first} to {last} of a table of {rows.rows} in magic {magic}")
    open_buffer(&buffer, payload)
    try:
        for row in range(first, last):
            require_record(&batches, &rows, &buffer, row)
            size += MESSAGE_V1_HEADER_BYTES if magic else MESSAGE_V0_HEADER_BYTES
            data = message_data_of(buffer.start, &rows, row)
            size += size_of_message_data(&data)
        written = PyBytes_FromStringAndSize(NULL, size)
        p = <uint8_t *>PyBytes_AS_STRING(written)
        for row in range(first, last):
            batch = rows.batch[row]
            if row > first and rows.batch[row - 1] == batch and rows.offset[row] <= rows.offset[row - 1]:
                raise CorruptRecordError(
                    f"offset {rows.offset[row]} follows {rows.offset[row - 1]} in one batch",
                    position_bytes=batches.position[batch],
                )
            append_time = batches.attributes[batch] & TIMESTAMP_TYPE_BIT
            timestamp = batches.max_timestamp[batch] if append_time else rows.timestamp[row]
            if timestamp < -1:
                raise CorruptRecordError(
                    f"the record of offset {rows.offset[row]} has the timestamp {timestamp}",
                    position_bytes=batches.position[batch],
                )
            out = p
            put64(out + BATCH_BASE_OFFSET_POSITION, <uint64_t>rows.offset[row] - <uint64_t>base_offset)
            out[MAGIC_POSITION] = <uint8_t>magic
            out[MESSAGE_ATTRIBUTES_POSITION] = <uint8_t>(append_time if magic else 0)
            if magic:
                put64(out + MESSAGE_TIMESTAMP_POSITION, timestamp)
            p = out + (MESSAGE_V1_HEADER_BYTES if magic else MESSAGE_V0_HEADER_BYTES)
            data = message_data_of(buffer.start, &rows, row)
            p = write_message_data(p, &data)
            put32(out + ENTRY_SIZE_POSITION, p - out - ENTRY_PREFIX_BYTES)
            span.point(out + MESSAGE_CRC_FROM, p - out - MESSAGE_CRC_FROM)
            put32(out + MESSAGE_CRC_POSITION, crc32(span))
    finally:
        PyBuffer_Release(&buffer.view)
    return written


cdef inline bint lies_in(const Buffer *buffer, int64_t start, int64_t size) noexcept nogil:
    return size <= 0 or (0 <= start <= buffer.size and size <= buffer.size - start)


cdef int require_record(
    const Batches *batches, const Records *rows, const Buffer *buffer, Py_ssize_t row
) except -1:
    """Raise UsageError if a record of the table belongs to none of its batches, or is not in the payload."""
    if not 0 <= rows.batch[row] < batches.rows:
        raise UsageError(f"record {row} belongs to no batch of the table")
    if not lies_in(buffer, rows.key_start[row], rows.key_size[row]) or not lies_in(
        buffer, rows.value_start[row], rows.value_size[row]
    ):
        raise UsageError(f"record {row} of the table does not lie in the payload")
    return 0


# Comparing


cdef inline bint same_bytes(
    const Buffer *a, int64_t a_start, int64_t a_size, const Buffer *b, int64_t b_start, int64_t b_size
) noexcept nogil:
    if a_size != b_size:
        return False
    if a_size <= 0:
        return True
    return (
        lies_in(a, a_start, a_size)
        and lies_in(b, b_start, b_size)
        and memcmp(a.start + a_start, b.start + b_start, a_size) == 0
    )


cdef inline bint same_headers(
    const Buffer *a, const Records *a_rows, Py_ssize_t i, const Buffer *b, const Records *b_rows, Py_ssize_t j
) noexcept nogil:
    cdef const uint8_t *a_end
    cdef const uint8_t *b_end
    cdef int64_t a_start = a_rows.headers_start[i], b_start = b_rows.headers_start[j]
    if a_rows.header_count[i] != b_rows.header_count[j]:
        return False
    if a_rows.header_count[i] <= 0:
        return True
    if not 0 <= a_start <= a.size or not 0 <= b_start <= b.size:
        return False
    a_end = after_headers(a.start + a_start, a.start + a.size, a_rows.header_count[i])
    b_end = after_headers(b.start + b_start, b.start + b.size, b_rows.header_count[j])
    if a_end == NULL or b_end == NULL:
        return False
    return same_bytes(a, a_start, a_end - a.start - a_start, b, b_start, b_end - b.start - b_start)


def same_records(payload, records, Py_ssize_t first, other_payload, other_records, Py_ssize_t other_first,
                 Py_ssize_t count):
    cdef Buffer a, b
    cdef Records a_rows, b_rows
    cdef Py_ssize_t number, i, j
    open_records(&a_rows, records, 0)
    open_records(&b_rows, other_records, 0)
    if first < 0 or other_first < 0 or count > a_rows.rows - first or count > b_rows.rows - other_first:
        raise UsageError(f"{count} records of tables of {a_rows.rows} and {b_rows.rows}")
    open_buffer(&a, payload)
    try:
        open_buffer(&b, other_payload)
        try:
            for number in range(count):
                i = first + number
                j = other_first + number
                if not (
                    a_rows.offset[i] == b_rows.offset[j]
                    and a_rows.timestamp[i] == b_rows.timestamp[j]
                    and same_bytes(
                        &a, a_rows.key_start[i], a_rows.key_size[i], &b, b_rows.key_start[j], b_rows.key_size[j]
                    )
                    and same_bytes(
                        &a, a_rows.value_start[i], a_rows.value_size[i],
                        &b, b_rows.value_start[j], b_rows.value_size[j],
                    )
                    and same_headers(&a, &a_rows, i, &b, &b_rows, j)
                ):
                    return number
        finally:
            PyBuffer_Release(&b.view)
    finally:
        PyBuffer_Release(&a.view)
    return count
