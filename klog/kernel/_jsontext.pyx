# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""JSON Lines, compiled: whole ranges of batches and records a call.

The same functions as in `_pyjsontext`, which states their meaning; tests hold the two equal.
"""

include "_output.pxi"
include "_tables.pxi"

IMPLEMENTATION = "cython"

cdef enum Mode:
    AUTO = 0
    UTF8 = 1
    BASE64 = 2
    HEX = 3
    NONE = 4


cdef inline bint plain_word(uint64_t word) noexcept:
    """No byte of the word needs an escape in a JSON string."""
    cdef uint64_t quote = word ^ (ONES * 0x22)
    cdef uint64_t backslash = word ^ (ONES * 0x5C)
    return not (
        ((word - ONES * 0x20) & ~word | (quote - ONES) & ~quote | (backslash - ONES) & ~backslash) & ASCII_MASK
    )


cdef const char *HEX_DIGITS = "0123456789abcdef"
# The letter after the backslash for each control character; "." if it is written as a number.
cdef const char *SHORT_ESCAPES = "........btn.fr.................."


cdef int put_escaped(Out *o, const uint8_t *p, Py_ssize_t size) except -1:
    """Well-formed UTF-8 as the inside of a JSON string."""
    cdef Py_ssize_t run
    cdef uint8_t byte
    while True:
        run = 0
        while size - run >= 8 and plain_word(load64(p + run)):
            run += 8
        while run < size and p[run] >= 0x20 and p[run] != 0x22 and p[run] != 0x5C:
            run += 1
        reserve(o, run + 6)
        memcpy(o.at, p, run)
        o.at += run
        if run == size:
            return 0
        byte = p[run]
        o.at[0] = c"\\"
        if byte >= 0x20:  # a quote or a backslash
            o.at[1] = <char>byte
            o.at += 2
        elif SHORT_ESCAPES[byte] != c".":
            o.at[1] = SHORT_ESCAPES[byte]
            o.at += 2
        else:
            put(o, b"\\u00")
            o.at[0] = HEX_DIGITS[byte >> 4]
            o.at[1] = HEX_DIGITS[byte & 15]
            o.at += 2
        p += run + 1
        size -= run + 1


cdef uint16_t[4096] BASE64_PAIRS
_alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
for _number in range(4096):
    (<uint8_t *>&BASE64_PAIRS[_number])[0] = _alphabet[_number >> 6]
    (<uint8_t *>&BASE64_PAIRS[_number])[1] = _alphabet[_number & 63]


cdef int put_base64(Out *o, const uint8_t *p, Py_ssize_t size) except -1:
    """Base64 with padding (RFC 4648), two characters a table look-up."""
    cdef uint32_t bits
    cdef char *at
    reserve(o, (size // 3 + 1) * 4)
    at = o.at
    while size >= 3:
        bits = <uint32_t>p[0] << 16 | <uint32_t>p[1] << 8 | p[2]
        memcpy(at, &BASE64_PAIRS[bits >> 12], 2)
        memcpy(at + 2, &BASE64_PAIRS[bits & 0xFFF], 2)
        at += 4
        p += 3
        size -= 3
    if size:
        bits = <uint32_t>p[0] << 16 | (<uint32_t>p[1] << 8 if size == 2 else 0)
        memcpy(at, &BASE64_PAIRS[bits >> 12], 2)
        memcpy(at + 2, &BASE64_PAIRS[bits & 0xFFF], 2)
        at[3] = 61
        if size == 1:
            at[2] = 61
        at += 4
    o.at = at
    return 0


cdef int put_hex(Out *o, const uint8_t *p, Py_ssize_t size) except -1:
    cdef Py_ssize_t number
    reserve(o, 2 * size)
    for number in range(size):
        o.at[0] = HEX_DIGITS[p[number] >> 4]
        o.at[1] = HEX_DIGITS[p[number] & 15]
        o.at += 2
    return 0


cdef int put_json_bytes(Out *o, const uint8_t *p, long long size, Mode mode) except -1:
    """A key or value as the mode shows it; a negative size is null. Reserves 512 bytes for what follows."""
    reserve(o, 64)
    if size < 0:
        put(o, "null")
    elif mode == NONE:
        put_field(o, '{"size":', size)
        put(o, "}")
    elif mode == BASE64 or mode == HEX:
        put(o, '"')
        if mode == BASE64:
            put_base64(o, p, size)
        else:
            put_hex(o, p, size)
        reserve(o, 1)
        put(o, '"')
    elif mode == UTF8 or well_formed(p, size) == size:
        put(o, '"')
        if mode == UTF8:
            put_replacing(o, p, size, put_escaped)
        else:
            put_escaped(o, p, size)
        reserve(o, 1)
        put(o, '"')
    else:
        put(o, '{"base64":"')
        put_base64(o, p, size)
        reserve(o, 2)
        put(o, '"}')
    reserve(o, 512)
    return 0


cdef int put_json_headers(Out *o, const Payload *p, Py_ssize_t at, long long count, Mode mode) except -1:
    cdef const uint8_t *next = p.data + at
    cdef RecordHeaderFields header
    cdef long long number
    for number in range(count):
        next = next_header(p, next, &header)
        put(o, ",[" if number else "[")
        put_json_bytes(o, header.key.start, header.key.size, mode)
        put(o, ",")
        put_json_bytes(o, header.value.start, header.value.size, mode)
        put(o, "]")
    return 0


cdef const char *control_name(long long kind) noexcept:
    if kind == 0:
        return '"ABORT"'
    if kind == 1:
        return '"COMMIT"'
    if kind == 2:
        return '"LEADER_CHANGE"'
    if kind == 3:
        return '"SNAPSHOT_HEADER"'
    if kind == 4:
        return '"SNAPSHOT_FOOTER"'
    if kind == 5:
        return '"KRAFT_VERSION"'
    return '"KRAFT_VOTERS"' if kind == 6 else '"UNKNOWN"'


cdef void put_json_control(Out *o, const Records *r, Py_ssize_t row, const Payload *p) noexcept:
    cdef ControlKeyFields key
    cdef EndTxnMarkerFields found
    cdef long long kind = -1 if control_key(r, row, p, &key) == NULL else key.type
    put(o, control_name(kind))
    put(o, ',"coordinatorEpoch":')
    if 0 <= kind <= 1 and marker(r, row, p, &found) != NULL:
        put_int(o, found.coordinatorEpoch)
    else:
        put(o, "null")


cdef int put_json_record(
    Out *o, const Decoded *d, Py_ssize_t row, const Payload *prefix, Mode mode
) except -1:
    cdef const Batches *b = &d.batches
    cdef const Records *r = &d.records
    cdef const Payload *p = &d.payload
    cdef Py_ssize_t batch
    cdef long long attributes
    check_record(b, r, row, p)
    batch = r.batch[row]
    attributes = b.attributes[batch] if b.magic[batch] >= 2 else b.attributes[batch] & (CODEC_MASK | TIMESTAMP_TYPE_BIT)
    put_bytes(o, prefix.data, prefix.size)
    reserve(o, 512)
    put_field(o, ',"offset":', r.offset[row])
    put_field(o, ',"timestamp":', r.timestamp[row])
    put(o, ',"timestampType":"')
    put(o, timestamp_type(b.magic[batch], attributes))
    put(o, '","key":')
    put_json_bytes(o, p.data + r.key_start[row], r.key_size[row], mode)
    put(o, ',"value":')
    put_json_bytes(o, p.data + r.value_start[row], r.value_size[row], mode)
    put(o, ',"headers":[')
    put_json_headers(o, p, r.headers_start[row], r.header_count[row], mode)
    put_field(o, '],"magic":', b.magic[batch])
    put(o, ',"codec":"')
    put(o, codec_name(attributes))
    put(o, '","isTransactional":')
    put(o, boolean(attributes & TRANSACTIONAL_BIT))
    if attributes & CONTROL_BIT:
        put(o, ',"isControl":true,"controlType":')
        put_json_control(o, r, row, p)
    else:
        put(o, ',"isControl":false,"controlType":null,"coordinatorEpoch":null')
    put_field(o, ',"producerId":', b.producer_id[batch])
    put_field(o, ',"producerEpoch":', b.producer_epoch[batch])
    put_field(o, ',"sequence":', record_sequence(b, batch, r.offset[row]))
    put_field(o, ',"leaderEpoch":', b.leader_epoch[batch])
    reserve(o, 256)
    put_field(o, ',"batchBaseOffset":', b.base_offset[batch])
    put_field(o, ',"batchPosition":', b.position[batch])
    put_field(o, ',"recordSize":', r.record_size[row])
    put(o, "}\n")
    return 0


def jsonl_records(
    table,
    records,
    Py_ssize_t first,
    Py_ssize_t last,
    const uint8_t[::1] payload not None,
    const uint8_t[::1] prefix not None,
    int mode,
    bytearray out not None,
    Py_ssize_t at,
):
    cdef Decoded d
    cdef Out o
    cdef Payload place
    if not AUTO <= mode <= NONE:
        raise ValueError(f"no bytes mode {mode}")
    load_decoded(&d, table, records, first, last, payload)
    load_payload(&place, prefix)
    open_out(&o, out, at)
    for row in range(first, last):
        put_json_record(&o, &d, row, &place, <Mode>mode)
    return used(&o)


cdef int put_json_batch(Out *o, const Batches *b, Py_ssize_t row, const Payload *prefix) except -1:
    cdef long long attributes = b.attributes[row] if b.magic[row] >= 2 else b.attributes[row] & (CODEC_MASK | TIMESTAMP_TYPE_BIT)
    put_bytes(o, prefix.data, prefix.size)
    reserve(o, 1024)
    put_field(o, ',"position":', b.position[row])
    put_field(o, ',"size":', b.size[row])
    put(o, ',"baseOffset":')
    if b.magic[row] < 2 and attributes & CODEC_MASK and b.base_offset[row] == -1:
        put(o, "null")
    else:
        put_int(o, b.base_offset[row])
    put_field(o, ',"lastOffset":', b.last_offset[row])
    put_field(o, ',"magic":', b.magic[row])
    put(o, ',"count":')
    if b.magic[row] < 2:
        put(o, "null")
    else:
        put_int(o, b.count[row])
    put_field(o, ',"maxTimestamp":', b.max_timestamp[row])
    put(o, ',"timestampType":"')
    put(o, timestamp_type(b.magic[row], attributes))
    put(o, '","codec":"')
    put(o, codec_name(attributes))
    put_field(o, '","checksum":', b.crc[row])
    if b.valid[row]:
        put(o, ',"valid":true,"error":null')
    elif b.crc[row] == b.computed_crc[row]:
        put(o, ',"valid":false,"error":"batch is shorter than its header"')
    else:
        put_field(o, ',"valid":false,"error":"checksum is ', b.crc[row])
        put_field(o, ", the bytes give ", b.computed_crc[row])
        put(o, '"')
    put_field(o, ',"producerId":', b.producer_id[row])
    put_field(o, ',"producerEpoch":', b.producer_epoch[row])
    put_field(o, ',"baseSequence":', b.base_sequence[row])
    put_field(o, ',"lastSequence":', last_sequence(b, row))
    put_field(o, ',"partitionLeaderEpoch":', b.leader_epoch[row])
    put(o, ',"isTransactional":')
    put(o, boolean(attributes & TRANSACTIONAL_BIT))
    put(o, ',"isControl":')
    put(o, boolean(attributes & CONTROL_BIT))
    put(o, ',"deleteHorizonMs":')
    if attributes & DELETE_HORIZON_BIT:
        put_int(o, b.base_timestamp[row])
    else:
        put(o, "null")
    put(o, "}\n")
    return 0


def jsonl_batches(
    table, Py_ssize_t first, Py_ssize_t last, const uint8_t[::1] prefix not None, bytearray out not None, Py_ssize_t at
):
    cdef Batches b
    cdef Out o
    cdef Payload place
    load_batches(&b, table, first, last, True)
    load_payload(&place, prefix)
    open_out(&o, out, at)
    for row in range(first, last):
        put_json_batch(&o, &b, row, &place)
    return used(&o)
