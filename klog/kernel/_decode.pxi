# Decodes the records of batches, for `_kernel`; `_pydecode` states the meaning and the rules.

cdef enum Fault:
    NO_FAULT
    NEGATIVE_COUNT
    BATCH_ENDS
    BAD_LENGTH
    BAD_FIELDS
    BYTES_REMAIN
    BAD_MESSAGE
    INNER_COMPRESSED


cdef struct Failure:
    Fault fault
    int64_t number
    int64_t count
    int64_t length
    int64_t left


cdef str described(const Failure *failure):
    if failure.fault == NEGATIVE_COUNT:
        return f"batch has a record count of {failure.count}"
    if failure.fault == BATCH_ENDS:
        return f"batch ends after {failure.number} of {failure.count} records"
    if failure.fault == BAD_LENGTH:
        record = f"record {failure.number} of {failure.count}"
        return f"{record} is {failure.length} bytes long with {failure.left} left"
    if failure.fault == BAD_FIELDS:
        return f"record {failure.number} of {failure.count} has fields that do not fit its length"
    if failure.fault == BYTES_REMAIN:
        return f"{failure.left} bytes remain after the {failure.count} records that the batch declares"
    if failure.fault == BAD_MESSAGE:
        return "message has a key or value that does not fit it"
    return "inner message is compressed itself"


cdef int fail(records, Py_ssize_t row, str problem) except -1:
    records.problem = problem
    records.problem_batch = row
    return 0


cdef inline Py_ssize_t most_records(int64_t count, int64_t left) noexcept nogil:
    """The largest possible number of records: the declared count, or what the bytes can hold."""
    cdef int64_t fitting = left // SMALLEST_RECORD
    if count <= 0:
        return 0
    return count if count < fitting else fitting


def decode(data, table, Py_ssize_t first, Py_ssize_t last, records):
    cdef Buffer buffer
    cdef Batches batches
    cdef Records out
    cdef Failure failure
    cdef Py_ssize_t row, most = 0
    cdef int64_t at, end
    fail(records, -1, None)
    open_batches(&batches, table)
    if not 0 <= first <= last <= batches.rows:
        raise UsageError(f"batches {first} to {last} of a table of {batches.rows}")
    open_buffer(&buffer, data)
    try:
        for row in range(first, last):
            at = batch_at(&buffer, &batches, row)
            if batches.attributes[row] & CODEC_MASK and batches.count[row] != 0:
                last = row + 1
                break
            most += 1 if batches.magic[row] < 2 else most_records(batches.count[row], batches.size[row])
        open_records(&out, records, most)
        failure.fault = NO_FAULT
        row = first
        try:
            while row < last:
                if batches.attributes[row] & CODEC_MASK and batches.count[row] != 0:
                    break
                at = batch_at(&buffer, &batches, row)
                end = at + batches.size[row]
                if batches.magic[row] < 2:
                    decode_message(
                        &buffer, at, end, batches.magic[row], row, batches.last_offset[row],
                        batches.max_timestamp[row], &out, &failure,
                    )
                else:
                    at = at + BATCH_HEADER_BYTES if batches.size[row] > BATCH_HEADER_BYTES else end
                    decode_v2(buffer.start, at, end, &batches, row, &out, &failure)
                if failure.fault != NO_FAULT:
                    fail(records, row, described(&failure))
                    break
                row += 1
        finally:
            close_records(&out, records)
    finally:
        PyBuffer_Release(&buffer.view)
    return row


def decode_payload(payload, table, Py_ssize_t row, records):
    cdef Buffer buffer
    cdef Batches batches
    cdef Records out
    cdef Failure failure
    fail(records, -1, None)
    open_batches(&batches, table)
    if not 0 <= row < batches.rows:
        raise UsageError(f"batch {row} of a table of {batches.rows}")
    open_buffer(&buffer, payload)
    try:
        if batches.magic[row] < 2:
            decode_inner(&buffer, &batches, row, records)
        else:
            failure.fault = NO_FAULT
            open_records(&out, records, most_records(batches.count[row], buffer.size))
            decode_v2(buffer.start, 0, buffer.size, &batches, row, &out, &failure)
            close_records(&out, records)
            if failure.fault != NO_FAULT:
                fail(records, row, described(&failure))
    finally:
        PyBuffer_Release(&buffer.view)
    return records.problem is None


def payload_span(data, table, Py_ssize_t row):
    cdef Buffer buffer
    cdef Batches batches
    cdef Fields fields
    cdef int64_t at, end
    open_batches(&batches, table)
    if not 0 <= row < batches.rows:
        raise UsageError(f"batch {row} of a table of {batches.rows}")
    open_buffer(&buffer, data)
    try:
        at = batch_at(&buffer, &batches, row)
        end = at + batches.size[row]
        if batches.magic[row] >= 2:
            if end - at <= BATCH_HEADER_BYTES:
                return end, 0
            return at + BATCH_HEADER_BYTES, end - at - BATCH_HEADER_BYTES
        if not read_fields(buffer.start, at, end, batches.magic[row], &fields):
            return at, -1
        return fields.value_start, fields.value_size
    finally:
        PyBuffer_Release(&buffer.view)


def headers(payload, int64_t start, int64_t count):
    cdef Buffer buffer
    cdef const uint8_t *p
    cdef const uint8_t *stop
    cdef RecordHeaderFields header
    cdef list found = []
    cdef bytes key
    open_buffer(&buffer, payload)
    try:
        stop = buffer.start + buffer.size
        p = buffer.start + start if 0 <= start <= buffer.size else stop
        while count > 0:
            count -= 1
            p = read_record_header(p, stop, &header)
            if p == NULL:
                raise CorruptRecordError("headers do not fit the payload")
            key = PyBytes_FromStringAndSize(<const char *>header.key.start, header.key.size)
            if header.value.size < 0:
                found.append((key, None))
            else:
                found.append(
                    (key, PyBytes_FromStringAndSize(<const char *>header.value.start, header.value.size))
                )
    finally:
        PyBuffer_Release(&buffer.view)
    return found


# Magic 2


cdef inline bint decode_record(
    const uint8_t *data,
    const uint8_t *p,
    const uint8_t *stop,
    int64_t base_offset,
    int64_t base_timestamp,
    Records *out,
    Py_ssize_t n,
) noexcept nogil:
    """Write row `n` from the record body between `p` and `stop`; False if its fields do not fill it exactly."""
    cdef RecordFields record
    p = read_record(p, stop, &record)
    if p == NULL:
        return False
    if record.headers != 0 or p != stop:
        if not headers_fit(p, stop, record.headers):
            return False
    out.offset[n] = wrapping_sum(base_offset, record.offsetDelta)
    out.timestamp[n] = wrapping_sum(base_timestamp, record.timestampDelta)
    out.key_start[n] = record.key.start - data
    out.key_size[n] = record.key.size if record.key.size > -1 else -1
    out.value_start[n] = record.value.start - data
    out.value_size[n] = record.value.size if record.value.size > -1 else -1
    out.headers_start[n] = p - data
    out.header_count[n] = record.headers
    return True


cdef void decode_v2(
    const uint8_t *data,
    int64_t at,
    int64_t end,
    const Batches *batches,
    Py_ssize_t row,
    Records *records,
    Failure *failure,
) noexcept nogil:
    """Decode the records between `at` and `end`; `records` has `most_records` unused rows for them."""
    cdef Records out = records[0]  # a copy that the compiler may keep in registers
    cdef const uint8_t *p = data + at
    cdef const uint8_t *stop = data + end
    cdef const uint8_t *body
    cdef int64_t base_offset = batches.base_offset[row], base_timestamp = batches.base_timestamp[row]
    cdef int64_t count = batches.count[row], number = 0
    cdef Py_ssize_t first = out.rows, n = out.rows, i
    cdef int32_t length = 0
    failure.count = count
    if count < 0:
        failure.fault = NEGATIVE_COUNT
        return
    while number < count:
        body = read_size_of_record(p, stop, &length)
        if body == NULL:
            failure.fault = BATCH_ENDS
            break
        if length < 0 or length > stop - body:
            failure.fault = BAD_LENGTH
            failure.length = length
            failure.left = stop - body
            break
        if not decode_record(data, body, body + length, base_offset, base_timestamp, &out, n):
            failure.fault = BAD_FIELDS
            break
        out.record_size[n] = size_of_varint(zigzag64(length)) + length
        p = body + length
        n += 1
        number += 1
    failure.number = number
    if failure.fault == NO_FAULT and p != stop and count:
        failure.fault = BYTES_REMAIN
        failure.left = stop - p
    for i in range(first, n):
        out.batch[i] = row
        out.crc[i] = -1
        out.valid[i] = 1
    if batches.attributes[row] & TIMESTAMP_TYPE_BIT:
        for i in range(first, n):
            out.timestamp[i] = batches.max_timestamp[row]
    records.rows = n
