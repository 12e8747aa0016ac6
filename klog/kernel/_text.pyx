# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Kafka's dump lines, compiled: whole ranges of batches and records a call.

The same functions as in `_pytext`, which states their meaning; tests hold the two equal.
"""

include "_output.pxi"
include "_tables.pxi"

IMPLEMENTATION = "cython"


cdef int put_java_text(Out *o, const uint8_t *p, Py_ssize_t size) except -1:
    """What Java's `new String(bytes, UTF_8)` holds, as UTF-8."""
    return put_replacing(o, p, size, put_bytes)


cdef int put_kafka_batch(Out *o, const Batches *b, Py_ssize_t row) except -1:
    cdef long long attributes = b.attributes[row]
    reserve(o, 1024)
    if b.magic[row] >= 2:
        put_field(o, "baseOffset: ", b.base_offset[row])
        put_field(o, " lastOffset: ", b.last_offset[row])
        put_field(o, " count: ", b.count[row])
        put_field(o, " baseSequence: ", b.base_sequence[row])
        put_field(o, " lastSequence: ", last_sequence(b, row))
        put_field(o, " producerId: ", b.producer_id[row])
        put_field(o, " producerEpoch: ", b.producer_epoch[row])
        put_field(o, " partitionLeaderEpoch: ", b.leader_epoch[row])
        put(o, " isTransactional: ")
        put(o, boolean(attributes & TRANSACTIONAL_BIT))
        put(o, " isControl: ")
        put(o, boolean(attributes & CONTROL_BIT))
        put(o, " deleteHorizonMs: ")
        if attributes & DELETE_HORIZON_BIT:
            put_field(o, "OptionalLong[", b.base_timestamp[row])
            put(o, "]")
        else:
            put(o, "OptionalLong.empty")
    else:
        put_field(o, "offset: ", b.last_offset[row])
    put_field(o, " position: ", b.position[row])
    put(o, " ")
    put(o, timestamp_type(b.magic[row], attributes))
    put_field(o, ": ", b.max_timestamp[row])
    put_field(o, " size: ", b.size[row])
    put_field(o, " magic: ", b.magic[row])
    put(o, " compresscodec: ")
    put(o, codec_name(attributes))
    put_field(o, " crc: ", b.crc[row])
    put(o, " isvalid: ")
    put(o, boolean(b.valid[row] != 0))
    put(o, "\n")
    return 0


cdef int put_kafka_headers(Out *o, const Payload *p, Py_ssize_t at, long long count) except -1:
    """The keys of the headers, as Scala shows a list of them."""
    cdef const uint8_t *next = p.data + at
    cdef RecordHeaderFields header
    cdef long long number
    put(o, " headerKeys: [")
    for number in range(count):
        next = next_header(p, next, &header)
        if number:
            reserve(o, 8)
            put(o, ",")
        put_java_text(o, header.key.start, header.key.size)
    reserve(o, 256)
    put(o, "]")
    return 0


cdef bint plain_control(const Records *r, Py_ssize_t row, const Payload *p) noexcept:
    """Whether this control record is shown by `put_kafka_control`: else its bytes are wrong or need schemas."""
    cdef ControlKeyFields key
    cdef EndTxnMarkerFields found
    if control_key(r, row, p, &key) == NULL or key.version < 0:
        return False
    if key.type == CONTROL_ABORT or key.type == CONTROL_COMMIT:
        return marker(r, row, p, &found) != NULL and found.version >= 0
    return not 3 <= key.type <= 6


cdef void put_kafka_control(Out *o, const Records *r, Py_ssize_t row, const Payload *p) noexcept:
    cdef ControlKeyFields key
    cdef EndTxnMarkerFields found
    control_key(r, row, p, &key)
    if key.type == CONTROL_ABORT or key.type == CONTROL_COMMIT:
        marker(r, row, p, &found)
        put(o, " endTxnMarker: ABORT" if key.type == CONTROL_ABORT else " endTxnMarker: COMMIT")
        put_field(o, " coordinatorEpoch: ", found.coordinatorEpoch)
    else:
        put_field(o, " controlType: LEADER_CHANGE(" if key.type == 2 else " controlType: UNKNOWN(", key.type)
        put(o, ")")


cdef inline long long shown_size(long long magic, long long start, long long size, const Payload *p) noexcept:
    """For messages of magic 0 and 1 the stored size field, even if it is not plausible."""
    if magic < 2 and MESSAGE_LENGTH_BYTES <= start <= p.size:
        return <int32_t>be32(p.data + start - MESSAGE_LENGTH_BYTES)
    return size


cdef int put_kafka_record(
    Out *o, const Decoded *d, Py_ssize_t row, bint print_data, bint skip_metadata
) except -1:
    cdef const Batches *b = &d.batches
    cdef const Records *r = &d.records
    cdef const Payload *p = &d.payload
    cdef Py_ssize_t batch
    cdef bint control
    check_record(b, r, row, p)
    batch = r.batch[row]
    control = b.magic[batch] >= 2 and b.attributes[batch] & CONTROL_BIT
    reserve(o, 512)
    if not skip_metadata:
        put_field(o, "| offset: ", r.offset[row])
        put(o, " ")
        put(o, timestamp_type(b.magic[batch], b.attributes[batch]))
        put_field(o, ": ", r.timestamp[row])
        put_field(o, " keySize: ", shown_size(b.magic[batch], r.key_start[row], r.key_size[row], p))
        put_field(o, " valueSize: ", shown_size(b.magic[batch], r.value_start[row], r.value_size[row], p))
        if b.magic[batch] >= 2:
            put_field(o, " sequence: ", record_sequence(b, batch, r.offset[row]))
            if r.header_count[row] > 0:
                put_kafka_headers(o, p, r.headers_start[row], r.header_count[row])
            else:
                put(o, " headerKeys: []")
        else:
            put(o, " isValid: ")
            put(o, boolean(r.valid[row] != 0))
            put_field(o, " crc: ", r.crc[row])
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
    cdef Decoded d
    cdef Out o
    load_decoded(&d, table, records, first, last, payload)
    open_out(&o, out, at)
    for row in range(first, last):
        put_kafka_record(&o, &d, row, print_data, skip_metadata)
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
    cdef Decoded d
    cdef Out o
    cdef Py_ssize_t record = first_record
    load_decoded(&d, table, records, first_record, len(records), payload)
    load_batches(&d.batches, table, first, last, True)
    open_out(&o, out, at)
    for row in range(first, last):
        put_kafka_batch(&o, &d.batches, row)
        while record < d.records.rows and d.records.batch[record] == row:
            put_kafka_record(&o, &d, record, print_data, skip_metadata)
            record += 1
    return used(&o)


def first_unshown_control(table, records, Py_ssize_t first, Py_ssize_t last, const uint8_t[::1] payload not None):
    cdef Decoded d
    cdef Py_ssize_t batch
    load_decoded(&d, table, records, first, last, payload)
    for row in range(first, last):
        check_record(&d.batches, &d.records, row, &d.payload)
        batch = d.records.batch[row]
        if (
            d.batches.magic[batch] >= 2
            and d.batches.attributes[batch] & CONTROL_BIT
            and not plain_control(&d.records, row, &d.payload)
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
