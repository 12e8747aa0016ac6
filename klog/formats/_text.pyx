# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Kafka's dump lines, compiled: whole ranges of batches and records a call.

The same functions as in `_pytext`, which states their meaning; tests hold the two equal.
"""

include "_output.pxi"
include "_tables.pxi"

IMPLEMENTATION = "cython"


cdef int put_java_text(Out *o, const uint8_t *p, Py_ssize_t size) except -1:
    """What Java's `new String(bytes, UTF_8)` holds, as UTF-8."""
    cdef Py_ssize_t run
    while True:
        run = well_formed(p, size)
        put_bytes(o, p, run)
        if run == size:
            return 0
        reserve(o, 3)
        put(o, b"\xef\xbf\xbd")
        p += run
        size -= run
        run = ill_formed(p, size)
        p += run
        size -= run


cdef int put_kafka_batch(Out *o, const Batches *b, Py_ssize_t row) except -1:
    cdef long long attributes = b.attributes[row]
    reserve(o, 1024)
    if b.magic[row] >= 2:
        put(o, "baseOffset: ")
        put_int(o, b.base_offset[row])
        put(o, " lastOffset: ")
        put_int(o, b.last_offset[row])
        put(o, " count: ")
        put_int(o, b.count[row])
        put(o, " baseSequence: ")
        put_int(o, b.base_sequence[row])
        put(o, " lastSequence: ")
        put_int(o, last_sequence(b, row))
        put(o, " producerId: ")
        put_int(o, b.producer_id[row])
        put(o, " producerEpoch: ")
        put_int(o, b.producer_epoch[row])
        put(o, " partitionLeaderEpoch: ")
        put_int(o, b.leader_epoch[row])
        put(o, " isTransactional: ")
        put(o, boolean(attributes & TRANSACTIONAL))
        put(o, " isControl: ")
        put(o, boolean(attributes & CONTROL))
        put(o, " deleteHorizonMs: ")
        if attributes & DELETE_HORIZON:
            put(o, "OptionalLong[")
            put_int(o, b.base_timestamp[row])
            put(o, "]")
        else:
            put(o, "OptionalLong.empty")
    else:
        put(o, "offset: ")
        put_int(o, b.last_offset[row])
    put(o, " position: ")
    put_int(o, b.position[row])
    put(o, " ")
    put(o, timestamp_type(b.magic[row], attributes))
    put(o, ": ")
    put_int(o, b.max_timestamp[row])
    put(o, " size: ")
    put_int(o, b.size[row])
    put(o, " magic: ")
    put_int(o, b.magic[row])
    put(o, " compresscodec: ")
    put(o, codec_name(attributes))
    put(o, " crc: ")
    put_int(o, b.crc[row])
    put(o, " isvalid: ")
    put(o, boolean(b.valid[row] != 0))
    put(o, "\n")
    return 0


cdef int put_kafka_headers(Out *o, const Payload *p, Py_ssize_t at, long long count) except -1:
    """The keys of the headers, as Scala shows a list of them."""
    cdef long long number = 0
    cdef long long size
    put(o, " headerKeys: [")
    while number < count:
        at = varint(p.data, at, p.size, &size)
        if at < 0 or size < 0 or size > p.size - at:
            raise FormatError("a header's key lies outside of its payload")
        if number:
            reserve(o, 8)
            put(o, ",")
        put_java_text(o, p.data + at, size)
        at = varint(p.data, at + size, p.size, &size)
        if at < 0 or size > p.size - at:
            raise FormatError("a header's value lies outside of its payload")
        at += size if size > 0 else 0
        number += 1
    reserve(o, 256)
    put(o, "]")
    return 0


cdef bint plain_control(const Records *r, Py_ssize_t row, const Payload *p) noexcept:
    """Whether this control record is shown by `put_kafka_control`: else its bytes are wrong or need schemas."""
    cdef long long kind
    if r.key_size[row] < 4 or int16_at(p.data + r.key_start[row]) < 0:
        return False
    kind = int16_at(p.data + r.key_start[row] + 2)
    if kind == 0 or kind == 1:
        return r.value_size[row] >= 6 and int16_at(p.data + r.value_start[row]) >= 0
    return not 3 <= kind <= 6


cdef void put_kafka_control(Out *o, const Records *r, Py_ssize_t row, const Payload *p) noexcept:
    cdef long long kind = int16_at(p.data + r.key_start[row] + 2)
    if kind == 0 or kind == 1:
        put(o, " endTxnMarker: ABORT" if kind == 0 else " endTxnMarker: COMMIT")
        put(o, " coordinatorEpoch: ")
        put_int(o, int32_at(p.data + r.value_start[row] + 2))
    else:
        put(o, " controlType: LEADER_CHANGE(" if kind == 2 else " controlType: UNKNOWN(")
        put_int(o, kind)
        put(o, ")")


cdef inline long long shown_size(long long magic, long long start, long long size, const Payload *p) noexcept:
    """Legacy messages show the size field as it stands there, believable or not."""
    return int32_at(p.data + start - 4) if magic < 2 and 4 <= start <= p.size else size


cdef int put_kafka_record(
    Out *o, const Batches *b, const Records *r, Py_ssize_t row, const Payload *p, bint print_data, bint skip_metadata
) except -1:
    cdef Py_ssize_t batch
    cdef bint control
    check_record(b, r, row, p)
    batch = r.batch[row]
    control = b.magic[batch] >= 2 and b.attributes[batch] & CONTROL
    reserve(o, 512)
    if not skip_metadata:
        put(o, "| offset: ")
        put_int(o, r.offset[row])
        put(o, " ")
        put(o, timestamp_type(b.magic[batch], b.attributes[batch]))
        put(o, ": ")
        put_int(o, r.timestamp[row])
        put(o, " keySize: ")
        put_int(o, shown_size(b.magic[batch], r.key_start[row], r.key_size[row], p))
        put(o, " valueSize: ")
        put_int(o, shown_size(b.magic[batch], r.value_start[row], r.value_size[row], p))
        if b.magic[batch] >= 2:
            put(o, " sequence: ")
            put_int(o, record_sequence(b, batch, r.offset[row]))
            if r.header_count[row] > 0:
                put_kafka_headers(o, p, r.headers_start[row], r.header_count[row])
            else:
                put(o, " headerKeys: []")
        else:
            put(o, " isValid: ")
            put(o, boolean(r.valid[row] != 0))
            put(o, " crc: ")
            put_int(o, r.crc[row])
            put(o, "}")
        if control and plain_control(r, row, p):
            put_kafka_control(o, r, row, p)
    if print_data and not control:
        if r.key_size[row] >= 0:
            put(o, "| key: " if skip_metadata else " key: ")
            put_java_text(o, p.data + r.key_start[row], r.key_size[row])
            reserve(o, 16)
        if r.value_size[row] >= 0:
            put(o, " payload: ")
            put_java_text(o, p.data + r.value_start[row], r.value_size[row])
            reserve(o, 16)
    put(o, "\n")
    return 0


def kafka_batches(table, Py_ssize_t first, Py_ssize_t last, bytearray out not None, Py_ssize_t at):
    cdef Batches b
    cdef Out o
    load_batches(&b, table, first, last, True)
    open_out(&o, out, at)
    for row in range(first, last):
        put_kafka_batch(&o, &b, row)
    return used(&o)


def kafka_records(
    table,
    records,
    Py_ssize_t first,
    Py_ssize_t last,
    const uint8_t[::1] payload not None,
    bint print_data,
    bint skip_metadata,
    bytearray out not None,
    Py_ssize_t at,
):
    cdef Batches b
    cdef Records r
    cdef Out o
    cdef Payload p
    load_batches(&b, table, 0, 0, False)
    load_records(&r, records, first, last)
    load_payload(&p, payload)
    open_out(&o, out, at)
    for row in range(first, last):
        put_kafka_record(&o, &b, &r, row, &p, print_data, skip_metadata)
    return used(&o)


def kafka_deep(
    table,
    Py_ssize_t first,
    Py_ssize_t last,
    records,
    Py_ssize_t first_record,
    const uint8_t[::1] payload not None,
    bint print_data,
    bint skip_metadata,
    bytearray out not None,
    Py_ssize_t at,
):
    cdef Batches b
    cdef Records r
    cdef Out o
    cdef Payload p
    cdef Py_ssize_t record = first_record
    load_batches(&b, table, first, last, True)
    load_records(&r, records, first_record, len(records))
    load_payload(&p, payload)
    open_out(&o, out, at)
    for row in range(first, last):
        put_kafka_batch(&o, &b, row)
        while record < r.rows and r.batch[record] == row:
            put_kafka_record(&o, &b, &r, record, &p, print_data, skip_metadata)
            record += 1
    return used(&o)


def odd_control(table, records, Py_ssize_t first, Py_ssize_t last, const uint8_t[::1] payload not None):
    cdef Batches b
    cdef Records r
    cdef Payload p
    load_batches(&b, table, 0, 0, False)
    load_records(&r, records, first, last)
    load_payload(&p, payload)
    for row in range(first, last):
        check_record(&b, &r, row, &p)
        if (
            b.magic[r.batch[row]] >= 2
            and b.attributes[r.batch[row]] & CONTROL
            and not plain_control(&r, row, &p)
        ):
            return row
    return last


def offset_gaps(records, Py_ssize_t first, Py_ssize_t last, long long previous):
    cdef Records r
    cdef long long offset
    load_records(&r, records, first, last)
    found = []
    for row in range(first, last):
        offset = r.offset[row]
        # Kafka's tool takes -1 as "none yet"; its long arithmetic wraps.
        if previous != -1 and offset != <long long>(<uint64_t>previous + 1):
            found.append((previous, offset))
        previous = offset
    return found, previous
